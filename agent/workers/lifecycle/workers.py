"""The node's workers: starts, drains and stops them until they are what control desires.

A worker is here from the Desired that names it until its process is reaped and control no longer desires it.
In between it may have many processes.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.agent.workers.lifecycle.worker import Worker
from stoker.agent.workers.lifecycle.worker_context import WorkerContext
from stoker.wire.messages import HeldWorker, WorkerSpec


class Workers:
    """The workers of this node. `by_name` is the caller's dictionary, and changed here alone."""

    def __init__(self, by_name: dict[str, Worker], context: WorkerContext[Worker]) -> None:
        self.by_name, self._context = by_name, context
        self._closed = False

    def volumes(self) -> set[str]:
        """Returns the volumes of the workers, including workers that are stopping."""
        return {worker.spec.volume for worker in self.by_name.values()}

    def held(self) -> tuple[HeldWorker, ...]:
        return tuple(worker.held() for worker in self.by_name.values())

    def desire(self, specs: Iterable[WorkerSpec]) -> None:
        """Starts the workers that are named and missing, and drains those that are here and not named. Does
        nothing once `drain_all` or `stop_all` was called: the agent ends."""
        if self._closed:
            return
        wanted = {spec.worker: spec for spec in specs}
        for worker in list(self.by_name.values()):
            if worker.name in wanted:
                if not worker.wanted:
                    worker.keep()
                worker.source.renew(wanted[worker.name])
            elif worker.wanted:
                worker.drain("it is no longer wanted")
        for name, spec in wanted.items():
            if name not in self.by_name:
                self.by_name[name] = Worker(spec, self._context)
                self.by_name[name].start()

    def pause_or_resume(self) -> None:
        for worker in self.by_name.values():
            worker.pause_or_resume()

    def drain_all(self, why: str) -> None:
        """Ends idle workers now, the others with their last attempt. Nothing is started any more."""
        self._closed = True
        for worker in list(self.by_name.values()):
            worker.drain(why)

    def stop_all(self, why: str) -> None:
        self._closed = True
        for worker in list(self.by_name.values()):
            worker.stop(why)

    def discard(self) -> None:
        for worker in self.by_name.values():
            worker.discard()
