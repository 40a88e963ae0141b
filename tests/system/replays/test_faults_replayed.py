"""A count of faults that come again: each seeded in a handler, run on a real platform, and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.replays.replaying import FAULTS, replay, serving, written
from tests.system.stack import Stack, queue_endpoint, running

ENDPOINT = (
    "allow_private_addresses = true\n"
    + queue_endpoint(
        "faults", "failing/seeded_faults.py", keepCases=True, executionTimeoutMs=5_000, maxAttempts=1
    )
    + '[endpoints.env]\nFAULTS_MODE = "fast"\n'
)
BROKEN, OTHER = b'{"prompt": ', b'{"prompt": "a lighthouse"}'

COME_AGAIN: dict[str, dict[str, Any]] = {
    "missing_key": {},
    "wrong_type": {"steps": "8"},
    "not_a_number": {"weights": [1.0, -1.0]},
    "shapes": {},
    "division": {"guidance": 0},
    "index": {"frames": [1, 2], "at": 2},
    "refused_by_handler": {"prompt": "lighthouse"},
    "broken_file": {"url": "/broken.json?signature=s3cr3t"},
    "wrong_file_type": {"url": "/broken.json?signature=s3cr3t"},
    "memory": {},
    "too_slow": {},
    "variable_missing": {},
    "seed_of_the_input": {"seed": 4},
    "seed_that_is_reported": {},
    "killed": {},
    "recursion": {},
    "module_missing": {},
    "scratch_of_its_own": {},
    "after_a_save": {},
}
DO_NOT: dict[str, dict[str, Any]] = {
    "file_that_changed": {"url": "/changing.json"},
    "order": {},
    "variable_of_the_endpoint": {},
    "no_seed": {},
    "clock": {},
    "race": {},
}


@pytest.mark.slow
def test_nineteen_of_twenty_five_faults_come_again_in_a_replay(tmp_path: Path) -> None:
    files = {"/broken.json": BROKEN, "/changing.json": BROKEN}
    kept = written(tmp_path, "kept.json", BROKEN)
    with serving(files) as web, running(tmp_path, ENDPOINT) as stack:
        jobs = {name: _failed(stack, name, web, fields) for name, fields in (COME_AGAIN | DO_NOT).items()}
        files["/changing.json"] = OTHER
        found = {}
        for name, job in jobs.items():
            own = ["--fetch"] if name == "file_that_changed" else ["--file", str(kept)]
            status, verdict, said = replay(
                stack, job, "--endpoint", "faults", "--handler", f"{FAULTS}:handler", "--cpu", *own
            )
            assert verdict, said
            assert status == (not verdict["same"])
            found[name] = verdict
    same = {name for name, verdict in found.items() if verdict["same"]}
    print(f"\n{len(same)} of {len(found)} faults came again")
    for name in sorted(found.keys() - same):
        print(f"  not {name}: {found[name]['reason']}; {found[name]['differences']}")
    assert same == COME_AGAIN.keys()
    assert found["variable_of_the_endpoint"]["differences"] == [
        "variable FAULTS_MODE: set there, not set here"
    ]
    assert "it has changed" in next(iter(found["file_that_changed"]["missingFiles"].values()))


def _failed(stack: Stack, name: str, web: str, fields: dict[str, Any]) -> str:
    if "url" in fields:
        fields = {**fields, "url": web + fields["url"]}
    job = stack.run("faults", {"fault": name, **fields})
    record = stack.end_of("faults", job)
    assert record["status"] in ("FAILED", "TIMED_OUT"), (name, record)
    return job
