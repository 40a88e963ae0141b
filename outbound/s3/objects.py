"""A bucket of an S3 object store, through botocore. Synchronous: asynchronous callers use threads.

- Uses only the configured credentials and endpoint: no AWS_* variable, no ~/.aws, no metadata, no proxy.
- Reads a file through its descriptor at offsets (pread): opens no name, and other users of the descriptor
  notice nothing. Stores the file's sha256 as metadata and compares it with the bytes that were sent.
- Raises only `outbound.errors`. The secret is in no message, log line or repr.
- Works with servers that expect the bucket in the host and with those that expect it in the path, however the
  endpoint is written, and in any region (`connections`).
- Imports botocore with its first call, in the thread of that call: 0.1 s and 11 MB, with the first client.
  Many controls and agents have a store and no file.
- Signs URLs for `public_endpoint` with SigV4, in the style of the store, valid for up to 7 days.

Does not retry beyond botocore's own retry, list objects for users, or set bucket policies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any, TypeVar

from stoker.outbound.content_encoding import NotUnpacked, unpacking_of
from stoker.outbound.errors import (
    FileChanged,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreRefused,
    TooLarge,
)
from stoker.outbound.s3.buckets import ObjectHeaders, ObjectStoreConfig, Stored
from stoker.outbound.s3.connections import Connections
from stoker.outbound.s3.disk import refuse_if_full
from stoker.outbound.s3.file_body import FileBody, measure
from stoker.outbound.s3.styles import Found, Style

T = TypeVar("T")

SEVEN_DAYS = 604_800
_CHUNK_BYTES = 1 << 20
_NO_PARTS = {"MethodNotAllowed", "NotImplemented", "405", "501"}
"""Codes of servers that have no uploads in parts."""


class ObjectStore:
    """Thread-safe. Opens its clients at the first call; `close` closes them. Stores with other credentials
    may share `found`."""

    def __init__(self, config: ObjectStoreConfig, found: Found | None = None) -> None:
        self.config = config
        self.connections = Connections(
            config.endpoint_url, config.bucket, config.region, self._open_client, found
        )

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connections.close()

    def warm(self) -> None:
        """Opens the clients of the first call, which takes a fraction of a second once per process."""
        self.connections.client(self.connections.first)
        self.connections.client(self.connections.public(self.config.public_endpoint))

    def find(self, key: str) -> None:
        """Finds out how the bucket is reached, if that is not known, by reading a byte of an object."""

        def read(s3: Any) -> None:
            s3.get_object(Bucket=self.config.bucket, Key=key, Range="bytes=0-0")["Body"].close()

        if not self.connections.known:
            self._call(f"reading {key}", read)

    def try_to_write(self, key: str) -> None:
        """Raises ObjectStoreRefused if an object of this key may not be written. Begins an upload in parts
        and drops it: that requires the rights of a write, and leaves no object. A server that has no such
        uploads refuses nothing here."""
        from botocore.exceptions import BotoCoreError, ClientError

        def begin(s3: Any) -> None:
            where = {"Bucket": self.config.bucket, "Key": key}
            try:
                begun = s3.create_multipart_upload(**where)
            except ClientError as error:
                if error.response["Error"].get("Code") in _NO_PARTS:
                    return
                raise
            with suppress(ClientError, BotoCoreError):  # the right to drop it may be missing
                s3.abort_multipart_upload(**where, UploadId=begun["UploadId"])

        with suppress(ObjectMissing):
            self._call(f"trying to write {key}", begin)

    def put_file(
        self,
        key: str,
        file: int | str | os.PathLike[str],
        media_type: str,
        name: str = "",
        stopped: Callable[[], bool] = lambda: False,
    ) -> Stored:
        """Uploads a whole file, in parts if it is large. Calls `stopped` between chunks; True ends the upload
        with UploadStopped."""
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
        """Returns the whole object. Raises TooLarge above `most` bytes, ObjectDamaged if the object does not
        have this `sha256`."""

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
        """Writes the object to a file, unpacked if it is stored compressed. If that fails, the file is
        removed."""

        def read(s3: Any) -> None:
            found = s3.get_object(Bucket=self.config.bucket, Key=key)
            with closing(found["Body"]) as body, open(path, "wb") as file:
                unpacking = unpacking_of(found.get("ContentEncoding", ""))
                for chunk in body.iter_chunks(_CHUNK_BYTES):
                    file.writelines([chunk] if unpacking is None else unpacking.pieces(chunk))
                if unpacking is not None:
                    unpacking.end()

        try:
            self._call(f"reading {key}", read)
        except BaseException as error:
            with suppress(FileNotFoundError):
                os.unlink(path)
            if isinstance(error, NotUnpacked):
                raise ObjectDamaged(f"the object {key} {error}") from None
            raise

    def presign_get(self, key: str, seconds: int = SEVEN_DAYS) -> str:
        """Returns a URL with which anybody may read the object until the URL expires. Opens no connection."""
        style = self.connections.public(self.config.public_endpoint)
        return self._presigned(style, "get_object", key, seconds, {})

    def presign(self, operation: str, key: str, seconds: int, **params: Any) -> str:
        """Returns the URL of a request to `endpoint_url` that anybody may send until it expires. Opens no
        connection."""
        return self._presigned(self.connections.first, operation, key, seconds, params)

    def presign_put(
        self, key: str, size: int, about: ObjectHeaders, seconds: int, *, in_parts: bool = False
    ) -> tuple[str, dict[str, str]]:
        """Returns the URL of a request that puts an object of this size, or that starts a multipart upload of
        this size, and the request's headers, which are part of the signature."""
        self.refuse_if_full(size)
        length = {} if in_parts else {"ContentLength": size}
        operation = "create_multipart_upload" if in_parts else "put_object"
        return self.presign(operation, key, seconds, **about.params(), **length), about.headers()

    def _presigned(self, style: Style, operation: str, key: str, seconds: int, params: dict[str, Any]) -> str:
        if not 1 <= seconds <= SEVEN_DAYS:
            raise ValueError(f"a URL can be valid for 1 s to 7 days, not for {seconds} s")
        with self.connections.explained(f"signing a URL for {key}"):
            where = {"Bucket": self.config.bucket, "Key": key, **params}
            client = self.connections.client(style)
            return str(client.generate_presigned_url(operation, Params=where, ExpiresIn=seconds))

    def delete_keys(self, keys: Iterable[str]) -> int:
        """Deletes each key and returns how many; a missing object is not an error. Keys are deleted one by
        one, as not every server has the call for many."""

        def delete(key: str) -> None:
            self._call(f"deleting {key}", lambda s3: s3.delete_object(Bucket=self.config.bucket, Key=key))

        count = 0
        for key in keys:
            delete(key)
            count += 1
        return count

    def delete_prefix(self, prefix: str) -> int:
        """Deletes everything below `prefix`, which must end in a slash: `a/1` would include `a/10`."""
        if not prefix.endswith("/") or prefix == "/":
            raise ValueError(f"a prefix to delete must end in / and name a folder, not {prefix!r}")
        return self.delete_keys(self.keys(prefix))

    def keys(self, prefix: str) -> list[str]:
        def read(s3: Any) -> list[str]:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.config.bucket, Prefix=prefix)
            return [str(entry["Key"]) for page in pages for entry in page.get("Contents", [])]

        return self._call(f"listing {prefix}", read)

    def ensure_bucket(self) -> None:
        """Creates the bucket if it is missing."""
        from botocore.exceptions import ClientError

        try:
            self._call(
                f"looking for the bucket {self.config.bucket}",
                lambda s3: s3.head_bucket(Bucket=self.config.bucket),
            )
            return
        except ObjectStoreRefused as refused:
            if "there is no bucket" not in str(refused):
                raise
        first = self.connections.first
        with self.connections.explained(f"making the bucket {self.config.bucket}"):
            try:
                s3 = self.connections.client(first)
                s3.create_bucket(Bucket=self.config.bucket, **_location(first.region))
            except ClientError as error:
                # Of two processes that start at once, the second finds the bucket created.
                if not error.response["Error"]["Code"].startswith("BucketAlready"):
                    raise

    def check(self) -> None:
        """Checks at start that these credentials can write, read and delete an object."""
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
        """Hashes the file, then sends it: S3 takes metadata before data. The bytes that are sent are hashed
        again."""
        from stoker.outbound.s3.client import upload

        size, digest = measure(fd, stopped)
        self.refuse_if_full(size)

        def write(s3: Any) -> FileBody:
            body = FileBody(fd, size, stopped)
            headers = ObjectHeaders(media_type, name, digest).params()
            upload(s3, body, (self.config.bucket, key), headers, self.config.part_size_bytes)
            return body

        body = self._call(f"writing {key}", write)
        if body.digest.hexdigest() != digest:
            self.delete_keys([key])
            raise FileChanged(f"the file {name or key} was altered while it was being uploaded")
        return Stored(key, size, digest, media_type)

    def refuse_if_full(self, size: int) -> None:
        """Raises ObjectStoreFull if the store's folder is on this machine and its disk is full."""
        if self.config.folder:
            refuse_if_full(self.config.folder, size, self.config.reserve_bytes)

    def _call(self, doing: str, call: Callable[[Any], T]) -> T:
        return self.connections.call(doing, call)

    def _open_client(self, style: Style) -> Any:
        from stoker.outbound.s3.client import open_client

        config = self.config
        return open_client(
            style.endpoint,
            virtual=style.virtual,
            region=style.region,
            credentials=(config.access_id, config.access_secret, config.session_token),
            attempts=config.attempts,
            timeouts=(config.connect_timeout_s, config.read_timeout_s),
            allow_private=config.allow_private,
        )


def _location(region: str) -> dict[str, Any]:
    if region in ("us-east-1", "auto"):
        return {}
    return {"CreateBucketConfiguration": {"LocationConstraint": region}}
