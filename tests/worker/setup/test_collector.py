"""Garbage is collected seldom while a worker starts, and as ever afterwards."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.worker.setup.collector import NEW_OBJECTS, seldom_collected


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_a_failed_start_puts_it_back() -> None:
    before = gc.get_threshold()
    with pytest.raises(ImportError), seldom_collected():
        raise ImportError(gc.get_threshold())
    assert gc.get_threshold() == before


def test_what_a_handler_chooses_stays() -> None:
    with seldom_collected():
        gc.set_threshold(5_000, 5, 5)
        gc.disable()
    assert (gc.get_threshold(), gc.isenabled()) == ((5_000, 5, 5), False)


@pytest.mark.parametrize("name", ["Handler", "Asynchronous"])
def test_it_is_so_from_the_import_to_the_first_job(start_worker: Any, name: str) -> None:
    agent = start_worker(f"starting/collector.py:{name}")
    agent.setup()
    agent.run()
    imported, set_up, in_job = (one[0] for one in json.loads(agent.next().body))
    assert (imported, set_up, in_job) == (NEW_OBJECTS, NEW_OBJECTS, gc.get_threshold()[0])
