"""One bucket of an S3 object store, through boto3. Synchronous: asynchronous callers use threads.

- Uses only the configured credentials and endpoint: no AWS_* variable, no ~/.aws, no metadata, no proxy.
- Reads a file through its descriptor at offsets (pread): opens no name, and other users of the descriptor
  notice nothing. Stores the file's sha256 as metadata and compares it with the bytes that were sent.
- Raises only `outbound.errors`. The secret is in no message, log line or repr.
- Works with servers that expect the bucket in the host and with those that expect it in the path, however the
  endpoint is written (`styles`), and remembers which one the server accepted.
- Signs URLs for `public_endpoint` with SigV4, in the style of the store, valid for up to 7 days.

Does not retry beyond boto3's own retry, list objects for users, or set bucket policies.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from stoker.outbound.errors import (
    FileChanged,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreError,
    ObjectStoreRefused,
    TooLarge,
)
from stoker.outbound.s3.answers import explain
from stoker.outbound.s3.client import open_client, transfer_config
from stoker.outbound.s3.disk import refuse_if_full
from stoker.outbound.s3.file_body import FileBody, measure
from stoker.outbound.s3.styles import Style, public_style, styles

T = TypeVar("T")
Found: TypeAlias = MutableMapping[tuple[str, str], Style]
"""The addressing style of each bucket (endpoint, bucket) that a server has accepted."""

SEVEN_DAYS = 604_800
_CHUNK_BYTES = 1 << 20
_STYLES_MAX = 1_024
"""Buckets whose style is remembered."""


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """A bucket and the credentials for it. `public_endpoint` is the address for callers; empty means
    `endpoint_url`.

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
    """The metadata of an object: as boto3's parameters, and as the HTTP headers that they become."""

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
    """Raise ObjectStoreRefused for temporary credentials: a URL expires when the credentials that signed it
    do."""
    if not config.access_id or not config.access_secret:
        raise ObjectStoreRefused(
            "the object store needs an access id and a secret of its own: none is taken from the environment"
        )
    if config.session_token or config.access_id.startswith("ASIA"):
        raise ObjectStoreRefused(
            f"the credentials {config.access_id} are temporary: result URLs must be valid for 7 days and"
            " would end with them; use the long-lived key of a user or service account"
        )


