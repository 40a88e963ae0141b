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
    "stoker.cli.main": f"{RICH} {HEAVY} asyncio httpx2 grpc pydantic email stoker.agent stoker.models",
    "stoker.cli.daemons.__main__": f"{RICH} {HEAVY} typer httpx2 grpc pydantic email",
    "stoker.cli.jobs.commands": f"{RICH} {HEAVY} asyncio grpc pydantic stoker.control stoker.agent",
    "stoker.cli.up.up": f"{HEAVY} typer httpx2 jsonschema grpc stoker.agent.node stoker.control.store"
    " stoker.models.hosted",
    "stoker.cli.page": f"torch numpy PIL {STORES} grpc jwt stoker.agent stoker.control stoker.models",
    AGENT: f"{RICH} {HEAVY} typer httpx2 html pydantic pynvml docker tarfile"
    " stoker.agent.workers.sdk_programs.worker stoker.models.weights",
    CONTROL: f"{RICH} typer httpx2 torch numpy PIL boto3 s3transfer psycopg sqlalchemy.dialects.postgresql"
    " jsonschema referencing attr cryptography.x509 jwt opentelemetry.sdk pydantic.v1.main"
    " nicegui stoker.agent stoker.models stoker.control.http.management.app",
}
"""What no process imports at its start, by the modules that it begins with."""


HTTP = "anyio brotli h11 httpcore2 httpx2 idna truststore typing_extensions"
MODELS = "annotated_doc annotated_types pydantic pydantic_core typing_extensions typing_inspection"
SESSIONS = "google grpc msgspec typing_extensions uvloop"
PACKAGES = {
    "stoker.worker.runtime": "",
    "stoker.cli.daemons.__main__": "",
    "stoker.cli.main": "annotated_doc shellingham typer",
    "stoker.cli.jobs.commands": f"annotated_doc shellingham typer {HTTP}",
    "stoker.cli.up.up": f"{MODELS} msgspec orjson rich",
    AGENT: SESSIONS,
    CONTROL: f"{SESSIONS} {MODELS} anyio click cryptography fastapi h11 httptools opentelemetry orjson"
    " prometheus_client python_multipart sqlalchemy standardwebhooks starlette uvicorn",
}
"""All packages that a process imports at its start."""

TOOLS = {"cython_runtime", "grpc_tools"}
"""What packages import where it is installed."""


def imported(process: str) -> set[str]:
    listing = f"import sys, {process}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", listing], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.mark.parametrize("process", WITHOUT)
def test_a_process_starts_without_what_it_may_never_need(process: str) -> None:
    assert set(WITHOUT[process].split()) & imported(process) == set()


@pytest.mark.parametrize("process", PACKAGES)
def test_a_process_imports_these_packages_and_no_others(process: str) -> None:
    packages = {name.partition(".")[0] for name in imported(process)} - set(sys.stdlib_module_names) - TOOLS
    own = {name for name in packages if not name.startswith("_")} - {"stoker"}
    assert own <= set(PACKAGES[process].split())


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
