"""Clients without the endpoints of AWS: they sign as botocore's clients with all of its models do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import botocore.session
import pytest
from botocore.config import Config

from stoker.outbound.s3.client import open_client

ENDPOINTS = (
    "http://127.0.0.1:9000",
    "http://[::1]:9000/folder",
    "https://s3.amazonaws.com",
    "https://s3.eu-west-1.amazonaws.com",
    "https://account.r2.cloudflarestorage.com",
    "https://s3.fr-par.scw.cloud",
)
REGIONS = ("us-east-1", "eu-west-1", "auto", "aws-global", "EU-RO-1")
KEYS = ("plain", "a folder/ü %2F+~.png", "//two", "🙂/#?&=")
OPERATIONS: dict[str, dict[str, Any]] = {
    "get_object": {},
    "put_object": {"ContentLength": 3, "ContentType": "image/png", "Metadata": {"sha256": "ab"}},
    "delete_object": {},
    "create_multipart_upload": {"ContentDisposition": "inline; filename*=UTF-8''a"},
    "upload_part": {"UploadId": "u/1+", "PartNumber": 2, "ContentLength": 5},
    "complete_multipart_upload": {"UploadId": "u/1+"},
    "abort_multipart_upload": {"UploadId": "u/1+"},
}


def whole_client(endpoint: str, region: str, *, virtual: bool) -> Any:
    """A client as botocore makes it by itself."""
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="id",
        aws_secret_access_key="secret",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "virtual" if virtual else "path"},
            request_checksum_calculation="when_required",
        ),
    )


def urls(client: Any, bucket: str) -> list[str]:
    return [
        client.generate_presigned_url(operation, {"Bucket": bucket, "Key": key, **more}, 60)
        for operation, more in OPERATIONS.items()
        for key in KEYS
    ]


@pytest.mark.parametrize("virtual", [False, True])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_url_is_signed_as_by_the_whole_client(
    endpoint: str, virtual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: now)
    for region in REGIONS if endpoint == ENDPOINTS[2] else REGIONS[:1]:
        ours = open_client(
            endpoint,
            virtual=virtual,
            region=region,
            credentials=("id", "secret", ""),
            attempts=1,
            timeouts=(1.0, 1.0),
        )
        assert urls(ours, "my-bucket") == urls(whole_client(endpoint, region, virtual=virtual), "my-bucket")
        ours.close()


def test_its_model_has_the_shapes_of_the_whole_one_without_their_documentation() -> None:
    ours = open_client(
        ENDPOINTS[0],
        virtual=False,
        region="us-east-1",
        credentials=("id", "secret", ""),
        attempts=1,
        timeouts=(1.0, 1.0),
    )
    kept, whole = (
        client.meta.service_model for client in (ours, whole_client(ENDPOINTS[0], "us-east-1", virtual=False))
    )
    assert kept.operation_names == whole.operation_names
    for name in kept.operation_names:
        here, there = kept.operation_model(name), whole.operation_model(name)
        assert here.input_shape.members.keys() == there.input_shape.members.keys()
        assert (here.documentation, there.documentation != "") == ("", True)
    ours.close()
