"""Libraries that a process does not import until it needs them: each costs time at every start, and memory
for as long as the process runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

RICH = "rich rich.markdown pygments markdown_it"
SERVERS = "uvicorn starlette fastapi"
STORES = "boto3 botocore sqlalchemy psycopg"
HEAVY = f"{SERVERS} {STORES} torch numpy PIL"
AGENT = "stoker.cli.daemons.__main__, stoker.cli.agent.process"
CONTROL = "stoker.cli.daemons.__main__, stoker.cli.control.process"
WITHOUT = {
    "stoker.worker.runtime": f"{RICH} {HEAVY} typer httpx2 grpc pydantic stoker.cli stoker.agent",
    "stoker.cli.main": f"{RICH} {HEAVY} httpx2 grpc pydantic email stoker.agent stoker.models",
    "stoker.cli.daemons.__main__": f"{RICH} {HEAVY} typer httpx2 grpc pydantic email",
    "stoker.cli.jobs.commands": f"{RICH} {HEAVY} grpc pydantic stoker.control stoker.agent",
    "stoker.cli.up.up": f"{HEAVY} typer grpc stoker.agent.node stoker.control.store",
    "stoker.cli.page": f"torch numpy PIL {STORES} grpc jwt stoker.agent stoker.control stoker.models",
    AGENT: f"{RICH} {HEAVY} typer pydantic docker",
    CONTROL: f"{RICH} typer torch numpy PIL boto3 s3transfer psycopg sqlalchemy.dialects.postgresql"
    " nicegui stoker.agent stoker.control.http.management.app jwt",
}
"""What no process imports at its start, by the modules that it begins with."""


@pytest.mark.parametrize("process", WITHOUT)
def test_a_process_starts_without_what_it_may_never_need(process: str) -> None:
    listing = f"import sys, {process}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", listing], capture_output=True, text=True, check=True)
    assert set(WITHOUT[process].split()) & set(found.stdout.split()) == set()


def test_what_was_imported_is_never_looked_at_again() -> None:
    frozen = (
        "import gc\n"
        "from stoker.cli.processes.imports import uncollected\n"
        "with uncollected():\n"
        "    assert not gc.isenabled()\n"
        "    made = [[] for _ in range(50_000)]\n"
        "assert gc.isenabled()\n"
        "print(gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 1_000)\n"
    )
    found = subprocess.run([sys.executable, "-P", "-c", frozen], capture_output=True, text=True, check=True)
    assert found.stdout == "True True\n"
