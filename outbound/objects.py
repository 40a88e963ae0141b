"""One bucket of one S3 object store, synchronously, through boto3. Whoever is asynchronous brings threads.

What is promised
- Only the given credentials and endpoint are used: no AWS_* variable, no ~/.aws, no metadata, no proxy.
- A file is read through its descriptor at its own offset (pread): no name is opened, and other
  holders of the descriptor notice nothing. Its sha256 is kept as metadata and compared with what was sent.
- Every failure is one of `outbound.errors`, with a sentence. The secret is in no text, log line or repr.
- URLs are signed for `public_endpoint`, path style, SigV4, and are valid for up to 7 days.

Not here: no retries beyond the client's own one, no listing for users, no bucket policy.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from stoker.outbound.disk import refuse_if_full
from stoker.outbound.errors import (
    FileChanged,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreRefused,
    TooLarge,
)
from stoker.outbound.s3_answers import explain
from stoker.outbound.s3_client import open_client, transfer_config

SEVEN_DAYS = 604_800
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """Where the bucket is and who asks. `public_endpoint` is what callers reach; empty means `endpoint_url`.

    `part_size` is what files are cut into, at least 5 MiB: S3 allows no smaller parts.
    `folder` is the store's own folder where it lies on this machine (the embedded store): it is looked at
    before each write, because such a store cannot say that its disk is full. `allow_private` is False for a
    bucket that a caller names: connections to private addresses are refused then.
    """

    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    access_id: str
    access_secret: str = field(repr=False)
    session_token: str = field(repr=False, default="")
    folder: str = ""
    reserve: int = 256 << 20
    part_size: int = 8 << 20
    attempts: int = 2
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    allow_private: bool = True


@dataclass(frozen=True, slots=True)
class Stored:
    """What now lies under `key`."""

    key: str
    size: int
    sha256: str
    media_type: str


def refuse_short_credentials(config: ObjectStoreConfig) -> None:
    """Raise if these credentials end before a URL signed with them should: it ends when they do."""
    if not config.access_id or not config.access_secret:
        raise ObjectStoreRefused(
            "the object store needs an access id and a secret of its own: none is taken from the surroundings"
        )
    if config.session_token or config.access_id.startswith("ASIA"):
        raise ObjectStoreRefused(
            f"the credentials {config.access_id} are temporary: result URLs must be valid for 7 days and"
            " would end with them; use the long-lived key of a user or service account"
        )


def region_of(endpoint_url: str) -> str:
    """The region that an endpoint's host name tells, for callers' buckets, which come without one."""
    labels = endpoint_url.partition("://")[2].partition("/")[0].partition(":")[0].split(".")
    if labels[-2:] == ["amazonaws", "com"] and len(labels) >= 4 and not labels[-3].startswith("s3"):
        return labels[-3]
    if labels[-2:] == ["digitaloceanspaces", "com"] and len(labels) >= 3:
        return labels[-3]
    return "us-east-1"


class ObjectStore:
    """Thread-safe. Clients are opened at the first call, and closed by `close`."""

    def __init__(self, config: ObjectStoreConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def warm(self) -> None:
        """Open what the first call would open; takes a fraction of a second once per process."""
        self._client(self.config.endpoint_url)
        self._client(self._public)

    def put_file(
        self,
        key: str,
        file: int | str | os.PathLike[str],
        media_type: str,
        name: str = "",
        stopped: Callable[[], bool] = lambda: False,
    ) -> Stored:
        """Upload a whole file, in parts if it is large. `stopped` is asked between pieces, and ends it."""
        fd = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._put_descriptor(key, fd, media_type, name, stopped)
        finally:
            if fd != file:
                os.close(fd)

    def put_bytes(self, key: str, data: bytes, media_type: str, name: str = "") -> Stored:
        digest = hashlib.sha256(data).hexdigest()
        self._refuse_if_full(len(data))
        with self._explained(f"writing {key}"):
            self._own.put_object(
                Bucket=self.config.bucket, Key=key, Body=data, **_headers(media_type, name, digest)
            )
        return Stored(key, len(data), digest, media_type)

    def get_bytes(self, key: str, most: int, sha256: str = "") -> bytes:
        """The whole object; TooLarge above `most` bytes, ObjectDamaged if it is not the one with `sha256`."""
        with self._explained(f"reading {key}"):
            body = self._own.get_object(Bucket=self.config.bucket, Key=key)["Body"]
            try:
                data = bytes(body.read(most + 1))
            finally:
                body.close()
        if len(data) > most:
            raise TooLarge(f"the object {key} is more than the {most} bytes that are allowed")
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            raise ObjectDamaged(f"the object {key} was altered: it is not the one that was stored")
        return data

    def get_file(self, key: str, path: str | os.PathLike[str]) -> None:
        """The object into a file, piece by piece; no part of it stays if it does not come whole."""
        try:
            with self._explained(f"reading {key}"), open(path, "wb") as file:
                body = self._own.get_object(Bucket=self.config.bucket, Key=key)["Body"]
                with closing(body):
                    for piece in body.iter_chunks(_PIECE):
                        file.write(piece)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(path)
            raise

    def presign_get(self, key: str, seconds: int = SEVEN_DAYS) -> str:
        """A URL that anybody may read the object with, until it expires. Connects nowhere."""
        if not 1 <= seconds <= SEVEN_DAYS:
            raise ValueError(f"a URL can be valid for 1 s to 7 days, not for {seconds} s")
        with self._explained(f"signing a URL for {key}"):
            return str(
                self._client(self._public).generate_presigned_url(
                    "get_object", Params={"Bucket": self.config.bucket, "Key": key}, ExpiresIn=seconds
                )
            )

    def delete_keys(self, keys: Iterable[str]) -> int:
        """Delete each; one that is not there is fine. One by one: not every S3 has the call for many."""
        count = 0
        for key in keys:
            with self._explained(f"deleting {key}"):
                self._own.delete_object(Bucket=self.config.bucket, Key=key)
            count += 1
        return count

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below `prefix`, which must end in a slash: `a/1` would take `a/10` with it."""
        if not prefix.endswith("/") or prefix == "/":
            raise ValueError(f"a prefix to delete must end in / and name a folder, not {prefix!r}")
        return self.delete_keys(self.keys(prefix))

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        with self._explained(f"listing {prefix}"):
            pages = self._own.get_paginator("list_objects_v2").paginate(
                Bucket=self.config.bucket, Prefix=prefix
            )
            for page in pages:
                found += [str(entry["Key"]) for entry in page.get("Contents", [])]
        return found

    def ensure_bucket(self) -> None:
        """Make the bucket if it is not there."""
        try:
            with self._explained(f"looking for the bucket {self.config.bucket}"):
                self._own.head_bucket(Bucket=self.config.bucket)
                return
        except ObjectStoreRefused as refused:
            if "there is no bucket" not in str(refused):
                raise
        with self._explained(f"making the bucket {self.config.bucket}"):
            try:
                self._own.create_bucket(Bucket=self.config.bucket, **self._placed())
            except ClientError as error:
                # Two processes that start at once both find no bucket; the second one finds it made.
                if not error.response["Error"]["Code"].startswith("BucketAlready"):
                    raise

    def check(self) -> None:
        """Prove at start that objects can be written, read and deleted with these credentials."""
        key, data = f".stoker-check/{os.urandom(8).hex()}", b"stoker"
        self.put_bytes(key, data, "text/plain")
        try:
            if self.get_bytes(key, len(data)) != data:
                raise ObjectDamaged(f"the object store at {self.config.endpoint_url} gives back other bytes")
        except ObjectMissing:
            raise ObjectDamaged(f"the object store at {self.config.endpoint_url} forgot an object") from None
        finally:
            self.delete_keys([key])

    def _put_descriptor(
        self, key: str, fd: int, media_type: str, name: str, stopped: Callable[[], bool]
    ) -> Stored:
        """Hash, then send: S3 takes metadata before data. The bytes that leave are hashed again."""
        size, digest = _measure(fd, stopped)
        self._refuse_if_full(size)
        body = _Descriptor(fd, size, stopped)
        with self._explained(f"writing {key}"):
            self._own.upload_fileobj(
                body,
                self.config.bucket,
                key,
                ExtraArgs=_headers(media_type, name, digest),
                Config=transfer_config(self.config.part_size),
            )
        if body.digest.hexdigest() != digest:
            self.delete_keys([key])
            raise FileChanged(f"the file {name or key} was altered while it was being uploaded")
        return Stored(key, size, digest, media_type)

    def _refuse_if_full(self, size: int) -> None:
        if self.config.folder:
            refuse_if_full(self.config.folder, size, self.config.reserve)

    def _placed(self) -> dict[str, Any]:
        if self.config.region in ("", "us-east-1", "auto"):
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self.config.region}}

    @property
    def _public(self) -> str:
        return self.config.public_endpoint or self.config.endpoint_url

    @property
    def _own(self) -> Any:
        return self._client(self.config.endpoint_url)

    def _client(self, endpoint: str) -> Any:
        with self._lock:
            client = self._clients.get(endpoint)
            if client is None:
                with self._explained("opening the object store"):
                    client = self._clients[endpoint] = open_client(
                        endpoint,
                        region=self.config.region,
                        credentials=(
                            self.config.access_id,
                            self.config.access_secret,
                            self.config.session_token,
                        ),
                        attempts=self.config.attempts,
                        timeouts=(self.config.connect_timeout, self.config.read_timeout),
                        allow_private=self.config.allow_private,
                    )
            return client

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, Boto3Error, ClientError, HTTPError, OSError, ValueError) as error:
            raise explain(error, doing, self.config.endpoint_url, self.config.bucket) from None


