"""What arrives is checked before any of it is used."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.apps.bundle import Bundle
from stoker.client.apps.definition import Definition
from stoker.client.apps.resources import version_env
from stoker.client.apps.source import scan_source
from stoker.worker.errors import HandlerError
from stoker.worker.functions import code
from stoker.worker.functions.code import (
    CodeRefused,
    deployed_call,
    read_call,
    read_code,
    unpack,
    version_content,
)

PATHS = st.from_regex(r"[a-z0-9_]{1,5}(/[a-z_]{1,5}){0,2}\.py", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(PATHS, TEXTS))
def test_a_bundle_arrives_as_it_was_sent(files: dict[str, str]) -> None:
    made = Bundle(files)
    assert unpack(made.packed(), made.hash) == files


def packed(value: Any) -> tuple[str, str]:
    data = json.dumps(value).encode()
    return base64.b64encode(zlib.compress(data)).decode(), hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"../a.py": ""}, "not a path of a module"),
        ({"/a.py": ""}, "not a path of a module"),
        ({"a/./b.py": ""}, "not a path of a module"),
        ({"a.sh": ""}, "not a path of a module"),
        ({"a\n.py": ""}, "not a path of a module"),
        ({"a.py": 3}, "paths to texts"),
        ([], "paths to texts"),
        ({"a.py": "x" * (8 << 20) + "y"}, "over 8 MiB"),
    ],
)
def test_a_bundle_that_is_wrong_is_refused(value: Any, says: str) -> None:
    with pytest.raises(CodeRefused, match=says):
        unpack(*packed(value))


def test_a_bundle_of_another_hash_or_no_bundle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bundle({"a.py": "x"})
    with pytest.raises(CodeRefused, match="not that of its hash"):
        unpack(made.packed(), "0" * 64)
    with pytest.raises(CodeRefused, match="cannot be unpacked"):
        unpack("no base64", made.hash)
    with pytest.raises(CodeRefused, match="its end is missing"):
        unpack(base64.b64encode(base64.b64decode(made.packed())[:-6]).decode(), made.hash)
    monkeypatch.setattr(code, "_JSON_MAX", 1 << 20)
    with pytest.raises(CodeRefused, match="over 8 MiB"):
        unpack(base64.b64encode(zlib.compress(bytes(2 << 20))).decode(), "x")
    monkeypatch.setattr(code, "PACKED_MAX", 10)
    with pytest.raises(CodeRefused, match="at most 10"):
        unpack("x" * 11, "x")


GOOD = {"bundle": {"hash": "h", "packed": "p"}, "folder": "03_x", "dependencies": ["a>=1"]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bundle": None}, "bundle must be"),
        ({"bundle": {"hash": "h"}}, "either packed or url"),
        ({"bundle": {"hash": "h", "packed": "p", "url": "u"}}, "either packed or url"),
        ({"folder": "../x"}, "folder"),
        ({"dependencies": ["--index-url=x"]}, "dependencies"),
        ({"dependencies": ["a\n-r x"]}, "dependencies"),
        ({"system_dependencies": [3]}, "system_dependencies"),
    ],
)
def test_a_request_that_is_wrong_names_its_field(change: dict[str, Any], says: str) -> None:
    assert read_code(GOOD).dependencies == ("a>=1",)
    with pytest.raises(CodeRefused, match=says):
        read_code({**GOOD, **change})
    with pytest.raises(CodeRefused, match="function must be"):
        read_call({"function": "f"})


@given(st.dictionaries(PATHS, TEXTS), st.text(max_size=200_000))
def test_a_version_survives_its_variables(files: dict[str, str], more: str) -> None:
    (endpoint,), _ = scan_source("from stoker.client import endpoint\n@endpoint()\ndef f(a): ...", "app.py")
    made = Bundle({**files, "more.py": more.encode("utf-8", "replace").decode()})
    content = version_content(version_env(endpoint, Definition(dependencies=("numpy",)), made))
    assert content is not None
    read = read_code(content)
    assert unpack(read.packed, read.hash) == made.files
    assert read.dependencies == ("numpy",)


def test_what_a_version_may_hold() -> None:
    assert version_content({"STOKER_FUNCTIONS_LIVE": "1"}) is None
    for variables, says in (
        ({}, "no functions"),
        ({"STOKER_FUNCTIONS_0": "{"}, "not JSON"),
        ({"STOKER_FUNCTIONS_0": "[]"}, "an object"),
    ):
        with pytest.raises(HandlerError, match=says):
            version_content(variables)


def test_the_input_of_a_deployed_endpoint_is_its_parameters() -> None:
    one = {"module": "app", "callable": "f"}
    assert deployed_call([one], {"method": "x"}).kwargs == {"method": "x"}
    two = [{"module": "app", "callable": f"Model.{name}"} for name in ("embed", "count")]
    call = deployed_call(two, {"method": "count", "n": 1})
    assert (call.callable, call.kwargs) == ("Model.count", {"n": 1})
    for wrong in ({}, {"method": ["count"]}, {"method": "f"}):
        with pytest.raises(CodeRefused, match="method must be one of count, embed"):
            deployed_call(two, wrong)
    with pytest.raises(CodeRefused, match="an object with the parameters"):
        deployed_call([one], [])
