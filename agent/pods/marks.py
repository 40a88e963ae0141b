"""The file of the pods' marks (`agent.pod`): small, JSON, in the agent's folder, replaced as a whole."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from stoker.agent.pod_events import Mark

log = logging.getLogger(__name__)


class MarksFile:
    """Without it, or with a torn one, the labels of the containers say what they can."""

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
            json.dump({pod: asdict(mark) for pod, mark in marks.items()}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # a name that is not there after a crash is an older file
        finally:
            os.close(folder)
