"""The folder of the embedded store's bucket: made, proved to be writable, and still the one that was made."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile

from stoker.outbound.errors import LocalS3Failed, ObjectDamaged, ObjectStoreDown
from stoker.outbound.s3.disk import refuse_if_full


class BucketFolder:
    """A folder below that of all buckets. From `hold` to `release` it is open, so no other folder gets its
    identity."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def make(self) -> None:
        """Makes the folder, if there is none. Raises LocalS3Failed."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None

    def check(self, reserve_bytes: int) -> None:
        """Checks that a file can be written, read and removed in the folder, as `ObjectStore.check` does over
        S3. Raises ObjectStoreFull if fewer than `reserve_bytes` stay free, ObjectStoreDown and
        ObjectDamaged."""
        data = b"stoker"
        refuse_if_full(self.path.parent, len(data), reserve_bytes)
        try:
            with TemporaryFile(dir=self.path, buffering=0) as file:
                file.write(data)
                kept = os.pread(file.fileno(), len(data), 0)
        except OSError as error:
            raise ObjectStoreDown(
                f"the object store's folder {self.path} cannot be used: {error.strerror}"
            ) from None
        if kept != data:
            raise ObjectDamaged(f"the object store's folder {self.path} gives back other bytes")

    def hold(self) -> None:
        """Takes the folder that is there now for the right one. Raises LocalS3Failed."""
        self.release()
        try:
            self._held = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from None

    def is_there(self) -> bool:
        try:
            return self._held is not None and os.path.samestat(os.stat(self.path), os.fstat(self._held))
        except OSError:
            return False

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _unusable(self, error: OSError) -> LocalS3Failed:
        return LocalS3Failed(f"the object store's folder {self.path} cannot be made: {error.strerror}")
