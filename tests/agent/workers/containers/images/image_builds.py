"""Images built by the recipes of the repository, on a base of this host's Python, off the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.agent.workers.containers.images.wheels_here import make_wheels
from tests.container_engine_here import add_python

ROOT = Path(__file__).parents[5]
BUILDX_FROM = 23
"""The version of docker's command from which on BuildKit is a plug-in."""
BASE = "stoker-test-base:1"
HEADERS = Path(sysconfig.get_path("include"), "Python.h")
PIP = "[global]\nno-index = true\nfind-links = /wheels\n"
LOOKS = """
import os
for top, _, names in os.walk("/"):
    for name in {"server.key", "stack.py", "voice.flac", "Makefile"}.intersection(names):
        print(top, name)
"""
"""What is in the checkout, and not to be in the image."""


def skip_unless_it_can_be_built(address: str) -> None:
    if "podman" in address:
        pytest.skip("the image is built by docker's command")
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("which files belong to the image is known by git")
    if not HEADERS.exists():
        pytest.skip(f"the image's base is made of this host's Python, which has no {HEADERS} (python3-dev)")
    if not shutil.which("cc"):
        pytest.skip("the image has the C compiler of this host, which has none (gcc)")
    if not shutil.which("tini"):
        pytest.skip("the image's first process is tini, which is not on this host (package tini)")


def make_base(docker: list[str], folder: Path, *parts: str) -> None:
    """Python with venv, a shell, sed, and the requirements of these extras as wheels."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *(need for part in parts for need in extras[part])]
    objects = make_wheels(wheels, "setuptools", *needs)
    (folder / "pip.conf").write_text(PIP)
    shell, editor, init, compiler = (
        Path(name).resolve()
        for name in ("/bin/sh", "/bin/sed", shutil.which("tini") or "", shutil.which("cc") or "")
    )
    with tarfile.open(folder / "base.tar", "w") as tar:
        add_python(tar, shell, editor, init, compiler, *objects, kept={"ensurepip"})
        tar.add(HEADERS)
        tar.add(init, "usr/bin/tini")
        tar.add(compiler, "usr/bin/cc")  # without cc1: nothing is compiled on a CPU
        tar.add(shell, "bin/sh")
        tar.add(editor, "bin/sed")
        tar.add(wheels, "wheels")
        tar.add(folder / "pip.conf", "etc/pip.conf")
    change = ["-c", "ENV PATH=/usr/bin:/bin"]
    command = [*docker, "import", *change, str(folder / "base.tar"), BASE]
    subprocess.run(command, check=True, capture_output=True)


def builder() -> str:
    """Returns a docker command that has BuildKit: as a plug-in or, before 23, built in. Skips without one."""
    for command in filter(shutil.which, ("docker", "/usr/bin/docker")):
        version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
        plugin = subprocess.run([command, "buildx", "version"], check=False, capture_output=True)
        if plugin.returncode == 0 or int(version.split()[2].partition(".")[0]) < BUILDX_FROM:
            return command
    pytest.skip("the recipe mounts caches, for which docker's command needs BuildKit (docker-buildx)")


def build(docker: list[str], context: Path, recipe: str, extras: str, tag: str) -> None:
    """Of the files that are in version control, as they are now."""
    listing = ["git", "-C", ROOT, "ls-files", "-z"]
    output = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    for name in filter(None, output.split("\0")):
        if (ROOT / name).exists():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, context / name, follow_symlinks=False)
    (context / "server.key").write_text("of the operator's")
    options = [
        "--network",
        "none",
        "--build-arg",
        f"BASE={BASE}",
        "--build-arg",
        f"EXTRAS={extras}",
        "-f",
        str(context / recipe),
        "-t",
        tag,
    ]
    command = [builder(), *docker[1:], "build", *options, str(context)]
    buildkit = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=buildkit)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
