"""Checks that a handler's author declares: what must hold before a worker is given its first job.

    from stoker.worker import fitness_check

    @fitness_check
    def the_licence_server_answers():
        urllib.request.urlopen(LICENCES, timeout=5)

They run once in each process, after the handler's `setup` and before it is ready, in the order in which they
were declared. If one raises, the worker does not become ready: the platform reports which check and why,
waits and tries again, and no job is affected. What a check returns is ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from stoker.worker.errors import FitnessError, RegistrationError, describe

T = TypeVar("T", bound=Callable[[], Any])

_checks: list[Callable[[], Any]] = []


def fitness_check(check: T) -> T:
    """Declares a function without arguments, plain or async, as a check. Raises RegistrationError."""
    if not callable(check):
        raise RegistrationError(f"a fitness check must be a function without arguments, not {check!r:.80}")
    try:
        inspect.signature(check).bind()
    except TypeError:
        raise RegistrationError(f"the fitness check {_name(check)} must take no arguments") from None
    _checks.append(check)
    return check


def run_checks() -> None:
    """Runs the checks of a synchronous handler. Raises FitnessError."""
    for check in _checks:
        try:
            pending = check()
            if inspect.isawaitable(pending):
                import asyncio  # start-up time is a promise: see `runtime`

                asyncio.run(_finish(pending))
        except BaseException as error:  # user code may raise anything, SystemExit too
            _unfit(check, error)


async def run_checks_async() -> None:
    """Runs the checks on the loop of an asynchronous handler. Raises FitnessError."""
    for check in _checks:
        try:
            pending = check()
            if inspect.isawaitable(pending):
                await pending
        except BaseException as error:  # as above
            _unfit(check, error)


async def _finish(pending: Awaitable[Any]) -> None:
    await pending


def _unfit(check: Callable[[], Any], error: BaseException) -> NoReturn:
    raise FitnessError(f"fitness check {_name(check)}: {describe(error)}") from error


def _name(check: Callable[[], Any]) -> str:
    return getattr(check, "__name__", type(check).__name__)
