"""`stoker up`: object store, control, agent and the hosted endpoints on this machine, until Ctrl-C.

    embedded object store (unless an S3 is configured) ─> control ─> agent
    one Ctrl-C: agent, control, object store end in this order; a second one kills

This process runs no jobs and listens nowhere: it starts, watches and stops (`children`, `supervisor`).
Secrets reach the children through their environment, and each gets only its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stoker.cli import dotenv, s3_settings, weights_commands
from stoker.cli.children import AllFacts, Children, Launch
from stoker.cli.data_folder import DataFolder, held, kept_token
from stoker.cli.hosted import declared, wanted_weights
from stoker.cli.readiness import announce
from stoker.cli.stopping import on_signals
from stoker.cli.terminal import plain_console
from stoker.cli.token_source import API_KEY, JOIN_TOKEN, Source
from stoker.control.config import load_config
from stoker.models.weights import weights_folder
from stoker.outbound.local_s3 import LocalS3

CONTROL, AGENT = "control", "agent"

GRACE_S = 5
"""Of whoever sits before a terminal and waits. What is not done by then runs again at the next start."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    data_dir: Path
    config: Path | None
    host: str
    port: int
    grpc_port: int
    hosted: tuple[str, ...]
    ready_fd: int | None = None


@dataclass(frozen=True, slots=True)
class Secrets:
    """`new_key` says that the key was made just now and is shown once."""

    api_key: str
    key_source: Source
    new_key: bool
    join_token: str
    join_source: Source


def find_secrets(folder: DataFolder, environ: Mapping[str, str], here: Path) -> Secrets:
    join = kept_token(folder.join_token, "jt")[0], Source(JOIN_TOKEN, folder.join_token)
    given = dotenv.lookup(API_KEY, environ, here)
    if given is not None:
        file = None if environ.get(API_KEY) else here / dotenv.FILE
        return Secrets(given, Source(API_KEY, file), False, *join)
    key, made = kept_token(folder.api_key, "sk")
    return Secrets(key, Source(API_KEY, folder.api_key), made, *join)


async def run_up(options: UpOptions, console: Console) -> int:
    folder = DataFolder.make(options.data_dir)
    with held(folder.lock, f"another `stoker up` is running on {folder.root}"):
        config = load_config(options.config)
        declared(config, options.hosted, os.environ)  # better refused here than in control's log
        secrets = find_secrets(folder, os.environ, Path.cwd())
        weights_commands.prepare(wanted_weights(options.hosted, os.environ), weights_folder())
        async with AsyncExitStack() as stack:
            store = s3_settings.from_config(config) or s3_settings.from_environment(os.environ)
            if store is None:
                store = (await stack.enter_async_context(LocalS3(folder.root))).config
            up = _Up(options, folder, secrets, s3_settings.to_environment(store), config.aliases, console)
            return await up.run()


class _Up:
    def __init__(
        self,
        options: UpOptions,
        folder: DataFolder,
        secrets: Secrets,
        store: Mapping[str, str],
        aliases: Mapping[str, str],
        console: Console,
    ) -> None:
        self._options, self._folder, self._secrets, self._store = options, folder, secrets, store
        self._aliases, self._console = aliases, console
        self._ready_before = False
        self._children = Children((CONTROL, AGENT), self._launch, self._say, self._all_ready)
        for name in (CONTROL, AGENT):
            _rotate(folder.logs / f"{name}.log")

    async def run(self) -> int:
        with on_signals(self._stop):
            return await self._children.run()

    def _stop(self) -> None:
        self._say(
            f"stopping: running jobs get {GRACE_S} s to end, or go back to the queue; once more to kill"
        )
        self._children.stop()

    def _say(self, text: str) -> None:
        self._console.print(f"stoker: {text}")

    def _launch(self, name: str, facts: AllFacts) -> Launch:
        command = self._control(facts) if name == CONTROL else self._agent(facts)
        env = {key: value for key, value in os.environ.items() if not key.startswith("STOKER_S3_")}
        env.pop(API_KEY, None)
        secrets = self._secrets
        env[JOIN_TOKEN] = secrets.join_token
        if name == CONTROL:
            sources = secrets.key_source.tell() | secrets.join_source.tell()
            env |= {API_KEY: secrets.api_key, **sources, **self._store}
        return Launch((*stoker_command(), *command), env, self._folder.logs / f"{name}.log")

    def _control(self, facts: AllFacts) -> list[str]:
        """Started again, it takes the ports that it had: agents and callers know them."""
        before = facts.get(CONTROL, {})
        port = before["http"].rpartition(":")[2] if before else str(self._options.port)
        grpc_port = before["grpc"].rpartition(":")[2] if before else str(self._options.grpc_port)
        command = ["control", "--host", self._options.host, "--port", port, "--grpc-port", grpc_port]
        command += ["--data-dir", str(self._folder.root)]
        for hosted in self._options.hosted:
            command += ["--hosted", hosted]
        if self._options.config is not None:
            command += ["--config", str(self._options.config)]
        return command

    def _agent(self, facts: AllFacts) -> list[str]:
        command = ["agent", "--control", facts[CONTROL]["grpc"], "--data-dir", str(self._folder.agent)]
        return [*command, "--grace", str(GRACE_S)]

    def _all_ready(self, facts: AllFacts) -> None:
        if self._ready_before:
            self._say("everything runs again")
            return
        self._ready_before = True
        self._console.print(self._table(facts))
        if self._secrets.new_key:
            self._console.print(
                f"The API key, shown this once and kept in {self._secrets.key_source.where}:\n\n"
                f"    export STOKER_API_KEY={self._secrets.api_key}\n",
                soft_wrap=True,
            )
        self._say("ready; Ctrl-C stops all of it")
        if self._options.ready_fd is not None:
            announce(facts[CONTROL], self._options.ready_fd)

    def _table(self, facts: AllFacts) -> Table:
        control, agent = facts[CONTROL], facts[AGENT]
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        table.add_row("API", f"{control['http']}/v2")
        table.add_row("documentation", f"{control['http']}/docs")
        for endpoint in filter(None, control.get("endpoints", "").split(" ")):
            table.add_row("endpoint", f"{control['http']}/v2/{endpoint}")
        for alias, target in self._aliases.items():
            table.add_row("alias", f"{control['http']}/v2/{alias} is {target}")
        table.add_row("devices", agent.get("devices", ""))
        table.add_row("nodes join at", control["grpc"])
        table.add_row("API key", self._secrets.key_source.where)
        table.add_row("data, logs", f"{self._folder.root}, {self._folder.logs}")
        return table


def stoker_command() -> tuple[str, ...]:
    """Another part, by the interpreter that runs this one; -P keeps the current folder off its path."""
    return (sys.executable, "-P", "-m", "stoker.cli")


def _rotate(log: Path) -> None:
    """What was printed in the run before is kept once."""
    if log.exists():
        os.replace(log, log.with_suffix(".log.1"))


def run(options: UpOptions) -> int:
    return asyncio.run(run_up(options, plain_console()))
