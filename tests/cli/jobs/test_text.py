"""The lines that follow a job are for people: a preview does not flood the terminal."""

from __future__ import annotations

import base64

from stoker.cli.jobs.text import LONGEST_TEXT, details, happened, shortened, wire_record
from stoker.client import Event, JobRecord


def test_a_long_text_is_cut_wherever_it_stands() -> None:
    data = base64.b64encode(bytes(9000)).decode()
    line = happened(Event("chunk", "1-0", {"output": {"preview": {"step": 1, "data": [data]}, "word": "to"}}))
    assert len(line) < 200
    assert line.startswith("chunk ")
    assert "(12000 characters)" in line
    assert '"word": "to"' in line


def test_what_is_short_stays() -> None:
    value = {"a": ["x" * LONGEST_TEXT, 1, None, True, {"b": 0.5}]}
    assert shortened(value) == value


def test_a_waiting_job_shows_its_place_and_when_it_is_expected_to_start() -> None:
    sent = {"id": "j", "status": "IN_QUEUE", "position": 3, "expectedStartAt": 1_764_292_471_207}
    job = JobRecord.read(sent)
    assert wire_record(job) == sent
    assert details(job)[2:] == [("position", "3"), ("starts", "at about 2025-11-28 01:14:31 UTC")]
    unknown = JobRecord.read({"id": "j", "status": "IN_QUEUE"})
    assert [name for name, _ in details(unknown)] == ["id", "status"]


def test_a_replay_shows_whose_it_is_and_where_it_ran() -> None:
    sent = {"id": "j", "status": "COMPLETED", "replayOf": "failed-1", "replayedOn": "n1"}
    job = JobRecord.read(sent)
    assert wire_record(job) == sent
    assert details(job)[2:] == [("replay of", "failed-1"), ("replayed on", "n1")]
