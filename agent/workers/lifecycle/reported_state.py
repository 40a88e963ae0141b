"""The state of a worker as reported to control: its phase and the reason for it, its slots, what it runs, and
its start."""

from __future__ import annotations

from collections.abc import Callable

from stoker.agent.workers.lifecycle import restarts
from stoker.agent.workers.lifecycle.process_life import ProcessLife
from stoker.wire.messages import HeldWorker, WorkerPhase, WorkerSpec, WorkerState


class ReportedState:
    """The last phase that was reported. `report` sends a message to control. `life` is None where the worker
    has no process."""

    def __init__(self, spec: WorkerSpec, report: Callable[[WorkerState], object]) -> None:
        self._spec, self._report = spec, report
        self.phase: WorkerPhase = "starting"
        self.reason = ""
        self._waits_for = ""

    def change(
        self, life: ProcessLife | None, phase: WorkerPhase, reason: str, log_tail: tuple[str, ...] = ()
    ) -> None:
        """Reports a ready http worker that is out of rotation as unhealthy."""
        if phase == "ready" and life is not None and life.unfit:
            phase, reason = "unhealthy", life.unfit
        self._send(life, phase, reason, log_tail)

    def will_wait(self, waits_for: str, *, failed: bool) -> None:
        """Reports that the worker's process has not started: this node does something first, or tried to."""
        if failed:
            self._send(None, "unhealthy", waits_for, (), waits_for)
        else:
            self._send(None, "starting", "", (), waits_for)

    def will_start(self) -> None:
        """Reports that what the worker waited for is done, if it waited for anything."""
        if self._waits_for:
            self._send(None, "starting", "", ())

    def _send(
        self,
        life: ProcessLife | None,
        phase: WorkerPhase,
        reason: str,
        log_tail: tuple[str, ...],
        waits_for: str = "",
    ) -> None:
        self.phase, self.reason, self._waits_for = phase, reason, waits_for
        spec = self._spec
        slots = life.ready_slots if life is not None and phase == "ready" else None
        serves, stages = ("", ()) if life is None else (life.serves, life.stages)
        about = spec.worker, spec.endpoint, spec.version
        self._report(WorkerState(*about, phase, reason, log_tail, slots, serves, waits_for, stages))

    def will_restart(
        self, decision: restarts.RestartDecision, log_tail: tuple[str, ...], *, is_cause: bool
    ) -> None:
        """Reports that the worker's process is started again, or is unhealthy. `is_cause`: the reason is the
        cause of the process's end, so its last lines need not explain it."""
        if decision.unhealthy:
            reason = restarts.crash_reason(decision.why, is_cause, log_tail)
            self.change(None, "unhealthy", reason, log_tail)
        else:
            self.change(None, "starting", decision.why, log_tail)

    def held(self, life: ProcessLife | None) -> HeldWorker:
        """Returns the worker's state for Hello."""
        spec = self._spec
        slots = None if life is None else life.ready_slots
        serves, stages = ("", ()) if life is None else (life.serves, life.stages)
        about = spec.worker, spec.endpoint, spec.version
        return HeldWorker(*about, self.phase, spec.devices, slots, serves, self._waits_for, stages)
