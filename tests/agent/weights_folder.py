"""A folder of weights with the digests that workers use, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoker.agent.weights.store import WeightsStore
from stoker.models.weights import known_digests, record_digests

FILES = {"model.safetensors": b"weights" * 1000, "vae/config.json": b"{}"}
SIZE = 7002


class SharedDigests:
    def known(self, folder: Path) -> Mapping[str, str]:
        return known_digests(folder)

    def record(self, folder: Path, digests: Mapping[str, str]) -> None:
        record_digests(folder, digests)


def made_store(folder: Path, most_bytes: int = 1_000_000) -> WeightsStore:
    return WeightsStore(folder, most_bytes, SharedDigests(), reserve_bytes=0)
