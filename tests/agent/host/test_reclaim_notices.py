"""What each cloud's answers mean: a notice, none, or nothing that can be read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.reclaim_notices import CLOUDS, SHORTEST_S, Notice, NoticeUnreadable

NOW = 1_600_000_000.0
AT = 1_600_000_090.0  # 2020-09-13 12:28:10 UTC


def event(**changes: Any) -> dict[str, Any]:
    fields = {"EventId": "x", "EventType": "Preempt", "Resources": ["gpu-1"]}
    return {**fields, "NotBefore": "Sun, 13 Sep 2020 12:28:10 GMT", **changes}


def azure(*events: dict[str, Any]) -> bytes:
    return json.dumps({"DocumentIncarnation": 1, "Events": events}).encode()


@pytest.mark.parametrize(
    ("cloud", "status", "body", "leave_at"),
    [
        ("aws", 404, b"", None),
        ("aws", 200, b'{"action": "terminate", "time": "2020-09-13T12:28:10Z"}', AT),
        ("aws", 200, b'{"action": "stop", "time": "2020-09-13T12:28:10Z"}', AT),
        ("gcp", 200, b"FALSE", None),
        ("gcp", 200, b"TRUE", NOW + SHORTEST_S),
        ("azure", 200, azure(), None),
        ("azure", 200, azure(event()), AT),
        ("azure", 200, azure(event(Resources=["other", "GPU-1"])), AT),
        ("azure", 200, azure(event(Resources=["other"])), None),
        ("azure", 200, azure(event(EventType="Freeze")), None),
        ("azure", 200, azure(event(NotBefore="")), NOW),
        ("azure", 200, azure(event(NotBefore="Sun, 13 Sep 2020 13:00:00 GMT"), event()), AT),
    ],
)
def test_an_answer_is_read(cloud: str, status: int, body: bytes, leave_at: float | None) -> None:
    found = CLOUDS[cloud].read(status, body, "gpu-1", NOW)
    assert found == (None if leave_at is None else Notice(cloud, leave_at))


@given(st.sampled_from(sorted(CLOUDS)), st.sampled_from([200, 301, 401, 403, 500]), st.binary() | st.text())
def test_no_other_answer_is_a_notice(cloud: str, status: int, body: bytes | str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps({"Events": [{"EventType": body}]}).encode()
    with suppress(NoticeUnreadable):
        found = CLOUDS[cloud].read(status, raw, "gpu-1", NOW)
        assert found is None or raw.strip().upper() == b"TRUE"


def test_what_is_left_is_never_negative_and_the_reason_names_the_time() -> None:
    notice = Notice("aws", AT)
    assert (notice.left_s(NOW), notice.left_s(AT + 5)) == (90.0, 0.0)
    assert notice.why("gpu-1") == "aws takes the host of node gpu-1 back at 12:28:10 UTC"
