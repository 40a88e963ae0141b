"""Saves the pods' marks (`agent.pods.pod_machine`) in a small JSON file in the agent's folder."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import to_builtins

from stoker.agent.pods.events import Mark

log = logging.getLogger(__name__)


class MarksFile:
    """If the file is missing or damaged, no marks are loaded, and those from the containers' labels are
    used."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> dict[str, Mark]:
        try:
            loaded = json.loads(self._file.read_text(encoding="utf-8"))
            return {pod: Mark(**mark) for pod, mark in loaded.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.error("%s cannot be read, the pods' marks are lost: %s", self._file, error)
            return {}

    def save(self, marks: Mapping[str, Mark]) -> None:
        new = self._file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(to_builtins(marks), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # else the older file may be back after a crash
        finally:
            os.close(folder)
