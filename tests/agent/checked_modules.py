"""The agent's pure modules that are held to checks, and the checks of each: `checks_<name>.py`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from load_module import load_module

MODULES = {
    "attempt": "attempts.attempt_machine",
    "chunks": "attempts.chunks",
    "cost": "attempts.running_attempt",
    "device_health": "devices.health",
    "memory_gate": "devices.memory_gate",
    "outbox": "reports.outbox",
    "pod": "pods.pod_machine",
    "process": "workers.process_machine",
    "recycle": "workers.recycle_policy",
    "restarts": "workers.restarts",
    "usage": "workers.usage",
    "zygote": "zygotes.zygote_machine",
}
MACHINES = {name: importlib.import_module(f"stoker.agent.{module}") for name, module in MODULES.items()}


def load_checks(name):
    """`EXAMPLES` are its functions that take the module alone and return nothing, so that none is forgotten;
    `ALL` are these and its `RANDOM` ones."""
    checks = load_module(f"agent_checks_{name}", Path(__file__).with_name(f"checks_{name}.py"))
    checks.EXAMPLES = [made for made in vars(checks).values() if _is_example(made, checks.__name__)]
    checks.ALL = [*checks.EXAMPLES, *getattr(checks, "RANDOM", ())]
    return checks


def _is_example(made, module):
    if not inspect.isfunction(made) or made.__module__ != module:
        return False
    signature = inspect.signature(made)
    return list(signature.parameters) in (["m"], ["machine"]) and signature.return_annotation == "None"
