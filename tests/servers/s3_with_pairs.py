"""An outside object store on loopback: rclone's, which takes the pairs of credentials that it is told."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.outbound.s3 import local_server
from stoker.outbound.s3.buckets import ObjectStoreConfig
from tests.kept_port import kept_port

BUCKET = "results"
ANSWERS_S = 60.0


@dataclass(frozen=True)
class Pair:
    """The credentials of a user of the store."""

    access_id: str
    access_secret: str


class S3WithPairs:
    """The server and its folder. Its bucket is there from the beginning."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        (folder / BUCKET).mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def config(self, pair: Pair) -> ObjectStoreConfig:
        endpoint = f"http://127.0.0.1:{self.port}"
        return ObjectStoreConfig(endpoint, "", "us-east-1", BUCKET, pair.access_id, pair.access_secret)

    def section(self, pair: Pair) -> str:
        """Returns `[s3]` of control's configuration."""
        config = self.config(pair)
        fields = ("endpoint_url", "region", "bucket", "access_id", "access_secret")
        return "\n".join(["[s3]", *(f'{name} = "{getattr(config, name)}"' for name in fields), ""])

    def start(self, *pairs: Pair) -> None:
        """Takes these pairs alone from now on. Returns when it answers."""
        self.stop()
        keys = ",".join(f'"{pair.access_id},{pair.access_secret}"' for pair in pairs)
        self._process = subprocess.Popen(
            [
                *(local_server._rclone(), "serve", "s3", str(self.folder)),
                *("--addr", f"127.0.0.1:{self.port}", "--config", os.devnull),
                *("--cache-dir", str(self.folder.with_name("s3-cache"))),
            ],
            env={"PATH": os.defpath, "RCLONE_AUTH_KEY": keys},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not self._answers():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                raise AssertionError("the object store ended before it answered")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False


@contextlib.contextmanager
def s3_with_pairs(folder: Path, *pairs: Pair) -> Iterator[S3WithPairs]:
    with kept_port() as held:
        server = S3WithPairs(folder, held.getsockname()[1])
        try:
            server.start(*pairs)
            yield server
        finally:
            server.stop()