class UploadStopped(Exception):
    """Whoever asked for the upload no longer wants it."""


class _Descriptor(io.RawIOBase):
    """The first `size` bytes behind a descriptor, hashed as they are first read.

    A retry reads a part again from memory, but a whole small file through here: bytes before the
    furthest one seen are not hashed twice.
    """

    def __init__(self, fd: int, size: int, stopped: Callable[[], bool]) -> None:
        super().__init__()
        self._fd, self._size, self._stopped = fd, size, stopped
        self._at = self._hashed = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = _read(self._fd, self._at, left if size is None or size < 0 else min(size, left), self._stopped)
        if self._at <= self._hashed < self._at + len(data):
            self.digest.update(data[self._hashed - self._at :])
            self._hashed = self._at + len(data)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _measure(fd: int, stopped: Callable[[], bool]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while piece := _read(fd, size, _PIECE, stopped):
        digest.update(piece)
        size += len(piece)
    return size, digest.hexdigest()


def _read(fd: int, at: int, size: int, stopped: Callable[[], bool]) -> bytes:
    """`size` bytes from `at`, fewer only at the end of the file."""
    pieces = bytearray()
    while len(pieces) < size:
        if stopped():
            raise UploadStopped
        piece = os.pread(fd, min(_PIECE, size - len(pieces)), at + len(pieces))
        if not piece:
            break
        pieces += piece
    return bytes(pieces)


def _headers(media_type: str, name: str, sha256: str) -> dict[str, Any]:
    disposition = f"inline; filename*=UTF-8''{quote(name, safe='')}" if name else "inline"
    return {
        "ContentType": media_type or "application/octet-stream",
        "ContentDisposition": disposition,
        "Metadata": {"sha256": sha256},
    }


__all__ = [
    "SEVEN_DAYS",
    "ObjectStore",
    "ObjectStoreConfig",
    "Stored",
    "UploadStopped",
    "refuse_short_credentials",
    "region_of",
]
