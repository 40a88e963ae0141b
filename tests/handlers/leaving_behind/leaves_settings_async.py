"""The same as `leaves_settings`, as a task of a loop."""

import importlib.util
import os

spec = importlib.util.spec_from_file_location(
    "leaves_settings", os.path.join(os.path.dirname(__file__), "leaves_settings.py")
)
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)


async def handler(job):
    return plain.handler(job)
