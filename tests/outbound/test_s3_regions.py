"""The region of a bucket: read from the host, learnt from refusals, and what URLs are signed for."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stoker.agent.jobs.uploads import objects as agent_objects
from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused, WrongRegion
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.regions import host_in, is_region, named_region, region_of
from stoker.outbound.s3.styles import Found, Style, in_region
from stoker.wire.messages import Grant
from tests.servers.regional_s3 import BUCKET, REGION, RegionalS3, regional_s3

PREFIX = "e/job-1/1/"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3-eu-west-1.amazonaws.com", "eu-west-1"),
        ("S3.EU-West-1.amazonaws.com", "eu-west-1"),
        ("my.bucket.s3.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("bucket.s3-us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("s3.dualstack.us-west-2.amazonaws.com", "us-west-2"),
        ("s3-fips.dualstack.us-east-2.amazonaws.com", "us-east-2"),
        ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("point-1.s3-accesspoint.eu-central-1.amazonaws.com", "eu-central-1"),
        ("vpce-1a-2b.s3.us-east-1.vpce.amazonaws.com", "us-east-1"),
        ("s3.amazonaws.com", "us-east-1"),
        ("s3-external-1.amazonaws.com", "us-east-1"),
        ("bucket.s3-accelerate.amazonaws.com", "us-east-1"),
        ("bucket.s3-accelerate.dualstack.amazonaws.com", "us-east-1"),
        ("s3.fr-par.scw.cloud", "fr-par"),
        ("bucket.s3.nl-ams.scw.cloud", "nl-ams"),
        ("s3.gra.io.cloud.ovh.net", "gra"),
        ("s3.eu-west-par.io.cloud.ovh.net", "eu-west-par"),
        ("s3.sbg.perf.cloud.ovh.net", "sbg"),
        ("s3.us-east-va.io.cloud.ovh.us", "us-east-va"),
        ("nyc3.digitaloceanspaces.com", "nyc3"),
        ("bucket.fra1.digitaloceanspaces.com", "fra1"),
        ("s3.us-west-004.backblazeb2.com", "us-west-004"),
        ("s3.eu-central-2.wasabisys.com", "eu-central-2"),
        ("s3.wasabisys.com", "us-east-1"),
        ("0123abcd.r2.cloudflarestorage.com", "auto"),
        ("0123abcd.eu.r2.cloudflarestorage.com", "auto"),
        ("storage.googleapis.com", "auto"),
        ("fly.storage.tigris.dev", "auto"),
        ("us-southeast-1.linodeobjects.com", "us-southeast-1"),
        ("ewr1.vultrobjects.com", "ewr1"),
        ("bucket.hel1.your-objectstorage.com", "hel1"),
        ("s3.private.us-south.cloud-object-storage.appdomain.cloud", "us-south"),
        ("s3.eu-central-3.ionoscloud.com", "eu-central-3"),
        ("b.s3.eu-central-1.ionoscloud.com", "de"),
        ("s3.ru-1.storage.selcloud.ru", "ru-1"),
        ("eu-002.s3.synologyc2.net", "eu-002"),
        ("oos.eu-west-2.outscale.com", "eu-west-2"),
        ("obs.af-south-1.myhuaweicloud.com", "af-south-1"),
        ("sos-ch-gva-2.exo.io", "ch-gva-2"),
        ("storage.eu-north1.nebius.cloud", "eu-north1"),
        ("name.compat.objectstorage.eu-frankfurt-1.oraclecloud.com", "eu-frankfurt-1"),
        ("s3api-eu-ro-1.runpod.io", "EU-RO-1"),
        ("minio.example.test", "us-east-1"),
        ("s3.eu-west-1.example.test", "us-east-1"),
        ("s3.eu-west-1.amazonaws.com.example.test", "us-east-1"),
        ("[::1]", "us-east-1"),
    ],
)
def test_a_region_is_read_from_the_host(host: str, region: str) -> None:
    assert region_of(f"https://{host}") == region
    assert region_of(f"http://{host}:9000/folder/") == region


@pytest.mark.parametrize(
    ("host", "there"),
    [
        ("s3.amazonaws.com", "s3.eu-west-1.amazonaws.com"),
        ("s3.dualstack.us-west-2.amazonaws.com", "s3.dualstack.eu-west-1.amazonaws.com"),
        ("s3-us-west-2.amazonaws.com", "s3-eu-west-1.amazonaws.com"),
        ("s3.wasabisys.com", "s3.eu-west-1.wasabisys.com"),
        ("s3.fr-par.scw.cloud", "s3.eu-west-1.scw.cloud"),
        ("storage.googleapis.com", "storage.googleapis.com"),
        ("minio.example.test", "minio.example.test"),
    ],
)
def test_the_same_store_has_a_host_for_another_region(host: str, there: str) -> None:
    assert host_in(host, "eu-west-1") == there
    places = in_region(Style(f"https://{host}:99/f", virtual=True), "eu-west-1")
    assert {place.region for place in places} == {"eu-west-1"}
    assert [place.endpoint for place in places] == [
        f"https://{one}:99/f" for one in dict.fromkeys((host, there))
    ]


def refusal(error: dict[str, str] | None = None, **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"Error": error or {}, "ResponseMetadata": {"HTTPHeaders": named}}


@pytest.mark.parametrize(
    ("answer", "region"),
    [
        (refusal(x_amz_bucket_region="eu-west-1"), "eu-west-1"),
        (refusal({"Region": "SBG"}), "SBG"),
        (refusal({"Message": "the region 'us-east-1' is wrong; expecting 'eu-nl-1'"}), "eu-nl-1"),
        (refusal({"Message": "unexpected scope: 20260101/x/s3/aws4_request, expected: "
                             "20260101/garage/s3/aws4_request"}), "garage"),
        (refusal({"Message": "The ap-east-1 location constraint is incompatible for the region specific"
                             " endpoint this request was sent to."}), "ap-east-1"),
        (refusal({"Message": "The unspecified location constraint is incompatible for it."}), "us-east-1"),
        (refusal({"Endpoint": "b.s3-eu-west-1.amazonaws.com"}), "eu-west-1"),
        (refusal(location="https://s3.eu-central-1.wasabisys.com/b/k?x=1"), "eu-central-1"),
        (refusal(location="https://elsewhere.test/login"), ""),
        (refusal({"Message": 'the Credential is mal-formed; expecting "KEY/DATE/REGION/SERVICE/aws4"'}), ""),
        (refusal({"Region": "../x"}), ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_refusal_names_the_region(answer: dict[str, Any], region: str) -> None:
    assert named_region(answer) == region


texts = st.text(max_size=40) | st.sampled_from(["s3.eu-west-1.amazonaws.com", "expecting 'a-1'", "http://["])


@given(st.dictionaries(st.sampled_from(["Region", "Message", "Endpoint"]), texts), texts, texts)
def test_whatever_a_store_says_no_other_region_than_a_name_is_taken(
    error: dict[str, str], header: str, location: str
) -> None:
    named = named_region(refusal(error, x_amz_bucket_region=header, location=location))
    assert named == "" or is_region(named)


# ---- a store of one region


def config_of(serves: RegionalS3, host: str = "127.0.0.1", region: str = "") -> ObjectStoreConfig:
    return ObjectStoreConfig(serves.endpoint(host), "", region, BUCKET, "id", "secret", attempts=1)


@pytest.fixture
def hosts_of_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """All names are here."""
    real = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def read(url: str) -> httpx2.Response:
    with httpx2.Client(trust_env=False) as client:
        return client.get(url)


@pytest.mark.parametrize("names", ["region", "message", "header", "endpoint", "constraint"])
@pytest.mark.parametrize("size", [10, (8 << 20) + 1])
def test_the_region_is_learnt_and_the_url_is_signed_for_it(names: str, size: int) -> None:
    with regional_s3(names=names) as serves, ObjectStore(config_of(serves)) as store:
        if names == "endpoint":
            serves.region = "eu-west-1"
        fd = os.memfd_create("given")
        os.write(fd, b"x" * size)
        store.put_file("k", fd, "text/plain")
        os.close(fd)
        assert serves.objects == {"k": b"x" * size}
        assert [region for *_, region in serves.seen[:2]] == ["us-east-1", serves.region]
        assert {region for *_, region in serves.seen[1:]} == {serves.region}
        answer = read(store.presign_get("k"))
        assert (answer.status_code, len(answer.content)) == (200, size)


@pytest.mark.parametrize("names", ["region", "location", "endpoint"])
@pytest.mark.parametrize("endpoint", ["s3.amazonaws.com", "s3.us-west-2.amazonaws.com"])
def test_a_bucket_at_the_host_of_another_region_is_found_there(
    names: str, endpoint: str, hosts_of_loopback: None
) -> None:
    host = "s3.eu-west-1.amazonaws.com"
    with (
        regional_s3(names=names, host=host, region="eu-west-1") as serves,
        ObjectStore(config_of(serves, endpoint)) as store,
    ):
        store.put_bytes("k", b"x", "text/plain")
        url = store.presign_get("k")
        assert url.startswith(f"http://{host}:{serves.port}/{BUCKET}/k?")
        assert read(url).content == b"x"


def test_a_store_that_does_not_name_its_region_refuses_with_what_to_do() -> None:
    with regional_s3(names="") as serves:
        with ObjectStore(config_of(serves)) as store:
            with pytest.raises(WrongRegion) as caught:
                store.put_bytes("k", b"x", "text/plain")
            assert (
                "signed for the region us-east-1, if the bucket is in another one, name that as `region`"
                in str(caught.value)
            )
            assert len(serves.seen) == 1
        with ObjectStore(config_of(serves, region=REGION)) as told:
            told.put_bytes("k", b"x", "text/plain")
            assert read(told.presign_get("k")).content == b"x"


def test_it_is_learnt_once_for_all_that_write_there() -> None:
    with regional_s3() as serves:
        found: Found = {}
        for access_id in ("one", "two"):
            config = dataclasses.replace(config_of(serves), access_id=access_id)
            with ObjectStore(config, found) as store:
                store.put_bytes(access_id, b"x", "text/plain")
        assert [region for *_, region in serves.seen] == ["us-east-1", REGION, REGION]


def test_a_bucket_that_moved_is_learnt_again() -> None:
    with regional_s3() as serves, ObjectStore(config_of(serves)) as store:
        store.put_bytes("k", b"x", "text/plain")
        serves.region = "eu-nl-2"
        store.put_bytes("k", b"x", "text/plain")
        assert read(store.presign_get("k")).content == b"x"


def test_a_bucket_is_looked_for_by_head_where_it_names_its_region_in_a_header() -> None:
    with regional_s3(names="header") as serves, ObjectStore(config_of(serves)) as store:
        store.ensure_bucket()
        assert [(method, region) for method, _, region in serves.seen] == [
            ("HEAD", "us-east-1"),
            ("HEAD", REGION),
        ]


def test_what_the_right_region_answers_is_reported() -> None:
    with regional_s3() as serves:
        other = dataclasses.replace(config_of(serves), bucket="other")
        with (
            ObjectStore(other) as store,
            pytest.raises(ObjectStoreRefused, match="there is no bucket 'other'"),
        ):
            store.put_bytes("k", b"x", "text/plain")
        known = {(serves.endpoint(), BUCKET): Style(serves.endpoint(), region="us-east-1")}
        serves.answers["PUT k"] = (503, "SlowDown")
        with ObjectStore(config_of(serves), known) as store, pytest.raises(ObjectStoreDown):
            store.put_bytes("k", b"x", "text/plain")


def test_a_store_that_names_new_regions_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with regional_s3() as serves, ObjectStore(config_of(serves)) as store:
        names = iter(range(1000))
        real = RegionalS3.refuse

        def refuse(self: RegionalS3, request: Any) -> bool:
            self.region = f"nowhere-{next(names)}"
            return real(self, request)

        monkeypatch.setattr(RegionalS3, "refuse", refuse)
        with pytest.raises(WrongRegion):
            store.put_bytes("k", b"x", "text/plain")
        assert len(serves.seen) == 8


def test_a_bucket_that_is_only_read_is_found_first() -> None:
    """A mirror of weights is: its requests are signed here, and sent by something else."""
    with regional_s3() as serves, ObjectStore(config_of(serves)) as store:
        serves.objects["k"] = b"weights"
        store.find("k")
        store.find("k")
        assert len(serves.seen) == 2
        assert read(store.presign("get_object", "k", 60)).content == b"weights"


def test_the_right_of_a_key_to_write_is_tried_without_an_object() -> None:
    with regional_s3() as serves, ObjectStore(config_of(serves)) as store:
        store.try_to_write("e/trial")
        assert serves.objects == {}
        assert serves.uploads == {}
        assert [method for method, *_ in serves.seen] == ["POST", "POST", "DELETE"]
        serves.answers["DELETE e/trial"] = (403, "AccessDenied")
        store.try_to_write("e/trial")
        serves.answers["POST e/trial"] = (403, "AccessDenied")
        with pytest.raises(ObjectStoreRefused, match="check access id, secret, and rights"):
            store.try_to_write("e/trial")
        for status, code in [(405, "MethodNotAllowed"), (501, "NotImplemented")]:
            serves.answers["POST e/trial"] = (status, code)
            store.try_to_write("e/trial")


def test_a_wrong_signature_may_be_one_for_a_wrong_region() -> None:
    with regional_s3(region="us-east-1") as serves, ObjectStore(config_of(serves)) as store:
        serves.answers["PUT k"] = (403, "SignatureDoesNotMatch")
        with pytest.raises(ObjectStoreRefused, match="and that us-east-1 is its region"):
            store.put_bytes("k", b"x", "text/plain")


# ---- the agent's trial of a caller's bucket


@pytest.fixture
async def objects() -> AsyncIterator[S3Objects]:
    opened = S3Objects(SigningRequests())
    yield opened
    await opened.close()


def grant_of(serves: RegionalS3, region: str = "") -> Grant:
    endpoint = serves.endpoint()
    return Grant(endpoint, endpoint, region, BUCKET, PREFIX, "id", "secret", account="callers")


async def test_a_bucket_is_tried_once_and_its_files_go_to_the_region_that_was_learnt(
    objects: S3Objects, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"file")
    with regional_s3() as serves:
        for attempt in range(3):
            another = structs.replace(grant_of(serves), prefix=f"e/job-{attempt}/1/")
            await objects.try_bucket(another)
        assert len(serves.seen) == 3  # refused, tried, dropped
        with (tmp_path / "a").open() as file:
            await objects.put_file(grant_of(serves), f"{PREFIX}0-a", file.fileno(), "text/plain", "a")
        (url,) = await objects.urls(grant_of(serves), [f"{PREFIX}0-a"])
        assert {region for *_, region in serves.seen[1:]} == {REGION}
        assert (await asyncio.to_thread(read, url)).content == b"file"
        await objects.close()


async def test_a_bucket_that_refuses_is_tried_again_for_the_next_job(objects: S3Objects) -> None:
    with regional_s3(names="") as serves:
        for _ in range(2):
            with pytest.raises(ObjectStoreRefused, match="name that as `region`"):
                await objects.try_bucket(grant_of(serves))
        assert len(serves.seen) == 2
        await objects.try_bucket(grant_of(serves, REGION))
        await objects.close()


async def test_a_store_that_is_down_is_no_refusal_and_is_not_tried_for_each_job(objects: S3Objects) -> None:
    with regional_s3(region="us-east-1") as serves:
        serves.answers[f"POST {PREFIX}trial"] = (503, "SlowDown")
        await objects.try_bucket(grant_of(serves))
        tried = len(serves.seen)
        assert tried
        await objects.try_bucket(grant_of(serves))
        assert len(serves.seen) == tried
        await objects.close()


async def test_a_store_that_says_nothing_delays_a_job_for_a_short_time_only(
    objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_objects, "TRIAL_S", 0.05)
    with regional_s3() as serves:
        serves.gate = threading.Event()
        await objects.try_bucket(grant_of(serves))
        await objects.try_bucket(grant_of(serves))
        serves.gate.set()
        await objects.close()
        assert len(serves.seen) <= 3  # one trial, whenever it came through
