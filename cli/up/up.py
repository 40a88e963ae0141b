"""`stoker up`: runs object store, control, agent and the hosted endpoints on this machine until Ctrl-C.

    embedded object store (unless [s3] is configured) ─> control ─> agent
    the first Ctrl-C stops agent, control and object store in this order; the second one kills them

This process runs no jobs and listens on no port: it starts, watches and stops its children (`children`,
`supervisor`). Secrets reach the children in their environment, and each gets only its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from stoker.cli.consoles import lasting_console, print_table
from stoker.cli.control import s3_settings
from stoker.cli.control.endpoints import declared_endpoints, with_hosted_aliases
from stoker.cli.control.token_source import API_KEY, JOIN_TOKEN, TokenSource
from stoker.cli.daemons.options import AgentOptions, ControlOptions
from stoker.cli.daemons.start import command
from stoker.cli.data_folder import DataFolder, load_or_create_token, locked
from stoker.cli.processes.readiness import MANAGER, announce
from stoker.cli.processes.stopping import on_signals
from stoker.cli.up.children import AllFacts, Children, Launch
from stoker.cli.up.crash_loops import CrashLoops
from stoker.cli.up.page import PAGE, PageChild
from stoker.cli.up.weights import prepare
from stoker.client import dotenv
from stoker.client.pasted import secret
from stoker.control.config.config import load_config
from stoker.control.http.server.listener import listen
from stoker.control.rules.types import Endpoint
from stoker.models.weights import weights_folder
from stoker.outbound.s3.local_server import LocalS3

CONTROL, AGENT = "control", "agent"
OF_CONTROL = ("STOKER_S3_", "STOKER_TLS_", "STOKER_BEHIND_PROXY", API_KEY)
"""Variables for control. The agent gets none of them, and control gets some of them as options."""

GRACE_S = 5
"""How long running jobs may take to end after Ctrl-C. Jobs that have not ended run again at the next
start."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    data_dir: Path
    config: Path | None
    host: str
    port: int
    grpc_port: int
    hosted: tuple[str, ...]
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    volume_root: Path | None = None
    reload: bool = False
    worker_user: str | None = None
    worker_users: str | None = None
    probes: str | None = None
    reclaim_notices: str | None = None
    log_format: str = "text"
    log_level: str = "info"
    page: bool = False
    ready_fd: int | None = None

    def page_options(self) -> tuple[str, ...]:
        """Returns the page's options for serving browsers: as control serves callers."""
        options = ["--host", self.host]
        if self.tls_cert is not None and self.tls_key is not None:
            options += [
                "--tls-cert",
                str(self.tls_cert.absolute()),
                "--tls-key",
                str(self.tls_key.absolute()),
            ]
        return (*options, *(["--behind-proxy"] if self.behind_proxy else []))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of `stoker up`. `new_key`: the key was created now, and is shown once."""

    api_key: str
    key_source: TokenSource
    new_key: bool
    join_token: str
    join_source: TokenSource


def find_tokens(folder: DataFolder, environ: Mapping[str, str], here: Path) -> Tokens:
    join = load_or_create_token(folder.join_token, "jt")[0], TokenSource(JOIN_TOKEN, folder.join_token)
    configured = dotenv.lookup(API_KEY, environ, here)
    if configured is not None:
        configured = secret(API_KEY, configured)
        file = None if environ.get(API_KEY) else here / dotenv.FILE
        return Tokens(configured, TokenSource(API_KEY, file), False, *join)
    key, created = load_or_create_token(folder.api_key, "sk")
    return Tokens(key, TokenSource(API_KEY, folder.api_key), created, *join)


async def run_up(options: UpOptions, console: Console) -> int:
    # Read before a folder is made; and again by control, whose errors would appear only in its log.
    config = load_config(options.config)
    endpoints = declared_endpoints(config, options.hosted, os.environ)
    aliases = with_hosted_aliases(endpoints, config.aliases)
    folder = DataFolder.make(options.data_dir)
    with locked(folder.lock, f"another `stoker up` is running on {folder.root}"):
        tokens = find_tokens(folder, os.environ, Path.cwd())
        if options.hosted:
            from stoker.cli.control.hosted import needed_weights

            prepare(needed_weights(options.hosted, os.environ), weights_folder())
        async with AsyncExitStack() as stack:
            store = s3_settings.from_config(config) or s3_settings.from_environment(os.environ)
            if store is None:
                store = (await stack.enter_async_context(LocalS3(folder.root))).config
            variables = s3_settings.to_environment(store)
            listener = stack.enter_context(listen(options.host, options.port))
            up = _Up(options, folder, tokens, variables, aliases, console, listener.fileno())
            return await up.run()


class _Up:
    def __init__(
        self,
        options: UpOptions,
        folder: DataFolder,
        tokens: Tokens,
        store: Mapping[str, str],
        aliases: Mapping[str, str],
        console: Console,
        http_fd: int,
    ) -> None:
        self._http_fd = http_fd
        """The listener that each control gets from here: callers wait in it while control is restarted."""
        self._options, self._folder, self._tokens, self._store = options, folder, tokens, store
        self._aliases, self._console = aliases, console
        self._ready_before = False
        self._children = Children(
            (CONTROL, AGENT), self._launch, self._print, self._all_ready, self._on_report
        )
        self._page = PageChild(
            stoker_command(), options.page_options(), tokens.api_key, folder.logs / "page.log", self._print
        )
        self._crash_loops = CrashLoops()
        for name in (CONTROL, AGENT, PAGE):
            _rotate(folder.logs / f"{name}.log")

    async def run(self) -> int:
        at_terminal = sys.stdout.isatty()
        with on_signals(self._stop, lambda: self._hangup(at_terminal)):
            async with self._reloading(), self._page.running():
                return await self._children.run()

    @asynccontextmanager
    async def _reloading(self) -> AsyncIterator[None]:
        """Watches the configuration and the handlers during the block, with --reload."""
        config = self._options.config
        if not self._options.reload or config is None:
            yield
            return
        from stoker.cli.up.reloading import Reloading

        def read() -> tuple[list[Endpoint], tuple[str, ...]]:
            found = load_config(config)
            return declared_endpoints(found, self._options.hosted, os.environ), found.local_roots

        reloading = Reloading(config, read, lambda: self._children.restart(CONTROL), self._print)
        watching = asyncio.create_task(reloading.run(), name="reloading")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    @MANAGER.reloading()
    def _hangup(self, at_terminal: bool) -> None:
        """Lets control, agent and page read their files again; stops where the terminal was closed."""
        if at_terminal and not sys.stdout.isatty():
            self._children.stop()
            return
        for pid in (self._children.pid(CONTROL), self._children.pid(AGENT), self._page.pid):
            if pid is not None:
                os.kill(pid, signal.SIGHUP)

    def _stop(self) -> None:
        self._print(
            f"stopping: running jobs get {GRACE_S} s to end, or go back to the queue; once more to kill"
        )
        self._children.stop()

    def _print(self, text: str) -> None:
        self._console.print(f"stoker: {text}", soft_wrap=True)

    def _on_report(self, report: Mapping[str, Any]) -> None:
        """Handles a report of the agent about a worker. An endpoint's log file has the worker's last
        lines."""
        notice = self._crash_loops.update(report)
        if notice is None:
            return
        log_file = ""
        if notice.log is not None:
            log = self._folder.logs / f"worker-{quote(notice.endpoint, safe='')}.log"
            try:
                log.write_text(notice.log, encoding="utf-8")
                log_file = f"; its last lines: {log}"
            except OSError as error:
                log_file = f"; its last lines cannot be written to {log}: {error.strerror}"
        self._print(notice.text + log_file)

    def _launch(self, name: str, facts: AllFacts, successor: bool = False) -> Launch:
        options = self._control(facts, successor) if name == CONTROL else self._agent(facts)
        fds: tuple[int, ...] = ()
        env = {key: value for key, value in os.environ.items() if not key.startswith(OF_CONTROL)}
        tokens = self._tokens
        env[JOIN_TOKEN] = tokens.join_token
        if name == CONTROL:
            sources = tokens.key_source.to_environment() | tokens.join_source.to_environment()
            env |= {API_KEY: tokens.api_key, **sources, **self._store}
            fds = (self._http_fd,)
        return Launch(command(options), env, self._folder.logs / f"{name}.log", fds)

    def _control(self, facts: AllFacts, successor: bool) -> ControlOptions:
        """Returns the options of control. After a restart, control uses the same ports, which agents and
        callers know. Its agent connects over loopback, without TLS."""
        before, options = facts.get(CONTROL, {}), self._options
        return ControlOptions(
            self._folder.root,
            options.config,
            options.host,
            options.port,
            grpc_host="127.0.0.1",
            grpc_port=int(before["grpc"].rpartition(":")[2]) if before else options.grpc_port,
            hosted=options.hosted,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            behind_proxy=options.behind_proxy,
            grpc_plain=True,
            standby=successor,
            reload=options.reload,
            log_format=options.log_format,
            log_level=options.log_level,
            http_fd=self._http_fd,
        )

    def _agent(self, facts: AllFacts) -> AgentOptions:
        options = self._options
        return AgentOptions(
            facts[CONTROL]["grpc"],
            None,
            self._folder.agent,
            worker_user=options.worker_user,
            worker_users=options.worker_users,
            volume_root=options.volume_root,
            grace_s=GRACE_S,
            reclaim_notices=options.reclaim_notices,
            probes=options.probes,
            log_format=options.log_format,
            log_level=options.log_level,
        )

    def _all_ready(self, facts: AllFacts) -> None:
        if self._ready_before:
            self._print("everything runs again")
            return
        self._ready_before = True
        print_table(self._console, (), self._rows(facts))
        if self._tokens.new_key:
            self._console.print(
                f"The API key, shown this once and kept in {self._tokens.key_source.where}:\n\n"
                f"    export STOKER_API_KEY={self._tokens.api_key}\n",
                soft_wrap=True,
            )
        if warning := facts[AGENT].get("warning"):
            self._print(f"warning: {warning}")
        self._print("ready; Ctrl-C stops all of it")
        if self._options.page:
            self._page.begin(facts[CONTROL]["http"])
        if self._options.ready_fd is not None:
            announce(facts[CONTROL], self._options.ready_fd)

    def _rows(self, facts: AllFacts) -> list[tuple[str, str]]:
        control, agent = facts[CONTROL], facts[AGENT]
        endpoints = filter(None, control.get("endpoints", "").split(" "))
        return [
            ("API", f"{control['http']}/v2"),
            ("documentation", f"{control['http']}/docs"),
            *(("endpoint", f"{control['http']}/v2/{endpoint}") for endpoint in endpoints),
            *_hosted_rows(self._options.hosted, agent.get("kinds", "")),
            *(("alias", f"{control['http']}/v2/{alias} is {to}") for alias, to in self._aliases.items()),
            ("devices", agent.get("devices", "")),
            ("nodes join at", control["grpc"]),
            ("API key", self._tokens.key_source.where),
            ("data, logs", f"{self._folder.root}, {self._folder.logs}"),
        ]


def _hosted_rows(hosted: Sequence[str], kinds: str) -> list[tuple[str, str]]:
    if not hosted:
        return []
    from stoker.cli.control.hosted import serving_rows

    return serving_rows(hosted, kinds)


def stoker_command() -> tuple[str, ...]:
    """Runs the command line with this interpreter; -P keeps the current folder off its import path."""
    return (sys.executable, "-P", "-m", "stoker.cli")


def _rotate(log: Path) -> None:
    """Keeps the log of the run before as `.log.1`."""
    if log.exists():
        os.replace(log, log.with_suffix(".log.1"))


def run(options: UpOptions) -> int:
    return asyncio.run(run_up(options, lasting_console()))
