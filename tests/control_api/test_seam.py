"""The plane in memory and the real one answer the same seam: each function with the same parameters."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest
from fake_plane import FakeBook, FakePlane

from stoker.control.api.seam import EndpointBook, PlaneApi
from stoker.control.endpoints import Endpoints
from stoker.control.plane import Plane


def asked(protocol: type) -> dict[str, Any]:
    return {
        name: value for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"
    }


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def kind(function: Any) -> str:
    """A protocol says `follow` with `def`: it is called and not awaited, as a function that yields."""
    return "awaited" if inspect.iscoroutinefunction(function) else "called"


@pytest.mark.parametrize(
    ("protocol", "answers"),
    [(PlaneApi, Plane), (PlaneApi, FakePlane), (EndpointBook, Endpoints), (EndpointBook, FakeBook)],
)
def test_it_answers_the_seam(protocol: type, answers: type) -> None:
    assert asked(protocol)
    for name, function in asked(protocol).items():
        answer = getattr(answers, name)
        assert parameters(answer) == parameters(function), name
        assert kind(answer) == kind(function), name


@pytest.mark.parametrize("answers", [Plane, FakePlane])
def test_it_says_what_the_seam_says(answers: type) -> None:
    for name, function in asked(PlaneApi).items():
        theirs, ours = get_type_hints(getattr(answers, name)), get_type_hints(function)
        if name not in {"follow", "follow_logs"}:  # an iterator there may be a generator here
            assert theirs == ours, name
