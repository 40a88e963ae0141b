"""Records: made cheaply, never altered, compared by their fields, and silent about what they hide."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.pretty import pretty_repr

from stoker.control.http.calls.answers import Answer
from stoker.wire.messages import Assign, AttemptKey, RegistryAuth
from stoker.wire.records import Hiding

ROOT = Path(__file__).parents[2]
RESPONSES = {"Answer", "AnswerInTurn", "EventAnswer", "ToWorkers"}
DATACLASSES = {"Alarm", "RateLimit", "Standing"} | RESPONSES
"""Responses of FastAPI; what is compared by some of its fields, or given some of them later; and a constant
that commands read, which install without msgspec."""


def test_records_of_the_daemons_are_structs() -> None:
    found = set()
    for package in ("agent", "control", "wire"):
        for path in (ROOT / package).rglob("*.py"):
            found |= set(re.findall(r"^@(?:dataclasses\.)?dataclass.*\nclass (\w+)", path.read_text(), re.M))
    assert found == DATACLASSES


def test_a_response_of_each_call_is_made_without_the_cost_of_freezing() -> None:
    assert "__setattr__" not in Answer.__init__.__code__.co_names


def test_it_is_compared_hashed_and_copied_by_its_fields() -> None:
    key = AttemptKey("j", 1)
    assert {key: 1}[AttemptKey("j", 1)] == 1
    assert key != AttemptKey("j", 2) == replace(key, attempt=2)
    assert copy.copy(key) == pickle.loads(pickle.dumps(key)) == key
    for name in ("attempt", "other"):
        with pytest.raises(AttributeError):
            setattr(key, name, 1)


def test_what_is_hidden_is_not_in_its_repr() -> None:
    login = RegistryAuth("me", "a password")
    assert repr(login) == "RegistryAuth(username='me')"
    assert login == RegistryAuth("me", "a password") != RegistryAuth("me", "another")
    assert "password" not in repr(replace(login, username="you"))
    assert "password" not in pretty_repr(login), "rich has a way of its own"


def hiding() -> list[type[Hiding]]:
    """Every record that hides a field."""
    for package in ("agent", "control", "wire"):
        for path in (ROOT / package).rglob("*.py"):
            if "(Hiding, " in path.read_text():
                importlib.import_module(".".join(("stoker", *path.relative_to(ROOT).with_suffix("").parts)))
    return Hiding.__subclasses__()


def test_there_are_some_in_each_package() -> None:
    assert {kind.__module__.split(".")[1] for kind in hiding()} == {"agent", "control", "wire"}


@pytest.mark.parametrize("kind", hiding(), ids=lambda kind: kind.__name__)
def test_each_hidden_name_is_a_field(kind: type[Hiding]) -> None:
    assert kind.HIDDEN
    assert set(kind.HIDDEN) <= set(kind.__struct_fields__)


def test_another_record_shows_all_its_fields() -> None:
    assert not issubclass(Assign, Hiding)
    assert repr(AttemptKey("j", 1)) == "AttemptKey(job='j', attempt=1)"
