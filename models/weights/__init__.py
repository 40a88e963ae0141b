"""Weights, fetched and verified: every file is locked by its sha256 in weights.lock, and safetensors only."""

from __future__ import annotations

from stoker.models.weights.fetching import (
    Bring,
    begin,
    fetch,
    folder_of,
    lock_from_folder,
    lock_from_hub,
    ready,
)
from stoker.models.weights.hub import Hub, HubFile
from stoker.models.weights.lock import (
    ENTRIES,
    FOLDER,
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
from stoker.models.weights.reading import Reading
from stoker.models.weights.verification import (
    WeightsRefused,
    cache_path,
    known_digests,
    lacking,
    record_digests,
    state,
    verify,
)
from stoker.models.weights_paths import weights_folder
