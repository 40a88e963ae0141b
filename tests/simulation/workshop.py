"""The workers of a simulated host: the agent's fake ones, with a script for each attempt and a witness.

An input is `{"request": 7, "plan": [SCRIPT, ...]}`. Attempt n runs the n-th script, and those
after the last one run the last. `chunks` is how many it emits, `pad` how large its output is; both tell
whose they are: chunk `[attempt, n]`, output `{"request": 7, "attempt": 2, "pad": "…"}`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Protocol

from stoker.agent.errors import SpawnFailed
from stoker.agent.interfaces import WorkerWatcher
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.testing.fake_spawner import FakeProcess, FakeSpawner, Start
from stoker.wire.messages import AttemptKey, Device, WorkerSpec
from stoker.worker.frames import Frame
from tests.simulation.virtual_loop import VirtualLoop


class RunWatch(Protocol):
    def began(self, host: str, key: AttemptKey, others: int, slots: int) -> None: ...

    def left(self, host: str, key: AttemptKey) -> None: ...

    def started(self, host: str, worker: str, others: list[str], lacks: list[str]) -> None: ...

    def died_beside(self, waiting: list[AttemptKey]) -> None: ...


class Ledger(dict[AttemptKey, Any]):
    """The jobs in one worker process; whatever takes one out of it has ended the handler's run. `slots`: how
    many at once its agent was told; `taken`: how many it had taken by then, which may still come and end."""

    def __init__(self, host: str, watch: RunWatch) -> None:
        self._host, self._watch, self.slots, self.taken = host, watch, 0, 0

    def __setitem__(self, key: AttemptKey, job: Any) -> None:
        self._watch.began(self._host, key, len(self), max(self.slots, self.taken))
        super().__setitem__(key, job)

    def __delitem__(self, key: AttemptKey) -> None:
        super().__delitem__(key)
        self.taken -= 1
        self._watch.left(self._host, key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]


class SimProcess(FakeProcess):
    _jobs: Ledger

    def watched(self, host: str, watch: RunWatch) -> None:
        self._watch = watch
        self._jobs = Ledger(host, watch)

    def _hand_over(self, frame: Frame) -> None:
        reported = {"ready": "concurrency", "slots": "n"}.get(frame.kind)
        if reported is not None:
            assert isinstance(self._watcher, Worker)
            self._jobs.taken = len(self._watcher.running)
            self._jobs.slots = max(1, min(frame.fields[reported], self.spec.concurrency))
        super()._hand_over(frame)

    def _reap(self) -> None:
        assert isinstance(self._watcher, Worker)
        self._watch.died_beside(list(self._watcher.waiting))
        super()._reap()

    def _run(self, frame: Frame) -> None:
        more = dict(frame.fields.get("more", {}))
        own = more["saved"]["input"] if "saved" in more else len(frame.body)
        script = json.dumps(script_of(json.loads(frame.body[:own]), frame.attempt)).encode()
        if "saved" in more:
            more["saved"] = {**more["saved"], "input": len(script)}
        fields = {**frame.fields, "more": more}
        super()._run(replace(frame, fields=fields, body=script + frame.body[own:]))

    def close(self) -> None:
        """The descriptors that nobody took."""
        for frame in self._unread:
            if frame.fd is not None:
                os.close(frame.fd)
        self._unread.clear()
        self._close()


def script_of(job_input: dict[str, Any], attempt: int) -> dict[str, Any]:
    plan = job_input["plan"]
    script: dict[str, Any] = dict(plan[min(attempt, len(plan)) - 1])
    script["chunks"] = chunks_of(script, attempt)
    output = {"request": job_input["request"], "attempt": attempt, "pad": "p" * script.pop("pad", 0)}
    if script.get("files"):
        output["url"] = {"$file": 0}
    return {**script, "output": output}


def chunks_of(script: dict[str, Any], attempt: int) -> list[Any]:
    pad = "c" * script.get("chunk_pad", 0)
    script.pop("chunk_pad", None)
    return [[attempt, n, pad] if pad else [attempt, n] for n in range(script.get("chunks", 0))]


class SimSpawner(FakeSpawner):
    """`weights`: the keys of those on the host's disk."""

    def __init__(
        self,
        host: str,
        watch: RunWatch,
        loop: VirtualLoop,
        start: Callable[[str], Start],
        weights: Collection[str],
    ) -> None:
        super().__init__()
        self._host, self._watch, self._loop, self._start_of = host, watch, loop, start
        self._weights = weights

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> FakeProcess:
        start = self._start_of(spec.endpoint)
        if start.spawn_error is not None:
            raise SpawnFailed(start.spawn_error)
        others = [one.spec.worker for one in self.processes if set(one.spec.devices) & set(spec.devices)]
        lacks = [entry.name for entry in spec.weights if entry.key not in self._weights]
        self._watch.started(self._host, spec.worker, others, lacks)
        pid = 1000 + len(self.spawned)
        process = SimProcess(pid, spec, start, watcher, self.processes.remove)
        process.watched(self._host, self._watch)
        self.processes.append(process)
        self.spawned.append(process)
        return process

    async def close(self) -> None:
        if not self._loop.over:
            await super().close()

    def close_files(self) -> None:
        for process in self.spawned:
            if isinstance(process, SimProcess):
                process.close()
