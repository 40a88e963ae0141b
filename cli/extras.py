"""Messages about the package's extras that a command needs, if the install lacks them.

Standard library only: the command line's own libraries may be missing. `importlib.metadata` is imported where
a message needs it, since it takes a fifth of the time of a short command.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence

from stoker.cli.errors import CliError

PACKAGE = "stoker"
NEEDS = {
    "up": ("control", "agent"),
    "control": ("control",),
    "agent": ("agent",),
    "key": ("control",),
    "ca": ("control",),
    "database": ("control",),
    "backup": ("control",),
    "restore": ("control",),
    "dev": ("control",),
    "page": ("page",),
    "run": ("control",),
    "model": ("models",),
    "weights": ("models",),
}
"""The extras of a command, by its name. All other commands call a service, and need none."""

NAMES = {"PIL": "pillow", "google": "protobuf", "grpc": "grpcio", "jwt": "pyjwt", "pynvml": "nvidia-ml-py"}
"""Modules whose name differs from that of their distribution."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra == [\"']([^\"']+)[\"']")


def has(distribution: str) -> bool:
    """Returns whether a distribution is installed."""
    return _installed(distribution)


def check(extras: Sequence[str], otherwise: str = "") -> None:
    """Raises CliError if distributions of these extras are missing. `otherwise` is added to the message."""
    absent = sorted({name for extra in extras for name in _distributions(extra) if not _installed(name)})
    if absent:
        does = "is" if len(absent) == 1 else "are"
        raise CliError(f"{', '.join(absent)} {does} not installed; {how_to_install(extras)}{otherwise}")


def missing_module_message(missing: str, arguments: Sequence[str]) -> str:
    """Returns the message for a command that failed to import the module `missing`."""
    names = [argument for argument in arguments if not argument.startswith("-")]
    needed = NEEDS.get(names[0] if names else "", ())
    top = missing.partition(".")[0]
    distribution = _canonical(NAMES.get(top, top))
    if not any(distribution in _distributions(extra) for extra in needed):
        others = (extra for extra in ("agent", "control", "models", "page") if extra not in needed)
        needed += tuple(extra for extra in others if distribution in _distributions(extra))[:1]
    command = " ".join([PACKAGE, *names[:1]])
    return f"`{command}` needs {distribution}, which is not installed; {how_to_install(needed)}"


def how_to_install(extras: Iterable[str]) -> str:
    """Returns the pip command for this interpreter and this install's own source: an index may have another
    package of the same name."""
    names = ",".join(extras)
    wanted = f"[{names}]" if names else ""
    return f"install it with: {shlex.join([sys.executable, '-m', 'pip', 'install', *_source(wanted)])}"


def _source(wanted: str) -> list[str]:
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url = str(origin.get("url", ""))
    if not url:
        return [PACKAGE + wanted]
    if "dir_info" in origin:
        folder = url2pathname(urlsplit(url).path) + wanted
        return ["-e", folder] if origin["dir_info"].get("editable") else [folder]
    vcs = origin.get("vcs_info", {})
    return [f"{PACKAGE}{wanted} @ " + (f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url)]


def _distributions(extra: str) -> set[str]:
    from importlib import metadata

    try:
        required = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return set()
    names = ((_NAME.match(line), _EXTRA.search(line)) for line in required)
    return {_canonical(name[0]) for name, of in names if name and of and of[1] == extra}


def _installed(distribution: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
