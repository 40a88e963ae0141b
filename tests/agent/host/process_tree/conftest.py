"""The fixtures for real processes, and the proof that none is left."""

from __future__ import annotations

from tests.agent.real_processes import gone, new_watcher, no_leaks, prologue, python_worker, spawner, start

__all__ = ["gone", "new_watcher", "no_leaks", "prologue", "python_worker", "spawner", "start"]
