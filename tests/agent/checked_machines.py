"""The agent's pure modules that are held to checks, and the checks of each: `checks_<name>.py`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

NAMES = "attempt cost device_health memory_gate outbox pieces pod process recycle restarts usage zygote"
MACHINES = {name: importlib.import_module(f"stoker.agent.{name}") for name in NAMES.split()}


def load_checks(name):
    path = Path(__file__).with_name(f"checks_{name}.py")
    spec = importlib.util.spec_from_file_location(f"agent_checks_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
