"""`stoker weights lock|fetch|verify`: the hosted models' weights on this machine, held to weights.lock.

Mirrors for machines that do not reach the hub: a folder, or `s3://bucket/prefix` in the object store that
`[s3]` of the configuration or STOKER_S3_* in the environment gives access to. Both hold `<model>/<path>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from stoker.cli import s3_settings
from stoker.cli.errors import CliError
from stoker.control.config import load_config
from stoker.models.weights import (
    Entry,
    LockedFile,
    Mirror,
    fetch,
    lock_from_folder,
    lock_from_hub,
    lock_path,
    read_lock,
    verify,
    write_lock,
)
from stoker.outbound.objects import ObjectStore

S3 = "s3://"


def lock(name: str, folder: Path | None, file: Path | None, console: Console) -> None:
    """Fills one entry: from the hub's records, or from a folder that is trusted as it is."""
    file = file or lock_path()
    found = read_lock(file)
    entry = found.entry(name)
    filled = lock_from_hub(entry) if folder is None else lock_from_folder(entry, folder)
    write_lock(found.with_entry(filled), file)
    at = f" at {filled.commit}" if filled.commit else ""
    console.print(f"locked {name}{at}: {len(filled.files)} files, {_size(filled)}")


def fetch_all(
    names: Sequence[str],
    folder: Path,
    mirror: str | None,
    config: Path | None,
    environ: Mapping[str, str],
    console: Console,
) -> None:
    entries = _entries(names)
    source, close = _mirror(mirror, config, environ)
    try:
        for entry in entries:
            _fetch(entry, folder / entry.name, source, console)
    finally:
        close()


def _fetch(entry: Entry, folder: Path, mirror: Mirror | None, console: Console) -> None:
    def told(file: LockedFile) -> None:
        console.print(f"  {file.path}")

    console.print(f"{entry.name} ({_size(entry)}, licence: {entry.licence})")
    fetch(entry, folder, mirror=mirror, on_file=told)
    console.print(f"  complete and verified in {folder}", soft_wrap=True)


def prepare(names: Sequence[str], folder: Path) -> None:
    """Makes what Stoker makes itself, and only verifies the rest: to download it is a decision of its own."""
    for entry in _entries(names) if names else []:
        if entry.is_built:
            fetch(entry, folder / entry.name)
        else:
            verify(entry, folder / entry.name)


def verify_all(names: Sequence[str], folder: Path, console: Console) -> None:
    """Raises WeightsRefused naming the files. Without names: what is on this machine."""
    entries = _entries(names)
    if not names:
        entries = [entry for entry in entries if (folder / entry.name).exists()]
        if not entries:
            raise CliError(f"there are no weights in {folder}; get them with: stoker weights fetch NAME")
    for entry in entries:
        verify(entry, folder / entry.name)
        console.print(f"{entry.name}: {len(entry.files)} files, {_size(entry)}, as locked")


def _entries(names: Sequence[str]) -> list[Entry]:
    found = read_lock()
    return [found.entry(name) for name in names] if names else list(found.entries)


def _mirror(
    given: str | None, config: Path | None, environ: Mapping[str, str]
) -> tuple[Mirror | None, Callable[[], None]]:
    if given is None:
        return None, lambda: None
    if not given.startswith(S3):
        folder = Path(given)
        if not folder.is_dir():
            raise CliError(f"the mirror {given} is no folder")
        return folder, lambda: None
    bucket, _, prefix = given.removeprefix(S3).partition("/")
    known = s3_settings.from_config(load_config(config)) or s3_settings.from_environment(environ)
    if known is None:
        raise CliError(f"to read {given}, name its object store in [s3] of stoker.toml or in STOKER_S3_*")
    store = ObjectStore(replace(known, bucket=bucket, folder=""))
    prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    return lambda name, path: store.get_file(prefix + name, path), store.close


def _size(entry: Entry) -> str:
    if entry.size is None:
        return "size unknown"
    return f"{entry.size / 1e9:.1f} GB" if entry.size >= 1e8 else f"{entry.size / 1e6:.2f} MB"
