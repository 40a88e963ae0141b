"""The check of an input without control: schemas that say less than those of the hosted models."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.checked_input import InvalidInput, checked


def test_a_schema_may_require_nothing_and_have_no_fields() -> None:
    assert checked({}, {"properties": {"paper": {"type": "string", "default": ""}}}) == {"paper": ""}
    assert checked({}, {}) == {}
    with pytest.raises(InvalidInput, match="input must be an object, not 3"):
        checked(3, {})
    with pytest.raises(InvalidInput, match="sede: there is no such field; allowed are none"):
        checked({"sede": 1}, {})
    with pytest.raises(InvalidInput, match="x: is missing; it must be any value"):
        checked({}, rule() | {"required": ["x"]})


def rule(**of: Any) -> dict[str, Any]:
    return {"properties": {"x": of}}


@pytest.mark.parametrize(
    ("schema", "good", "wrong", "message"),
    [
        (rule(enum=[1, "a"]), "a", "b", 'x: "b" is not allowed; it must be 1 or a'),
        (rule(type="integer", enum=[1, 2]), 2, 3, "x: 3 is not allowed; it must be 1 or 2"),
        (
            rule(type="array", items={"type": "string"}),
            ["a"],
            [1],
            r"x\[0\]: 1 is not allowed; it must be text",
        ),
        (rule(type="array"), [1, {}], 1, "x: 1 is not allowed; it must be a list"),
        (rule(type="array", maxItems=1), [1], [1, 2], "it must be a list of at most 1 values"),
        (rule(type="array", maxItems=1, items={"type": "object"}), [{}], 1, "a list of at most 1 objects"),
        (
            rule(type="object", required=["y"], **rule(type="integer")),
            None,
            3,
            "x must be an object with a y",
        ),
    ],
)
def test_a_pipelines_own_inputs_may_have_any_simple_rule(
    schema: dict[str, Any], good: Any, wrong: Any, message: str
) -> None:
    if good is not None:
        assert checked({"x": good}, schema) == {"x": good}
    with pytest.raises(InvalidInput, match=message):
        checked({"x": wrong}, schema)
