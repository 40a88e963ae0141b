"""A job that brings its own bucket (`s3Config`): its files go there, if allowed; its secret goes nowhere.

The bucket lies in the stack's own object store: it is the one S3 that is here.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from stack import Stack, fetched, files_below, queue_endpoint, running

from stoker.outbound.objects import ObjectStore, ObjectStoreConfig

FILE = queue_endpoint("file", "file_ok.py")
PRIVATE_ALLOWED = "allow_private_addresses = true\n"


def own_bucket(stack: Stack) -> dict[str, str]:
    """What a caller would send, with credentials of the object store that runs here."""
    kept = json.loads((stack.folder / "data" / "object-store.json").read_text())
    endpoint, access_id, secret = f"http://127.0.0.1:{kept['port']}", kept["access_id"], kept["access_secret"]
    with ObjectStore(ObjectStoreConfig(endpoint, "", "us-east-1", "callers", access_id, secret)) as store:
        store.ensure_bucket()
    return {
        "accessId": access_id,
        "accessSecret": secret,
        "bucketName": "callers",
        "endpointUrl": endpoint,
        "objectPath": "/results/today/",
    }


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in files_below(folder))


def secret_is_nowhere(stack: Stack, secret: str) -> None:
    """Neither printed nor stored in the clear, by control or by the agent."""
    kept = stack.folder / "data" / "object-store.json"
    held = [path for path in files_below(stack.folder) if path != kept]
    assert {"control.log", "agent.log", "stoker.db", "stoker.db-wal"} <= {path.name for path in held}
    for path in held:
        with contextlib.suppress(FileNotFoundError):  # it was only for a moment
            assert secret.encode() not in path.read_bytes(), path


def run(stack: Stack, bucket: dict[str, str], text: str) -> dict[str, Any]:
    return stack.runsync("file", {"text": text}, s3Config=bucket)


def test_files_land_in_the_callers_bucket(tmp_path: Path) -> None:
    with running(tmp_path, PRIVATE_ALLOWED, FILE) as stack:
        bucket = own_bucket(stack)
        record = run(stack, bucket, "for the caller")
        assert record["status"] == "COMPLETED", record
        objects = tmp_path / "data" / "objects"
        [found] = names_below(objects / "callers")
        assert found == f"results/today/file/{record['id']}/1/0-hello.txt"
        url = record["output"]["greeting"]
        assert f"/callers/{found}?" in url
        assert fetched(url).content == b"for the caller"
        assert not [path for path in names_below(objects / "stoker") if record["id"] in path]
        secret_is_nowhere(stack, bucket["accessSecret"])


def test_a_callers_bucket_on_a_private_address_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, FILE) as stack:
        bucket = own_bucket(stack)
        record = run(stack, bucket, "for nobody")
        assert record["status"] == "FAILED", record
        assert "loopback address 127.0.0.1" in record["error"]
        assert bucket["accessSecret"] not in record["error"]
        assert names_below(tmp_path / "data" / "objects" / "callers") == []
        own = stack.runsync("file", {"text": "as ever"})
        assert own["status"] == "COMPLETED", "the platform's own store may be here"
        secret_is_nowhere(stack, bucket["accessSecret"])


def test_a_callers_bucket_that_refuses_its_key_fails_the_job_with_a_sentence(tmp_path: Path) -> None:
    with running(tmp_path, PRIVATE_ALLOWED, FILE) as stack:
        bucket = own_bucket(stack) | {"accessSecret": "not-the-secret-at-all"}
        record = run(stack, bucket, "for the caller")
        assert record["status"] == "FAILED", record
        assert "check access id, secret, and rights on 'callers'" in record["error"]
        secret_is_nowhere(stack, bucket["accessSecret"])
