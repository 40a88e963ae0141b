"""Runs GPU tests and benchmarks on a machine that has a GPU and no access to a package registry.

    python bench/on_a_gpu.py pack [3.12]                                here: downloads wheels to .whl/
    python3 bench/on_a_gpu.py test                                      there, with .whl/ copied too
    python3 bench/on_a_gpu.py run bench/models/talking_video.py gpu     there

The machine must have Python, torch, transformers and their dependencies (PRESENT). The models need more
packages (PACKED), in the versions of constraints.txt; `pack` downloads them for that machine's Python on
x86-64. `run` unpacks them into .whl/site, prints the versions of the packages that are present, and replaces
itself with Python; `test` so runs GPU_TESTS. Nothing is installed outside of .whl/.
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
SOUND = ("av", "soundfile", "cffi", "pycparser")
REQUESTS = ("requests", "charset-normalizer", "urllib3", "certifi")
PYTEST = ("pytest", "pytest-asyncio", "pytest-timeout", "pluggy", "iniconfig")
JSONSCHEMA = ("jsonschema", "jsonschema-specifications", "referencing", "rpds-py", "attrs")
PROMPTS = ("ftfy", "wcwidth")
PACKED = (*DIFFUSERS, *REQUESTS, *SOUND, *PYTEST, *JSONSCHEMA, *PROMPTS)
PRESENT = (
    "torch",
    "transformers",
    "accelerate",
    "safetensors",
    "huggingface_hub",
    "numpy",
    "pillow",
    "hypothesis",
    "psutil",
    "httpx2",
)

GPU_TESTS = (
    "tests/models/test_attention.py",
    "tests/models/talking_video/test_on_a_gpu.py",
    "tests/models/text_to_image/test_gpu.py",
)
"""The files with tests that need a GPU: to collect the others takes the platform's packages."""

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def pack(python: str = "3.12") -> None:
    """Downloads the wheels of PACKED, after removing old ones: two versions cannot be unpacked together."""
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
    """Unpacks the wheels and executes Python; never returns."""
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    if not wheels:
        sys.exit(
            f"{WHEELS} has no wheels: run `python bench/on_a_gpu.py pack` on a machine with network access"
        )
    shutil.rmtree(SITE, ignore_errors=True)
    command = ["install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", *command, "--target", str(SITE), *wheels], check=True)
    print(", ".join(map(_found, PRESENT)), flush=True)
    paths = [str(SITE), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), HF_HUB_OFFLINE="1")
    os.chdir(ROOT)
    # With -m, Python would import from ROOT first; a bench must import from its own folder.
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
    parser.add_argument("verb", choices=["pack", "run", "test"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Python's arguments for `run`")
    options = parser.parse_args()
    if options.verb == "pack":
        pack(*options.arguments[:1])
    elif options.verb == "run":
        run(options.arguments)
    else:
        run(["-m", "pytest", "-m", "gpu", *GPU_TESTS, *options.arguments])


if __name__ == "__main__":
    main()
