"""Bugs planted on purpose: the story must find each of them, or it proves nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_story import story
from virtual_loop import VirtualLoop, run
from world import World

from stoker.control import store
from stoker.control.floor import Floor
from stoker.control.types import Reconciled

Plant = Callable[[pytest.MonkeyPatch], None]


def a_broken_node_keeps_its_jobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "requeue_node", lambda *_: ())
    patch.setattr(store, "lost_nodes", lambda *_: ())


def what_a_hello_lacks_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def keep_all(_: object, *, held: Any, **__: object) -> Reconciled:
        return Reconciled(keep=tuple(held))

    patch.setattr(store, "reconcile", keep_all)


def a_slot_is_never_free_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Floor, "release", lambda *_: None)


def an_outcome_is_acknowledged_and_dropped(patch: pytest.MonkeyPatch) -> None:
    real = store.apply_reports

    def forgetful(conn: Any, *, node: str, session: int, reports: Any, now: float) -> Any:
        return real(conn, node=node, session=session, reports=reports[1:], now=now)

    patch.setattr(store, "apply_reports", forgetful)


PLANTS: list[Plant] = [
    a_broken_node_keeps_its_jobs,
    what_a_hello_lacks_is_forgotten,
    a_slot_is_never_free_again,
    an_outcome_is_acknowledged_and_dropped,
]


def survives(seed: int) -> bool:
    loop = VirtualLoop(seed, limit=300_000)
    world = World(seed, loop)
    try:
        run(loop, story(world, Random(seed)))
    except BaseException:
        return False
    finally:
        world.store.close()
    return True


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    logging.disable(logging.CRITICAL)
    try:
        assert not all(survives(seed) for seed in range(40))
    finally:
        logging.disable(logging.NOTSET)
