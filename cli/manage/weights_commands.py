"""`stoker weights list|lock|fetch|verify`: the hosted models' weights on this machine, checked with
weights.lock.

A machine that cannot reach the hub can use a mirror: a folder, or `s3://bucket/prefix` in the object store of
`[s3]` in the configuration or of STOKER_S3_* in the environment. A mirror contains `<model>/<path>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli import tables
from stoker.cli.errors import CliError
from stoker.models.weights import (
    FOLDER,
    Entry,
    Lock,
    LockedFile,
    Mirror,
    fetch,
    folder_of,
    lock_from_folder,
    lock_from_hub,
    lock_path,
    read_lock,
    state,
    verify,
    write_lock,
)

S3 = "s3://"
COLUMNS = ("name", "locked", "fetched", "verified", "size", "licence")


def lock(name: str, folder: Path | None, file: Path | None, licence: str | None, console: Console) -> None:
    """Fills an entry of weights.lock from the hub's records, or from a folder, which is trusted. In a lock
    file of the operator's own, a folder makes an entry, and the file, where there is none."""
    if file is not None and folder is not None:
        found = read_lock(file) if file.exists() else Lock(())
        if name not in found:
            found = found.with_entry(Entry(name, FOLDER, licence or "not stated", ()))
    else:
        found = read_lock(file)
    file, entry = file or lock_path(), found.entry(name)
    if licence is not None:
        entry = replace(entry, licence=licence)
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
    lock_file: Path | None = None,
) -> None:
    entries = _entries(names, lock_file)
    source, close = _mirror(mirror, config, environ)
    try:
        for entry in entries:
            _fetch(entry, folder_of(entry, folder), source, console)
    finally:
        close()


def _fetch(entry: Entry, folder: Path, mirror: Mirror | None, console: Console) -> None:
    def on_file(file: LockedFile) -> None:
        console.print(f"  {file.path}")

    console.print(f"{entry.name} ({_size(entry)}, licence: {entry.licence})")
    fetch(entry, folder, mirror=mirror, on_file=on_file)
    console.print(f"  complete and verified in {folder}", soft_wrap=True)


def show(folder: Path, lock_file: Path | None = None, *, as_json: bool) -> None:
    """Lists the entries. Computes no hash: `verified` is the last result of a fetch, a worker or `verify`."""
    records = [_record(entry, folder) for entry in read_lock(lock_file).entries]
    rows = [[_cell(record[name]) for name in COLUMNS] for record in records]
    tables.show(COLUMNS, rows, records, as_json=as_json)


def _record(entry: Entry, folder: Path) -> dict[str, Any]:
    known = state(entry, folder_of(entry, folder))
    return {
        "name": entry.name,
        "locked": f"{len(entry.files) - len(entry.unknown)} of {len(entry.files)} files"
        if entry.unknown
        else True,
        "fetched": known is not None,
        "verified": known or False,
        "size": _size(entry),
        "licence": entry.licence,
    }


def _cell(value: str | bool) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"


def prepare(wanted: Mapping[str, Path | None], folder: Path) -> None:
    """Builds weights that Stoker builds itself, and verifies the others: only `fetch` downloads them.
    `wanted`: entries by name, each with its lock file unless that is this installation's."""
    for name, lock_file in wanted.items():
        entry = read_lock(lock_file).entry(name)
        if entry.is_built:
            fetch(entry, folder_of(entry, folder))
        else:
            verify(entry, folder_of(entry, folder))


def verify_all(names: Sequence[str], folder: Path, console: Console, lock_file: Path | None = None) -> None:
    """Raises WeightsRefused with the files that differ. Without names, verifies what is on this machine."""
    entries = _entries(names, lock_file)
    if not names:
        entries = [entry for entry in entries if folder_of(entry, folder).exists()]
        if not entries:
            raise CliError(f"there are no weights in {folder}; get them with: stoker weights fetch NAME")
    for entry in entries:
        verify(entry, folder_of(entry, folder))
        console.print(f"{entry.name}: {len(entry.files)} files, {_size(entry)}, as locked")


def _entries(names: Sequence[str], lock_file: Path | None = None) -> list[Entry]:
    found = read_lock(lock_file)
    return [found.entry(name) for name in names] if names else list(found.entries)


def _mirror(
    mirror: str | None, config: Path | None, environ: Mapping[str, str]
) -> tuple[Mirror | None, Callable[[], None]]:
    if mirror is None:
        return None, lambda: None
    if not mirror.startswith(S3):
        folder = Path(mirror)
        if not folder.is_dir():
            raise CliError(f"the mirror {mirror} is not a folder")
        return folder, lambda: None
    from stoker.cli.control import s3_settings
    from stoker.control.config.config import load_config
    from stoker.outbound.s3.objects import ObjectStore

    bucket, _, prefix = mirror.removeprefix(S3).partition("/")
    known = s3_settings.from_config(load_config(config)) or s3_settings.from_environment(environ)
    if known is None:
        raise CliError(f"to read {mirror}, name its object store in [s3] of stoker.toml or in STOKER_S3_*")
    store = ObjectStore(replace(known, bucket=bucket, folder=""))
    prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    return lambda name, path: store.get_file(prefix + name, path), store.close


def _size(entry: Entry) -> str:
    if entry.size is None:
        return "size unknown"
    return f"{entry.size / 1e9:.1f} GB" if entry.size >= 1e8 else f"{entry.size / 1e6:.2f} MB"
