"""Weights come in through weights.lock and no other way: locked by sha256, safetensors only."""

from __future__ import annotations

from stoker.models.weights.fetching import (
    Mirror,
    fetch,
    lock_from_folder,
    lock_from_hub,
    ready,
    weights_folder,
)
from stoker.models.weights.hub import Hub, HubFile, HuggingFaceHub
from stoker.models.weights.lock import (
    Entry,
    Lock,
    LockedFile,
    Origin,
    WeightsError,
    dump_lock,
    lock_path,
    read_lock,
    write_lock,
)
from stoker.models.weights.verification import Problem, WeightsRefused, memory_path, verify

__all__ = [
    "Entry",
    "Hub",
    "HubFile",
    "HuggingFaceHub",
    "Lock",
    "LockedFile",
    "Mirror",
    "Origin",
    "Problem",
    "WeightsError",
    "WeightsRefused",
    "dump_lock",
    "fetch",
    "lock_from_folder",
    "lock_from_hub",
    "lock_path",
    "memory_path",
    "read_lock",
    "ready",
    "verify",
    "weights_folder",
    "write_lock",
]
