"""Runs the tests that want a GPU, and the benchmarks, on a machine that has one and reaches no registry.

    python bench/on_a_gpu.py pack [3.12]                                here: wheels into .whl/
    python3 bench/on_a_gpu.py run -m pytest tests/models -m gpu         there, with .whl/ beside the sources
    python3 bench/on_a_gpu.py run bench/talking_video.py gpu            there

The machine brings Python, torch, transformers and what these need (PRESENT). The models want a few packages
more (PACKED), in the versions of constraints.txt; `pack` fetches them for that machine's Python on x86-64.
`run` unpacks them into .whl/site, says which versions of the rest it found, and becomes the Python that it is
asked for. Nothing is installed for anybody else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / ".whl"
SITE = WHEELS / "site"

DIFFUSERS = ("diffusers", "importlib_metadata", "zipp", "lazy-importer")
REQUESTS = ("requests", "charset-normalizer", "urllib3", "certifi")
PYTEST = ("pytest", "pytest-asyncio", "pytest-timeout", "pluggy", "iniconfig")
JSONSCHEMA = ("jsonschema", "jsonschema-specifications", "referencing", "rpds-py", "attrs")
PACKED = (*DIFFUSERS, *REQUESTS, "av", *PYTEST, *JSONSCHEMA)
PRESENT = (
    "torch",
    "transformers",
    "accelerate",
    "safetensors",
    "huggingface_hub",
    "numpy",
    "pillow",
    "hypothesis",
)

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def pack(python: str = "3.12") -> None:
    """The wheels of PACKED; older ones are removed, for two of a name cannot be unpacked."""
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    shutil.rmtree(WHEELS, ignore_errors=True)
    command = ["download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python, "--dest", str(WHEELS)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    wanted = [f"{name}=={pinned[name]}" for name in PACKED]
    subprocess.run([sys.executable, "-m", "pip", *command, *wanted], check=True)
    for wheel in sorted(WHEELS.iterdir()):
        print(f"{wheel.stat().st_size / 2**20:7.1f} MiB  {wheel.name}")


def run(arguments: list[str]) -> None:
    """Never returns."""
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    if not wheels:
        sys.exit(
            f"{WHEELS} holds no wheels; `python bench/on_a_gpu.py pack` fetches them where there is a network"
        )
    shutil.rmtree(SITE, ignore_errors=True)
    command = ["install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", *command, "--target", str(SITE), *wheels], check=True)
    print(", ".join(map(_found, PRESENT)), flush=True)
    paths = [str(SITE), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), HF_HUB_OFFLINE="1")
    os.chdir(ROOT)
    # With -m the first place to import from would be ROOT; a bench imports what lies beside it.
    safe = ["-P"] if arguments[:1] == ["-m"] else []
    os.execv(sys.executable, [sys.executable, *safe, *arguments])


def _found(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {name}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["pack", "run"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of `run`: Python's own")
    options = parser.parse_args()
    if options.verb == "run":
        run(options.arguments)
    pack(*options.arguments[:1])


if __name__ == "__main__":
    main()
