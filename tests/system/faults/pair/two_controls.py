"""Two controls on one PostgreSQL, as on two hosts: one leads, the other waits. Two agents know both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.fernet import Fernet

from stoker.control import store
from stoker.control.rules.types import Endpoint
from stoker.control.store.database.secrets import Encryption
from tests.kept_port import kept_port
from tests.system.stack import START_S, Process, Stack, until

CONTROLS = ("control", "standby")
AGENTS = ("agent", "another")
UNLIMITED = "[rate_limits]\nrequests_per_worker = 1000000\n"
"""For their configuration: callers who are refused ask more often than the limit allows."""


class TwoControls:
    """The processes, by their names. `leader` is the name of a control. Each has a data folder of its own."""

    def __init__(self, stack: Stack, secret: str, ports: dict[str, tuple[int, int]]) -> None:
        self.stack, self._ports = stack, ports
        self.leader = CONTROLS[0]
        self._ready: dict[str, int] = {}
        self._waited = dict.fromkeys(CONTROLS, 0)
        self._variables = stack._control_variables() | {"STOKER_SECRET_KEY": secret}
        self.http = ",".join(f"http://127.0.0.1:{http}" for http, _ in ports.values())
        self.grpc = ",".join(f"127.0.0.1:{grpc}" for _, grpc in ports.values())

    @property
    def spare(self) -> str:
        return CONTROLS[self.leader == CONTROLS[0]]

    def process(self, name: str) -> Process:
        found: Process = getattr(self.stack, name)
        return found

    def start(self, name: str) -> None:
        """Starts a control that waits, and leads where no other one does."""
        http, grpc = self._ports[name]
        command = ["control", "--config", str(self.stack.config), "--data-dir", str(self.stack.folder / name)]
        command += ["--port", str(http), "--grpc-port", str(grpc), "--standby"]
        self._ready[name] = self.stack._spawn(command, name, self._variables)

    def start_spare(self) -> None:
        """Returns when it waits."""
        name = self.spare
        self.start(name)
        self._waited[name] += 1
        line, times = "waiting for it to end", self._waited[name]
        until(lambda: self.stack.log(name).count(line) >= times, START_S, f"a {name} that waits")

    def leads(self, name: str) -> None:
        """Returns when this control serves."""
        self.stack.facts = self.stack._ready(self.process(name), self._ready.pop(name), name)
        self.stack._call_control()
        self.leader = name

    def start_agent(self, name: str) -> None:
        """Returns when the agent is connected."""
        command = ["agent", "--control", self.grpc, "--data-dir", str(self.stack.folder / name)]
        started, _ = self.stack._start([*command, "--name", name], name, {})
        setattr(self.stack, name, started)


@contextmanager
def two_controls(folder: Path, database: str, endpoint: Endpoint) -> Iterator[TwoControls]:
    """Yields them, with a leader, a spare that waits, and both agents. `endpoint` is stored before."""
    stack, secret = Stack(folder, UNLIMITED, database=database), Fernet.generate_key().decode()
    opened = store.open_store(database, secrets=Encryption(secret))
    opened.writer.begin()
    store.put_endpoint(opened.writer, endpoint, time.time())
    opened.writer.commit()
    opened.close()
    with kept_port() as a, kept_port() as b, kept_port() as c, kept_port() as d:
        ports = [held.getsockname()[1] for held in (a, b, c, d)]
        by_name = zip(CONTROLS, [(ports[0], ports[1]), (ports[2], ports[3])], strict=True)
        controls = TwoControls(stack, secret, dict(by_name))
        try:
            controls.start(CONTROLS[0])
            controls.leads(CONTROLS[0])
            controls.start_spare()
            for agent in AGENTS:
                controls.start_agent(agent)
            yield controls
        except BaseException:
            for name in (*CONTROLS, *AGENTS):
                print(
                    f"--- {name}.log\n{stack.end_of_log(name) if (folder / f'{name}.log').exists() else ''}"
                )
            raise
        finally:
            stack._ended("another")
            stack.stop()
