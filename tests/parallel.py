"""Runs test files in several processes at once: with `--processes 3`, pytest collects once, and forks.

Each process runs one file after the other and sends its reports to the first process, which shows them as if
it had run the tests itself. A file's tests run in one process, in their order.

Tests that start processes wait for them; others compute. Every second process takes files of the first kind,
the others files of the second, so that the cores have something to do from beginning to end. The tests of one
folder run while the others are collected, which one core does alone. With `--begin-within S`, files that no
process has taken after S seconds are left out, and named at the end.
"""

from __future__ import annotations

import fcntl
import gc
import math
import os
import selectors
import signal
import time
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, TypeAlias

import pytest

WAIT = (
    *("system", "zoo", "agent/workers/sdk_programs", "conformance"),
    *(
        "agent/workers/containers",
        "agent/workers/processes",
        "agent/host/process_tree",
        "agent/host/sandbox",
        "agent/workers/zygotes",
    ),
    *("agent/host/devices", "agent/host/storage", "rogue_worker"),
)
"""The folders of tests that wait for processes, in the order in which they begin."""

EARLY = "zoo"
"""The folder that runs during the collection: it takes about as long, and is itself collected in a moment."""

RUN = pytest.StashKey["Run"]()
PIPE_BYTES = 1 << 20
"""The largest that the kernel makes. It holds what the tests of `EARLY` tell while nobody reads it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="run test files in so many processes at once")
    parser.addoption(
        "--begin-within", type=float, help="begin no file later than so many seconds; name those left out"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    option, config = session.config.option, session.config
    if option.processes < 2 or option.collectonly:
        return
    config._tmp_path_factory.getbasetemp()  # made once, for all
    config.stash[RUN] = run = Run(session)
    config.add_cleanup(run.close)
    for folder in (Path(argument, EARLY) for argument in config.args):
        if folder.is_dir():
            run.start_early(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    run = session.config.stash.get(RUN, None)
    if run is None or session.testsfailed:
        return None
    session.config.pluginmanager.get_plugin("terminalreporter").showfspath = False
    run.divide(session.items)
    try:
        for number in range(session.config.option.processes):
            run.start(number)
        run.follow()
    finally:
        run.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the files that were left out, so that nobody takes them for passed."""
    run = config.stash.get(RUN, None)
    for name in run.left_out() if run is not None else ():
        terminalreporter.write_line(f"LEFT OUT for lack of time: {name}")


def _place_among_waiting(file: Path) -> int | None:
    for place, folder in enumerate(WAIT):
        if f"/tests/{folder}/" in file.as_posix():
            return place
    return None


