"""Fitness checks: when they run, in which order, and what one that fails says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.worker import RegistrationError, fitness_check
from stoker.worker.setup import fitness

CHECKED = """
import asyncio, os, sys
from stoker.worker import fitness_check

done = []

@fitness_check
def first():
    done.append("first")

@fitness_check
async def second():
    await asyncio.sleep(0)
    done.append("second")

@fitness_check
def third():
    if os.path.exists(os.environ["BAD"]):
        {how}

class Handler:
    def setup(self, device):
        done.append("setup")
    {asynchronous}def run(self, job):
        return done
"""


@pytest.fixture
def checked(start_worker: Any, tmp_path: Path) -> Any:
    """A worker whose third check fails while the file `bad` exists."""

    def start(how: str = "raise OSError('no licence')", asynchronous: str = "") -> Any:
        (tmp_path / "checked.py").write_text(CHECKED.format(how=how, asynchronous=asynchronous))
        return start_worker(f"{tmp_path}/checked.py:Handler", env={"BAD": str(tmp_path / "bad")})

    return start


@pytest.mark.parametrize("asynchronous", ["", "async "])
def test_they_run_in_order_after_setup_and_before_ready(checked: Any, asynchronous: str) -> None:
    agent = checked(asynchronous=asynchronous)
    assert agent.setup().kind == "ready"
    agent.run()
    assert agent.next().body == b'["setup","first","second"]'


@pytest.mark.parametrize("asynchronous", ["", "async "])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise OSError('no licence')", "fitness check third: OSError: no licence\nTraceback"),
        ("sys.exit(3)", "fitness check third: SystemExit: the handler called sys.exit(3)"),
    ],
)
def test_one_that_fails_keeps_the_worker_from_being_ready(
    checked: Any, tmp_path: Path, how: str, message: str, asynchronous: str
) -> None:
    (tmp_path / "bad").touch()
    agent = checked(how, asynchronous)
    failed = agent.setup()
    assert failed.kind == "setup_failed"
    assert failed.fields["error"].startswith(message)
    assert agent.wait() == 1
    (tmp_path / "bad").unlink()
    assert checked(how, asynchronous).setup().kind == "ready", "and it starts when the cause is repaired"


def test_what_is_no_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "_checks", [])
    with pytest.raises(RegistrationError, match="the fitness check needy must take no arguments"):

        @fitness_check
        def needy(job: object) -> None: ...

    with pytest.raises(RegistrationError, match="must be a function without arguments, not 5"):
        fitness_check(5)  # type: ignore[type-var]
    assert fitness._checks == []


def test_a_check_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "_checks", [])

    def check() -> int:
        return 5

    assert fitness_check(check) is check
    assert fitness._checks == [check]
