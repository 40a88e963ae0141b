"""Makes a registered handler callable with a job: creates the class and runs its setup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from stoker.worker.errors import clean
from stoker.worker.job.job import Job
from stoker.worker.sdk import Device
from stoker.worker.setup.registration import MODIFIER, Registration

SERVES = "serves"
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
    """The handler's concurrency modifier: the method of its class, else the one it was marked with."""
    instance = getattr(call, "__self__", None) if registration.is_class else None
    own: Callable[[int], object] | None = getattr(instance, MODIFIER, None)
    return registration.modifier if own is None else own


def serves_of(registration: Registration, call: Callable[[Job], Any]) -> str:
    """The attribute `serves` of a handler's class, which names what it runs, such as a model."""
    instance = getattr(call, "__self__", None) if registration.is_class else None
    serves = getattr(instance, SERVES, "")
    return clean(serves, SERVES_MAX) if isinstance(serves, str) else ""


def _begin(registration: Registration, device: Device) -> tuple[Callable[[Job], Any], Awaitable[None] | None]:
    if not registration.is_class:
        return registration.target, None
    instance = registration.target()
    setup = getattr(instance, "setup", None)
    pending = setup(device) if setup is not None else None
    return instance.run, pending if isinstance(pending, Awaitable) else None
