"""The content of a worker's program, and that no program goes on from the save of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.workers.lifecycle.contents import content_of, why_anew
from stoker.wire.messages import Source, WorkerSpec

CONTENTS = st.sampled_from(["", "source aa", "source bb", "image aa", "image bb"])


def spec(image: str = "", source: Source | None = None) -> WorkerSpec:
    return WorkerSpec("w1", "e1", 1, "/code/echo.py:handler", (), image=image, source=source)


@given(CONTENTS, CONTENTS)
def test_what_is_known_and_differs_begins_anew_and_nothing_else_does(made_by: str, runs: str) -> None:
    why = why_anew(made_by, "w2", runs)
    assert (why is not None) == (len({made_by, runs} - {""}) == 2)
    assert why is None or (made_by in why and runs in why and "w2" in why)


@given(CONTENTS, CONTENTS)
def test_neither_side_is_preferred(one: str, other: str) -> None:
    assert (why_anew(one, "w2", other) is None) == (why_anew(other, "w2", one) is None)


@pytest.mark.parametrize(
    ("image", "source", "image_id", "content"),
    [
        ("", Source("/code", "5d41"), "", "source 5d41"),
        ("", Source("/code", "", "it has over 8 MiB"), "", ""),
        ("", None, "", ""),
        ("echo:1", None, "sha256:9e10", "image 9e10"),
        ("echo:1", None, "9e10", "image 9e10"),
        ("echo:1", None, "", ""),
        ("echo@sha256:77aa", None, "sha256:9e10", ""),
    ],
)
def test_the_content_of_a_worker(image: str, source: Source | None, image_id: str, content: str) -> None:
    assert content_of(spec(image, source), image_id) == content


def test_digests_are_cut_for_people() -> None:
    made_by, runs = f"source {'a' * 64}", f"source {'a' * 63}b"
    assert why_anew(made_by, "w2", runs) == (
        "its save was made by source aaaaaaaaaaaa, and worker w2 runs source aaaaaaaaaaaa"
    )
