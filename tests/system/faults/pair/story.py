"""The story of a leader and a spare: each stage kills or pauses something while callers submit a portion.

    callers ──(a portion of the jobs for each stage)──> leader, spare ──> two agents ──> workers
                                                           └────┬──> PostgreSQL
    killed    leader, agent, another, database, leader
    paused    leader and an agent together; database

A stage lets callers submit a third of its portion, and the second third while an urgent job runs: so it
knows how long a new job takes at this load. With the rest it ends or stops its victim, and measures how long
such a job takes then.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.client import Client
from tests.servers.postgres_server import PostgresServer
from tests.system.faults.pair.portioned_callers import TIMEOUT_S, PortionedCallers, longest_gap, seen_for
from tests.system.faults.pair.two_controls import AGENTS, TwoControls
from tests.system.stack import START_S, Process, until

PATIENCE_S = 4 * START_S
WAIT_MS = 120_000
ENDS_S = 60.0


@dataclass(frozen=True)
class Stage:
    """The cost of one stage, in seconds: until a new job had run, from the kill or from the end of a pause;
    what that takes without either; for how long callers saw 503, or got no answer in time; and for how long
    no job of theirs was accepted."""

    name: str
    resumed_s: float
    usual_s: float
    refused_s: float
    unanswered_s: float
    unserved_s: float


def killed(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


class Story:
    """The stages, and their costs so far. `job_input` is of the jobs that it submits itself."""

    def __init__(
        self,
        controls: TwoControls,
        server: PostgresServer,
        callers: PortionedCallers,
        job_input: Callable[[], dict[str, Any]],
    ) -> None:
        self._controls, self._server, self._callers = controls, server, callers
        self._input = job_input
        self.stages: list[Stage] = []
        self.own: list[str] = []
        """The ids of the jobs that it submitted itself."""

    def tell(self, jobs: int, pause_s: float) -> None:
        """Goes through all stages, with so many jobs of the callers in all."""
        stages: Sequence[tuple[str, Callable[[], float]]] = (
            ("leader killed", self._leader_killed),
            ("agent killed", lambda: self._agent_killed(AGENTS[0])),
            ("another agent killed", lambda: self._agent_killed(AGENTS[1])),
            ("leader and agent paused", lambda: self._leader_and_agent_paused(pause_s)),
            ("database killed", self._database_killed),
            ("database paused", lambda: self._database_paused(pause_s)),
            ("leader killed again", self._leader_killed),
        )
        for number, (name, happens) in enumerate(stages, 1):
            first, last = jobs * (number - 1) // len(stages), jobs * number // len(stages)
            self._stage(name, happens, first, last)

    def _stage(self, name: str, happens: Callable[[], float], first: int, last: int) -> None:
        third = (last - first) // 3
        self._callers.let(third)
        self._accepted(first + third)
        self._callers.let(third)
        usual_s = self._job_has_run()
        self._accepted(first + 2 * third)
        self._callers.let(last - first - 2 * third)
        began = time.monotonic()
        resumed_s = happens()
        self._accepted(last)
        answers = list(self._callers.answers)
        refused_s, unanswered_s = (seen_for(answers, began, what) for what in ("503", "Unreachable"))
        stage = Stage(name, resumed_s, usual_s, refused_s, unanswered_s, longest_gap(answers, began))
        self.stages.append(stage)
        print(stage)

    def _accepted(self, jobs: int) -> None:
        accepted = self._callers.accepted
        until(lambda: len(accepted) >= jobs, PATIENCE_S, f"{jobs} jobs", lambda: len(accepted))

    def _job_has_run(self, since: float | None = None) -> float:
        """Returns how long it took, by default from now on."""
        began = time.monotonic() if since is None else since
        with Client(self._controls.http, self._controls.stack.key, timeout_s=TIMEOUT_S, resends=5) as client:
            record = client.runsync("sold", self._input(), wait_ms=WAIT_MS, policy={"priority": "urgent"})
        assert record.status == "COMPLETED", record
        self.own.append(record.id)
        return time.monotonic() - began

    # -- what happens

    def _leader_killed(self) -> float:
        began = time.monotonic()
        killed(self._controls.process(self._controls.leader))
        self._controls.leads(self._controls.spare)
        resumed_s = self._job_has_run(began)
        self._controls.start_spare()
        return resumed_s

    def _agent_killed(self, name: str) -> float:
        began = time.monotonic()
        killed(self._controls.process(name))
        resumed_s = self._job_has_run(began)
        self._controls.start_agent(name)
        return resumed_s

    def _leader_and_agent_paused(self, pause_s: float) -> float:
        """The spare leads, and the other agent works on."""
        began = time.monotonic()
        name = self._controls.leader
        still = [self._controls.process(one) for one in (name, AGENTS[0])]
        for process in still:
            process.send_signal(signal.SIGSTOP)
        self._controls.leads(self._controls.spare)
        resumed_s = self._job_has_run(began)
        until(lambda: time.monotonic() - began >= pause_s, PATIENCE_S, "the end of the pause")
        for process in still:
            process.send_signal(signal.SIGCONT)
        assert still[0].wait(ENDS_S) == 1
        assert "another control has taken over the database" in self._controls.stack.log(name)
        self._controls.start_spare()
        return resumed_s

    def _database_killed(self) -> float:
        self._server.kill()
        self._server.start()
        return self._job_has_run()

    def _database_paused(self, pause_s: float) -> float:
        leader, began = self._controls.leader, time.monotonic()
        with self._server.paused():
            until(lambda: time.monotonic() - began >= pause_s, PATIENCE_S, "the end of the pause")
        resumed_s = self._job_has_run()
        assert self._controls.process(leader).poll() is None, (
            "nobody takes over for a server that stands still"
        )
        return resumed_s