class ObjectStore:
    """Thread-safe. Opens its clients at the first call; `close` closes them. Stores with other credentials
    may share `found`."""

    def __init__(self, config: ObjectStoreConfig, found: Found | None = None) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._clients: dict[Style, Any] = {}
        self._found: Found = {} if found is None else found
        self._bucket = config.endpoint_url, config.bucket

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
        """Open the clients of the first call; takes a fraction of a second once per process."""
        self._client(self._styles()[0])
        self._client(self._public())

    def put_file(
        self,
        key: str,
        file: int | str | os.PathLike[str],
        media_type: str,
        name: str = "",
        stopped: Callable[[], bool] = lambda: False,
    ) -> Stored:
        """Upload a whole file, in parts if it is large. `stopped` is called between chunks; True ends the
        upload with UploadStopped."""
        fd = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._put_descriptor(key, fd, media_type, name, stopped)
        finally:
            if fd != file:
                os.close(fd)

    def put_bytes(self, key: str, data: bytes, media_type: str, name: str = "") -> Stored:
        digest = hashlib.sha256(data).hexdigest()
        self.refuse_if_full(len(data))
        headers = ObjectHeaders(media_type, name, digest).params()
        self._call(
            f"writing {key}",
            lambda s3: s3.put_object(Bucket=self.config.bucket, Key=key, Body=data, **headers),
        )
        return Stored(key, len(data), digest, media_type)

    def get_bytes(self, key: str, most: int, sha256: str = "") -> bytes:
        """The whole object. Raises TooLarge above `most` bytes, ObjectDamaged if it does not have this
        `sha256`."""

        def read(s3: Any) -> bytes:
            with closing(s3.get_object(Bucket=self.config.bucket, Key=key)["Body"]) as body:
                return bytes(body.read(most + 1))

        data = self._call(f"reading {key}", read)
        if len(data) > most:
            raise TooLarge(f"the object {key} is more than the {most} bytes that are allowed")
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            raise ObjectDamaged(f"the object {key} was altered: it is not the one that was stored")
        return data

    def get_file(self, key: str, path: str | os.PathLike[str]) -> None:
        """Write the object to a file. If that fails, the file is removed."""

        def read(s3: Any) -> None:
            with (
                closing(s3.get_object(Bucket=self.config.bucket, Key=key)["Body"]) as body,
                open(path, "wb") as file,
            ):
                for chunk in body.iter_chunks(_CHUNK_BYTES):
                    file.write(chunk)

        try:
            self._call(f"reading {key}", read)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(path)
            raise

    def presign_get(self, key: str, seconds: int = SEVEN_DAYS) -> str:
        """A URL with which anybody may read the object until it expires. Opens no connection."""
        return self._presigned(self._public(), "get_object", key, seconds, {})

    def presign(self, operation: str, key: str, seconds: int, **params: Any) -> str:
        """A request to `endpoint_url` that anybody may send until it expires. Opens no connection."""
        return self._presigned(self._styles()[0], operation, key, seconds, params)

    def presign_put(
        self, key: str, size: int, about: ObjectHeaders, seconds: int, *, in_parts: bool = False
    ) -> tuple[str, dict[str, str]]:
        """A request that puts an object of this size, or that starts a multipart upload of it, and its
        headers, which are part of the signature."""
        self.refuse_if_full(size)
        length = {} if in_parts else {"ContentLength": size}
        operation = "create_multipart_upload" if in_parts else "put_object"
        return self.presign(operation, key, seconds, **about.params(), **length), about.headers()

    def _presigned(self, style: Style, operation: str, key: str, seconds: int, params: dict[str, Any]) -> str:
        if not 1 <= seconds <= SEVEN_DAYS:
            raise ValueError(f"a URL can be valid for 1 s to 7 days, not for {seconds} s")
        with self._explained(f"signing a URL for {key}"):
            where = {"Bucket": self.config.bucket, "Key": key, **params}
            client = self._client(style)
            return str(client.generate_presigned_url(operation, Params=where, ExpiresIn=seconds))

    def delete_keys(self, keys: Iterable[str]) -> int:
        """Delete each key; a missing object is no error. One by one: not every server has the call for
        many."""

        def delete(key: str) -> None:
            self._call(f"deleting {key}", lambda s3: s3.delete_object(Bucket=self.config.bucket, Key=key))

        count = 0
        for key in keys:
            delete(key)
            count += 1
        return count

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below `prefix`, which must end in a slash: `a/1` would include `a/10`."""
        if not prefix.endswith("/") or prefix == "/":
            raise ValueError(f"a prefix to delete must end in / and name a folder, not {prefix!r}")
        return self.delete_keys(self.keys(prefix))

    def keys(self, prefix: str) -> list[str]:
        def read(s3: Any) -> list[str]:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.config.bucket, Prefix=prefix)
            return [str(entry["Key"]) for page in pages for entry in page.get("Contents", [])]

        return self._call(f"listing {prefix}", read)

    def ensure_bucket(self) -> None:
        """Create the bucket if it is missing."""
        try:
            self._call(
                f"looking for the bucket {self.config.bucket}",
                lambda s3: s3.head_bucket(Bucket=self.config.bucket),
            )
            return
        except ObjectStoreRefused as refused:
            if "there is no bucket" not in str(refused):
                raise
        with self._explained(f"making the bucket {self.config.bucket}"):
            try:
                self._client(self._styles()[0]).create_bucket(Bucket=self.config.bucket, **self._location())
            except ClientError as error:
                # Of two processes that start at once, the second finds the bucket created.
                if not error.response["Error"]["Code"].startswith("BucketAlready"):
                    raise

    def check(self) -> None:
        """Check at start that these credentials can write, read and delete an object."""
        key, data = f".stoker-check/{os.urandom(8).hex()}", b"stoker"
        self.put_bytes(key, data, "text/plain")
        try:
            if self.get_bytes(key, len(data)) != data:
                raise ObjectDamaged(f"the object store at {self.config.endpoint_url} gives back other bytes")
        except ObjectMissing:
            raise ObjectDamaged(f"the object store at {self.config.endpoint_url} lost an object") from None
        finally:
            self.delete_keys([key])

    def _put_descriptor(
        self, key: str, fd: int, media_type: str, name: str, stopped: Callable[[], bool]
    ) -> Stored:
        """Hash, then send: S3 takes metadata before data. The bytes that are sent are hashed again."""
        size, digest = measure(fd, stopped)
        self.refuse_if_full(size)

        def write(s3: Any) -> FileBody:
            body = FileBody(fd, size, stopped)
            headers = ObjectHeaders(media_type, name, digest).params()
            parts = transfer_config(self.config.part_size_bytes)
            s3.upload_fileobj(body, self.config.bucket, key, ExtraArgs=headers, Config=parts)
            return body

        body = self._call(f"writing {key}", write)
        if body.digest.hexdigest() != digest:
            self.delete_keys([key])
            raise FileChanged(f"the file {name or key} was altered while it was being uploaded")
        return Stored(key, size, digest, media_type)

    def refuse_if_full(self, size: int) -> None:
        """Raise ObjectStoreFull if the store's folder is on this machine and its disk is full."""
        if self.config.folder:
            refuse_if_full(self.config.folder, size, self.config.reserve_bytes)

    def _location(self) -> dict[str, Any]:
        if self.config.region in ("", "us-east-1", "auto"):
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self.config.region}}

    def _styles(self) -> tuple[Style, ...]:
        found = self._found.get(self._bucket)
        return styles(*self._bucket) if found is None else (found,)

    def _public(self) -> Style:
        own, public = self._styles()[0], self.config.public_endpoint
        if public in ("", self.config.endpoint_url):
            return own
        return public_style(own, public, self.config.bucket)

    def _call(self, doing: str, call: Callable[[Any], T]) -> T:
        """Call in the style that the server has accepted before, else in each style until one is accepted. If
        all are refused, raise the error of the first style: the others are guesses."""
        refused: ObjectStoreError | None = None
        for style in self._styles():
            try:
                with self._explained(doing):
                    done = call(self._client(style))
            except (ObjectStoreRefused, ObjectMissing) as error:
                refused = refused or error
            except ObjectStoreError as error:
                raise refused or error from None
            else:
                self._remember_style(style)
                return done
        assert refused is not None
        raise refused

    def _remember_style(self, style: Style) -> None:
        with self._lock:
            if len(self._found) >= _STYLES_MAX:
                self._found.clear()
            self._found[self._bucket] = style

    def _client(self, style: Style) -> Any:
        with self._lock:
            client = self._clients.get(style)
            if client is None:
                with self._explained("opening the object store"):
                    client = self._clients[style] = open_client(
                        style.endpoint,
                        virtual=style.virtual,
                        region=self.config.region,
                        credentials=(
                            self.config.access_id,
                            self.config.access_secret,
                            self.config.session_token,
                        ),
                        attempts=self.config.attempts,
                        timeouts=(self.config.connect_timeout_s, self.config.read_timeout_s),
                        allow_private=self.config.allow_private,
                    )
            return client

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, Boto3Error, ClientError, HTTPError, OSError, ValueError) as error:
            raise explain(error, doing, self.config.endpoint_url, self.config.bucket) from None
