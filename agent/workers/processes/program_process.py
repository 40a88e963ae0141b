"""Process of a program, as a worker has it: a program has no socket of frames."""

from __future__ import annotations

from stoker.agent.host.logs.tail import LogTail
from stoker.agent.interfaces import WorkerProcess
from stoker.worker.frames import Frame


class ProgramProcess:
    """The process of a program, for the agent and for the watcher of the process itself, `child`: a program
    speaks no frames."""

    child: WorkerProcess

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def alive(self) -> bool:
        return self.child.alive

    @property
    def tail(self) -> LogTail:
        return self.child.tail

    @property
    def image_id(self) -> str:
        return self.child.image_id

    def kill(self) -> None:
        self.child.kill()

    def on_frame(self, frame: Frame) -> None:
        raise AssertionError(f"{frame.kind} came from a worker that sends no frames")

    def on_broken(self, why: str) -> None:
        raise AssertionError(f"a program without frames broke their protocol: {why}")
