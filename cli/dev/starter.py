"""`stoker init`: a project that runs. It overwrites nothing."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from rich.console import Console

from stoker.cli.errors import CliError

GPU = '''"""A queue endpoint on a GPU, or on a CPU where no node has one: POST /gpu_worker/runsync"""

from stoker.client import endpoint


@endpoint(name="gpu-worker", workers=(0, 1), idle_timeout=60)  # gpu="NVIDIA L4" waits for one of these
def describe(text: str = "hello") -> dict:
    """Says which device it runs on."""
    import os

    print("a line for the terminal")
    return {"text": text, "device": os.environ.get("CUDA_VISIBLE_DEVICES") or "CPU"}
'''
CPU = '''"""A queue endpoint on CPUs: POST /cpu_worker/runsync"""

from stoker.client import endpoint


@endpoint(name="cpu-worker", cpu=True, workers=(0, 2))
def count(text: str) -> dict:
    """Counts the words of a text."""
    words = text.split()
    print(len(words), "words")
    return {"words": len(words), "longest": max(words, key=len, default="")}
'''
LB = '''"""A load-balanced endpoint: requests go straight to a worker, without a queue."""

from stoker.client import endpoint

api = endpoint(name="lb-worker", cpu=True, workers=(1, 2))


@api.get("/hello/{name}")
def hello(name: str) -> dict:
    """Greets somebody."""
    print("hello to", name)
    return {"message": f"hello, {name}"}


@api.post("/add")
def add(a: int, b: int) -> dict:
    """Adds two numbers."""
    return {"sum": a + b}
'''
ENV = """# Copy this file to .env, which git ignores.
STOKER_API_KEY=
# STOKER_URL=https://stoker.example.com
"""
IGNORED = """.env
.stoker/
.venv/
__pycache__/
"""
PYPROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["stoker"]
"""
README = """# {name}

```sh
stoker dev --local            # on this machine alone
```

In another terminal:

```sh
curl -s localhost:8888/cpu_worker/runsync -d '{{"input": {{"text": "a few words"}}}}'
curl -s localhost:8888/lb_worker/hello/you
```

With a platform: copy `.env.example` to `.env`, set the key, and run `stoker dev`.
<http://localhost:8888/docs> shows all routes.
`stoker deploy` creates endpoints that stay, and `stoker undeploy` deletes them.
"""


def project_files(name: str) -> dict[str, str]:
    return {
        "gpu_worker.py": GPU,
        "cpu_worker.py": CPU,
        "lb_worker.py": LB,
        ".env.example": ENV,
        ".gitignore": IGNORED,
        "pyproject.toml": PYPROJECT.format(name=project_name(name)),
        "README.md": README.format(name=name),
    }


def project_name(folder: str) -> str:
    """Returns the name of a project in a folder of this name: letters, digits, ".", "_" and "-", as Python's
    packaging allows."""
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-").lower() or "app"


def write_project(folder: Path, console: Console) -> None:
    """Raises CliError if one of the files is there already."""
    name = folder.resolve().name
    files = project_files(name)
    there = [file for file in files if (folder / file).exists()]
    if there:
        raise CliError(f"{folder} has {', '.join(there)} already, and nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"the project cannot be written to {folder}: {error.strerror}") from error
    console.print(f"{folder}: {', '.join(files)}", soft_wrap=True)
    go = "" if folder == Path() else f"cd {folder} && "
    console.print(f"run it: {go}stoker dev --local", soft_wrap=True)
