"""The context of all attempts: the parts of the agent that each attempt needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from stoker.agent.interfaces import Inputs, Objects, Scratch
from stoker.agent.jobs.inputs.kept_requests import KeptRequests
from stoker.agent.jobs.reports.reports import Reports


class AttemptContext(Struct, frozen=True):
    """The context of attempts. `kept` requests chunks from control that saves cover; `spawn` runs a coroutine
    in the agent's task group."""

    reports: Reports
    objects: Objects
    scratch: Scratch
    inputs: Inputs
    kept: KeptRequests
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
