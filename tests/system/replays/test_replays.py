"""Failed jobs, from their case on a platform to their replay here, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from tests.system.replays.replaying import FAULTS, replay, serving, written
from tests.system.stack import Stack, queue_endpoint, running

KEEPS = "allow_private_addresses = true\n" + queue_endpoint(
    "faults", "failing/seeded_faults.py", keepCases=True, maxAttempts=1
)
HERE = ("--handler", f"{FAULTS}:handler", "--cpu")


def failed(stack: Stack, **job_input: object) -> str:
    job = stack.run("faults", dict(job_input))
    assert stack.end_of("faults", job)["status"] == "FAILED"
    return job


def case(stack: Stack, job: str, key: str = "", endpoint: str = "faults") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return stack.http.get(f"/{endpoint}/case/{job}", headers=headers)


def new_key(stack: Stack, **access: object) -> str:
    body = {"name": "k", "access": {"scope": "restricted", "endpoints": {"faults": "read"}, **access}}
    answer = stack.http.post(f"{stack.facts['http']}/v1/keys", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["key"])


def test_a_job_goes_on_from_its_last_save_or_begins_anew(tmp_path: Path) -> None:
    with running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="after_a_save")
        status, found, said = replay(
            stack, job, "--cpu"
        )  # the handler is in stoker.toml, and the id is enough
        assert (status, found["same"], found["ended"]) == (0, True, "raised"), said
        assert found["reason"].startswith("builtins.KeyError at seeded_faults.py in after_a_save, line ")
        assert "from the last save" in said
        assert 'progress {"part": 3, "from": 3}' in said
        assert found["differences"] == []

        status, found, said = replay(stack, job, *HERE, "--endpoint", "faults", "--from-start")
        assert (status, found["same"]) == (0, True), said
        assert 'progress {"part": 0, "from": 0}' in said

        status, found, said = replay(
            stack, job, *HERE, "--endpoint", "faults", "--from-start", "--until", "2"
        )
        assert (status, found["ended"], found["error"]) == (0, "stopped", "after report 2"), said
        assert 'progress {"part": 2, "from": 0}' not in said


@pytest.mark.slow
def test_a_mended_handler_says_so_and_its_outputs_are_compared(tmp_path: Path) -> None:
    """The handler here is a copy, of which a line is mended."""
    text = FAULTS.read_text().replace('return 1 / job.input["guidance"]', "return {'steps': [1, 2, 3]}")
    mended = written(tmp_path, "seeded_faults.py", text.encode())
    options = ("--endpoint", "faults", "--handler", f"{mended}:handler", "--cpu")
    with running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="division", guidance=0)
        status, found, said = replay(stack, job, *options, "--out", "one")
        assert (status, found["same"], found["ended"]) == (1, False, "returned"), said
        assert found["differences"][0].startswith("source seeded_faults.py: ")
        assert json.loads((tmp_path / "one" / "output.json").read_text()) == {"steps": [1, 2, 3]}
        status, found, _ = replay(stack, job, *options, "--out", "two", "--compare", "one")
        assert (status, found["same"]) == (0, True), found
        (tmp_path / "one" / "output.json").write_text('{"steps": [1, 9, 3]}')
        status, found, _ = replay(stack, job, *options, "--out", "two", "--compare", "one")
        assert (status, found["reason"]) == (1, "output.steps[1] is 9 in one and 2 in two")


@pytest.mark.slow
def test_a_fetched_file_is_had_by_its_sha256_or_from_where_it_came(tmp_path: Path) -> None:
    files = {"/broken.json": b"{"}
    kept = written(tmp_path, "kept", b"{")
    with serving(files) as web, running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="broken_file", url=f"{web}/broken.json?signature=s3cr3t")
        told = case(stack, job).json()
        assert told["input"]["url"] == f"{web}/broken.json"
        assert [one["url"] for one in told["files"]] == [f"{web}/broken.json"]
        assert "s3cr3t" not in json.dumps(told)
        options = (*HERE, "--endpoint", "faults")
        for had in (["--fetch"], ["--file", str(kept)]):
            status, found, said = replay(stack, job, *options, *had)
            assert (status, found["same"], found["missingFiles"]) == (0, True, {}), said
        files["/broken.json"] = b"["
        status, found, _ = replay(stack, job, *options, "--fetch")
        assert (status, found["same"]) == (1, False)
        assert "it has changed" in found["missingFiles"][f"{web}/broken.json"]


def test_a_case_is_read_with_its_right_and_where_one_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="missing_key")
        told = case(stack, job)
        assert told.status_code == 200
        record = told.json()
        assert record["raised"]["type"] == "builtins.KeyError"
        assert record["source"].keys() == {"seeded_faults.py"}
        assert "PATH" in record["environment"]
        assert record["devices"]
        assert case(stack, job, new_key(stack)).status_code == 403
        assert case(stack, job, new_key(stack, cases=True)).status_code == 200

        unknown = case(stack, "no-such-job")
        assert (unknown.status_code, "no job" in unknown.text) == (404, True)
        stack.http.post(f"/faults/retry/{job}")
        assert stack.end_of("faults", job)["status"] == "FAILED"
        assert case(stack, job).json()["attempt"] == record["attempt"] + 1


@pytest.mark.slow
def test_an_endpoint_keeps_none_by_default(tmp_path: Path) -> None:
    with running(tmp_path, KEEPS.replace("keepCases = true\n", "")) as stack:
        job = failed(stack, fault="missing_key")
        answer = case(stack, job)
        assert answer.status_code == 404
        assert "keeps no cases: set its keepCases to true" in answer.json()["error"]
        status, found, said = replay(stack, job, *HERE)
        assert (status, found) == (1, {})
        assert "keeps no cases" in said
