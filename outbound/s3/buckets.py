"""Records of a bucket: its address with the credentials, and what is stored there. Standard library only:
many processes need these records and open no bucket, and botocore takes 0.1 s and 7 MB."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from stoker.outbound.errors import ObjectStoreRefused


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """A bucket and the credentials for it. `public_endpoint` is the address for callers; empty means
    `endpoint_url`. An empty `region` is read from the endpoint.

    `part_size_bytes` is the size of the parts of a multipart upload: at least 5 MiB, since S3 allows no less.
    `folder` is the store's own folder if it is on this machine (the embedded store): its free space is
    checked before each write, because that store cannot report a full disk. `allow_private` is False for a
    bucket that a caller names: connections to private addresses are refused.
    """

    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    access_id: str
    access_secret: str = field(repr=False)
    session_token: str = field(repr=False, default="")
    folder: str = ""
    reserve_bytes: int = 256 << 20
    part_size_bytes: int = 8 << 20
    attempts: int = 2
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    allow_private: bool = True


@dataclass(frozen=True, slots=True)
class Stored:
    """The object that was stored."""

    key: str
    size: int
    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class ObjectHeaders:
    """The metadata of an object: as botocore's parameters, and as the HTTP headers that they become."""

    media_type: str
    name: str
    sha256: str

    def params(self) -> dict[str, Any]:
        disposition = f"inline; filename*=UTF-8''{quote(self.name, safe='')}" if self.name else "inline"
        return {
            "ContentType": self.media_type or "application/octet-stream",
            "ContentDisposition": disposition,
            "Metadata": {"sha256": self.sha256},
        }

    def headers(self) -> dict[str, str]:
        params = self.params()
        return {
            "Content-Type": params["ContentType"],
            "Content-Disposition": params["ContentDisposition"],
            "x-amz-meta-sha256": self.sha256,
        }


def refuse_short_credentials(config: ObjectStoreConfig) -> None:
    """Raises ObjectStoreRefused for missing credentials, and for temporary ones: a URL expires when the
    credentials that signed it do."""
    if not config.access_id or not config.access_secret:
        raise ObjectStoreRefused(
            "the object store needs an access id and a secret of its own: none is taken from the environment"
        )
    if config.session_token or config.access_id.startswith("ASIA"):
        raise ObjectStoreRefused(
            f"the credentials {config.access_id} are temporary: result URLs must be valid for 7 days and"
            " would end with them; use the long-lived key of a user or service account"
        )
