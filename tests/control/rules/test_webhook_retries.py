"""When a webhook is tried again, and when no more."""

from __future__ import annotations

import pytest

from stoker.control.rules.retries import is_delivered, webhook_again_at


@pytest.mark.parametrize(("failed", "at"), [(1, 110.0), (2, 110.0), (3, None), (4, None)])
def test_a_webhook_is_tried_three_times_ten_seconds_apart(failed: int, at: float | None) -> None:
    assert webhook_again_at(failed, 100.0) == at


@pytest.mark.parametrize("status", [199, 201, 204, 301, 404, 500])
def test_only_200_means_that_the_receiver_has_it(status: int) -> None:
    assert is_delivered(200)
    assert not is_delivered(status)
