"""What holds for every test: no hub is asked for anything, none is held to a time, examples are the same in
each run (`profiles` has others), and this process adopts no orphans. What several need:
a PostgreSQL server, started when the first test asks for it."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import ssl
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from httpx2._transports import default as httpx2_transports

from tests import (
    parallel,
    profiles,  # noqa: F401  # loads the quick one
)
from tests.parallel import pytest_addoption, pytest_runtestloop, pytest_terminal_summary  # noqa: F401

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # as the commands have it: its handlers make descriptors anew
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small tensors, in several processes: others would spin
os.umask(0o022)  # users that a test chooses read what it writes

_create_ssl_context = httpx2_transports.create_ssl_context
_public_authorities = functools.cache(_create_ssl_context)


def _shared_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Each httpx2 client would read the public authorities anew, for 20 ms, whatever it calls."""
    if verify is True and cert is None and "SSL_CERT_FILE" not in os.environ:
        return _public_authorities()
    return _create_ssl_context(verify, cert, trust_env)


httpx2_transports.create_ssl_context = _shared_ssl_context

PR_SET_CHILD_SUBREAPER = 36
MANY_BYTES = 2000


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What the collection loads stays: the collector need not go through it, not while it grows, and not each
    time that a test asks for what is left behind. torch and all the tests are 700,000 objects, and 0.4 s.
    """
    gc.disable()
    parallel.pytest_collection(session)
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _no_subreaper_afterwards() -> Iterator[None]:
    """A spawner makes this process a subreaper; the next module's tests expect orphans to go elsewhere."""
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(autouse=True, scope="module")
def _what_a_module_leaves_stays() -> Iterator[None]:
    """Its garbage is collected, and reported as its own; what else it leaves (imports, caches) stays, and the
    collector need not go through it for the next module: that takes 0.3 s each time by the end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _no_server_of_commands_afterwards() -> Iterator[None]:
    yield
    if started := sys.modules.get("preloaded"):
        started.close()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Says where long bytes differ. pytest itself would search them for minutes for the least difference."""
    if op != "==" or not (isinstance(left, bytes) and isinstance(right, bytes)):
        return None
    if len(left) + len(right) < MANY_BYTES:
        return None
    places = [at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other]
    apart = max((abs(left[at] - right[at]) for at in places), default=0)
    first = f", first at {places[0]}" if places else ""
    return [
        f"{len(left)} bytes == {len(right)} bytes",
        f"{len(places)} bytes differ{first}, by {apart} at most",
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails beside real processes shows what they said."""
    report = yield
    stacks = getattr(sys.modules.get("stack"), "LIVING", ())
    if report.failed:
        report.sections += [
            (f"{name}.log of {item.name}", stack.end_of_log(name))
            for stack in stacks
            for name in stack.logged()
        ]
    return report


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    from tests.servers.postgres_server import CannotStart, PostgresServer

    try:
        server = PostgresServer()
    except CannotStart as why:
        pytest.skip(f"PostgreSQL does not start here: {why}")
    yield server
    server.close()
