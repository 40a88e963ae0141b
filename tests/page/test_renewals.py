"""The task that renews the page's sessions: it lasts as long as the page does, and its fault is told."""

from __future__ import annotations

import asyncio
import logging
from unittest.mock import Mock

import pytest

from stoker.page.access import token_renewal
from stoker.page.access.token_renewal import Renewals


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    monkeypatch.setattr(token_renewal, "LOOK_S", 0)
    return Renewals(Mock(), Mock(), Mock(), lambda: 0.0)


async def test_a_fault_that_ends_the_renewals_is_logged_when_it_happens(
    looks: Renewals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = asyncio.Event()

    async def look() -> None:
        looked.set()
        raise ValueError("a clock that fails")

    monkeypatch.setattr(looks, "look", look)
    async with looks.running():
        await looked.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        [told] = caplog.records
    assert "renews no session any more" in told.message
    assert told.exc_info is not None
    assert "a clock that fails" in str(told.exc_info[1])


async def test_renewals_end_with_the_page_and_say_nothing(
    looks: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, token_renewal.log.name)
    before = asyncio.all_tasks()
    async with looks.running():
        assert len(asyncio.all_tasks() - before) == 1
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert caplog.records == []
