"""From a registered handler to something that can be called with a job: makes the class, runs its setup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from stoker.worker.registration import MODIFIER, Registration
from stoker.worker.sdk import Device, Job


def prepare(registration: Registration, device: Device) -> Callable[[Job], Any]:
    """For synchronous handlers. Whatever the handler's own code raises passes through."""
    call, _ = _begin(registration, device)
    return call


async def prepare_async(registration: Registration, device: Device) -> Callable[[Job], Any]:
    """For asynchronous handlers, on their loop: their setup may be asynchronous too."""
    call, pending = _begin(registration, device)
    if pending is not None:
        await pending
    return call


def modifier_of(registration: Registration, call: Callable[[Job], Any]) -> Callable[[int], object] | None:
    """What is asked how many jobs to take at once: of a class its own, else the one it was marked with."""
    instance = getattr(call, "__self__", None) if registration.is_class else None
    own: Callable[[int], object] | None = getattr(instance, MODIFIER, None)
    return registration.modifier if own is None else own


def _begin(registration: Registration, device: Device) -> tuple[Callable[[Job], Any], Awaitable[None] | None]:
    if not registration.is_class:
        return registration.target, None
    instance = registration.target()
    setup = getattr(instance, "setup", None)
    pending = setup(device) if setup is not None else None
    return instance.run, pending if isinstance(pending, Awaitable) else None
