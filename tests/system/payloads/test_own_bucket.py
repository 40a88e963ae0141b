"""A job that brings its own bucket (`s3Config`): its files go there, if allowed; its secret goes nowhere.

The bucket lies in the stack's own object store: it is the one S3 that is here.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore
from tests.servers.regional_s3 import BUCKET, regional_s3
from tests.system.stack import START_S, Stack, fetched, files_below, queue_endpoint, running, until

FILE = queue_endpoint("file", "files/file_ok.py")
USES = queue_endpoint("uses", "access/uses_its_bucket.py")
PRIVATE_ALLOWED = "allow_private_addresses = true\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack"), PRIVATE_ALLOWED, FILE, USES) as made:
        yield made


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


def test_files_land_in_the_callers_bucket(stack: Stack) -> None:
    bucket = own_bucket(stack)
    record = run(stack, bucket, "for the caller")
    assert record["status"] == "COMPLETED", record
    objects = stack.folder / "data" / "objects"
    [found] = [name for name in names_below(objects / "callers") if record["id"] in name]
    assert found == f"results/today/file/{record['id']}/1/0-hello.txt"
    url = record["output"]["greeting"]
    assert f"/callers/{found}?" in url
    assert fetched(url).content == b"for the caller"
    assert not [path for path in names_below(objects / "stoker") if record["id"] in path]
    secret_is_nowhere(stack, bucket["accessSecret"])


def test_a_callers_bucket_on_a_private_address_is_refused_at_once(tmp_path: Path) -> None:
    with running(tmp_path, FILE) as stack:
        bucket = own_bucket(stack)
        body = {"input": {"text": "for nobody"}, "s3Config": bucket}
        refused = stack.http.post("/file/run", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"].startswith("s3Config.endpointUrl: http://127.0.0.1:")
        assert bucket["accessSecret"] not in refused.text
        own = stack.runsync("file", {"text": "as ever"})
        assert own["status"] == "COMPLETED", "the platform's own store may be here"
        secret_is_nowhere(stack, bucket["accessSecret"])


def test_a_handler_that_uploads_by_itself_gets_the_bucket_and_may_print_it(stack: Stack) -> None:
    bucket = own_bucket(stack)
    secret = bucket["accessSecret"]
    done = stack.runsync("uses", {}, s3Config=bucket)
    assert done["output"] == {"bucket": "callers", "path": "results/today", "known": len(secret)}
    failed = stack.runsync("uses", {"raise": True}, s3Config=bucket)
    assert failed["status"] == "FAILED"
    assert "refused {'accessId'" in failed["error"]
    assert any("with {'accessId'" in line for line in failed["logs"])
    assert secret not in json.dumps(failed)
    secret_is_nowhere(stack, secret)


def test_a_bucket_that_cannot_be_reached_is_the_jobs_reason_while_it_is_tried(stack: Stack) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and it does not listen
        bucket = own_bucket(stack) | {"endpointUrl": f"http://127.0.0.1:{nobody.getsockname()[1]}"}
        job = stack.run("file", {"text": "for the caller"}, s3Config=bucket)

        def record() -> dict[str, Any]:
            return dict(stack.http.get(f"/file/status/{job}").json())

        def is_retried() -> bool:
            """Before it runs, its reason is why it waits for a worker."""
            seen = record()
            reason = seen.get("reason", "")
            return (
                seen["status"] == "IN_PROGRESS"
                and reason.startswith("the result could not be uploaded: writing results/today/file/")
                and "the object store cannot be reached" in reason
            )

        until(is_retried, START_S, "a job in progress whose reason is its bucket", record)
        assert stack.http.post(f"/file/cancel/{job}").json()["status"] == "CANCELLED"
        secret_is_nowhere(stack, bucket["accessSecret"])


def test_a_callers_bucket_that_refuses_its_key_fails_the_job_with_a_message(stack: Stack) -> None:
    bucket = own_bucket(stack) | {"accessSecret": "not-the-secret-at-all"}
    record = run(stack, bucket, "for the caller")
    assert record["status"] == "FAILED", record
    assert "check access id, secret, and rights on 'callers'" in record["error"]
    secret_is_nowhere(stack, bucket["accessSecret"])


def test_the_region_is_learnt_from_the_store_and_the_url_works(stack: Stack) -> None:
    with regional_s3() as serves:
        bucket = own_bucket(stack) | {"endpointUrl": serves.endpoint(), "bucketName": BUCKET}
        record = run(stack, bucket, "for the caller")
        assert record["status"] == "COMPLETED", record
        assert fetched(record["output"]["greeting"]).content == b"for the caller"


def test_a_store_that_does_not_name_its_region_fails_the_job_before_the_work(stack: Stack) -> None:
    with regional_s3(names="") as serves:
        bucket = own_bucket(stack) | {"endpointUrl": serves.endpoint(), "bucketName": BUCKET}
        record = run(stack, bucket, "for the caller")
        assert record["status"] == "FAILED", record
        assert record["error"].startswith("the bucket of s3Config cannot be used: trying to write ")
        assert "name that as `region`" in record["error"]
        assert record["executionTime"] == 0
        told = run(stack, bucket | {"region": serves.region}, "for the caller")
        assert fetched(told["output"]["greeting"]).content == b"for the caller"
        used = stack.runsync("uses", {}, s3Config=bucket | {"region": serves.region})
        assert used["output"]["bucket"] == BUCKET
