"""The preparation of a registered handler for calls with a job: creates the class and runs its setup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from stoker.worker.errors import clean
from stoker.worker.job.job import Job
from stoker.worker.sdk import Device
from stoker.worker.setup.registration import MODIFIER, Registration

SERVES, COLD_START = "serves", "cold_start_s"
SERVES_MAX = 1000
"""Bytes of it that are sent."""


def prepare(registration: Registration, device: Device) -> Callable[[Job], Any]:
    """Prepares a synchronous handler. Exceptions of the handler's own code pass through."""
    call, _ = _begin(registration, device)
    return call


async def prepare_async(registration: Registration, device: Device) -> Callable[[Job], Any]:
    """Prepares an asynchronous handler, on its loop: its setup may be asynchronous too."""
    call, pending = _begin(registration, device)
    if pending is not None:
        await pending
    return call


def modifier_of(registration: Registration, call: Callable[[Job], Any]) -> Callable[[int], object] | None:
    """Returns the handler's concurrency modifier: the method of its class, else the function in its mark."""
    own: Any = _attribute(registration, call, MODIFIER)
    return registration.modifier if own is None else own


def serves_of(registration: Registration, call: Callable[[Job], Any]) -> str:
    """Returns the attribute `serves` of a handler's class, which names what the handler runs, such as a
    model.
    """
    serves = _attribute(registration, call, SERVES)
    return clean(serves, SERVES_MAX) if isinstance(serves, str) else ""


def cold_start_of(registration: Registration, call: Callable[[Job], Any]) -> object:
    """Returns the attribute `cold_start_s` of a handler's class: the seconds of each stage of its setup, by
    name.
    """
    return _attribute(registration, call, COLD_START)


def _attribute(registration: Registration, call: Callable[[Job], Any], name: str) -> object:
    instance = getattr(call, "__self__", None) if registration.is_class else None
    return getattr(instance, name, None)


def _begin(registration: Registration, device: Device) -> tuple[Callable[[Job], Any], Awaitable[None] | None]:
    if not registration.is_class:
        return registration.target, None
    instance = registration.target()
    setup = getattr(instance, "setup", None)
    pending = setup(device) if setup is not None else None
    return instance.run, pending if isinstance(pending, Awaitable) else None