class Run:
    """The first process: gives files away, and shows the reports that come."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._files: list[list[pytest.Item]] = []
        self._left: tuple[deque[int], deque[int]] = (deque(), deque())
        within_s = session.config.option.begin_within
        self._last_begin = math.inf if within_s is None else time.monotonic() + within_s
        self._early: Path | None = None
        self._processes: dict[Connection, Process] = {}
        self._selector = selectors.PollSelector()
        """It has no descriptor, which the other processes would inherit."""

    def start_early(self, folder: Path) -> None:
        """A process that collects the tests of this folder itself, and runs them."""
        self._early = folder.resolve()
        ours, theirs = Pipe(duplex=False)
        fcntl.fcntl(ours.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._fork(ours, theirs, EARLY, lambda _: _collected(self._session, folder))

    def divide(self, items: list[pytest.Item]) -> None:
        """What has been collected is given away from now on; what already runs is not."""
        self._files = [list(items) for _, items in groupby(items, lambda item: item.path)]
        computes, waits = [], []
        for i, (item, *_) in enumerate(self._files):
            place = _place_among_waiting(item.path)
            if self._early is not None and self._early in item.path.parents:
                (process,) = self._processes.values()
                process.take(self._files[i])
            elif place is None:
                computes.append(i)
            else:
                waits.append((place, i))
        self._left = (deque(i for _, i in sorted(waits)), deque(computes))

    def start(self, number: int) -> None:
        ours, theirs = Pipe()
        self._fork(ours, theirs, number, lambda sender: _items(self._files, sender))

    def _fork(self, ours: Connection, theirs: Connection, name: int | str, items: Items) -> None:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            pid = os.fork()  # numpy has threads by now; it stops them before a fork and starts them after it
        if pid == 0:
            for other in (ours, *self._processes):
                other.close()
            self._processes.clear()  # they are not its own to end
            work(self._session, items, theirs, name)
        theirs.close()
        self._processes[ours] = process = Process(pid, name)
        for readable in (ours, process.end):
            self._selector.register(readable, selectors.EVENT_READ, ours)

    def follow(self) -> None:
        """Until all have ended, or until one failure is enough (`-x`). A process that a test left behind may
        hold its end of the connection open: so the end of a process is waited for, too."""
        while self._processes and not self._session.shouldfail:
            for connection in {key.data for key, _ in self._selector.select()}:
                if not connection.poll():
                    self._ended(connection)
                    continue
                try:
                    what, value = connection.recv()
                except EOFError:
                    self._ended(connection)
                else:
                    self._received(connection, what, value)

    def _received(self, connection: Connection, what: str, value: Any) -> None:
        hook, process = self._session.config.hook, self._processes[connection]
        if what == "next":
            connection.send(self._next_file(process))
        elif what == "error":
            raise RuntimeError(f"test process {process.name} ended with:\n{value}")
        else:
            nodeid, location, reports = value
            process.unfinished.pop(nodeid)
            hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
            for data in reports:
                report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    def _next_file(self, process: Process) -> int | None:
        assert isinstance(process.name, int)
        mine, other = self._left[process.name % 2], self._left[1 - process.name % 2]
        if time.monotonic() > self._last_begin or not (mine or other):
            return None
        taken = (mine or other).popleft()
        process.take(self._files[taken])
        return taken

    def left_out(self) -> list[str]:
        """Returns the files that no process took."""
        return [str(self._files[i][0].path) for left in self._left for i in left]

    def _ended(self, connection: Connection) -> None:
        """What a process has taken and not run has failed."""
        process = self._processes.pop(connection)
        for readable in (connection, process.end):
            self._selector.unregister(readable)
        connection.close()
        os.close(process.end)
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if status != 0 and not process.unfinished:
            raise RuntimeError(f"test process {process.name} ended with status {status} after its last test")
        for nodeid, location in process.unfinished.items():
            message = f"test process {process.name} ended with status {status}; this test has not ended"
            report = pytest.TestReport(nodeid, location, {}, "failed", message, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)

    def close(self) -> None:
        """Those that still run are interrupted, and end what they have started."""
        for connection, process in self._processes.items():
            os.kill(process.pid, signal.SIGINT)
            connection.close()
        for process in self._processes.values():
            os.waitpid(process.pid, 0)
            os.close(process.end)
        self._processes.clear()


class Process:
    """One of the others, as the first sees it."""

    def __init__(self, pid: int, name: int | str) -> None:
        self.pid = pid
        self.end = os.pidfd_open(pid)
        """Readable once it has ended."""
        self.name = name
        self.unfinished: dict[str, Any] = {}
        """Node id and location of what it has taken and not run."""

    def take(self, items: list[pytest.Item]) -> None:
        self.unfinished.update((item.nodeid, item.location) for item in items)


class Sender:
    """A plugin that tells the first process of each test, once it is over: in one message, as the sending and
    the receiving of five took longer than most tests."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[dict[str, Any]] = []

    def next_file(self) -> int | None:
        self._connection.send(("next", None))
        taken: int | None = self._connection.recv()
        return taken

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._connection.send(("test", (nodeid, location, self._reports)))
        self._reports = []


Items: TypeAlias = Callable[[Sender], Iterator[pytest.Item]]


def work(session: pytest.Session, items: Items, connection: Connection, name: int | str) -> None:
    """Another process: runs the files that it gets, and ends."""
    status, inherited = 1, _finalizers()
    try:
        sender = Sender(session.config, connection)
        _be_alone(session.config, name)
        session.config.pluginmanager.register(sender)
        for item, following in _with_next(items(sender)):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session.config._ensure_unconfigure()
        status = 0
    except BaseException:
        session._setupstate.teardown_exact(None)
        with suppress(OSError):  # the first process interrupts the others when it has heard enough
            connection.send(("error", traceback.format_exc()))
    finally:
        with suppress(Exception):  # as Python does at its end: the folders of what is never collected go
            for finalizer in _finalizers() - inherited:
                finalizer()
        os._exit(status)


def _finalizers() -> set[weakref.finalize[..., Any]]:
    return {one for one in weakref.finalize._registry if one.atexit}  # type: ignore[attr-defined]


def _be_alone(config: pytest.Config, name: int | str) -> None:
    """Shares no file with the other processes: neither what tests print nor what they write."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    config.pluginmanager.get_plugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._basetemp = Path(factory.getbasetemp(), f"process-{name}")
    factory._basetemp.mkdir(mode=0o700)


def _collected(session: pytest.Session, folder: Path) -> Iterator[pytest.Item]:
    session.perform_collect([str(folder)])
    gc.freeze()
    gc.enable()
    yield from session.items


def _items(files: list[list[pytest.Item]], sender: Sender) -> Iterator[pytest.Item]:
    while (taken := sender.next_file()) is not None:
        yield from files[taken]


def _with_next(items: Iterator[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the one after it, which tells pytest what fixtures to keep."""
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        yield item, following
        item = following
