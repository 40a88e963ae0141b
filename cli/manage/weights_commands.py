"""`stoker weights list|lock|fetch|verify|remove`: the hosted models' weights on this machine, checked with
weights.lock. `weights_places` says where they are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.weights.sources import Hub, Mirror
from stoker.agent.weights.store import WeightsStore, bytes_below
from stoker.cli import tables
from stoker.cli.agent.weights import SharedDigests
from stoker.cli.errors import CliError
from stoker.cli.manage.weights_places import ListedHub, bring, hub_of, mirror_of
from stoker.models.weights import (
    FOLDER,
    Entry,
    Lock,
    LockedFile,
    cache_path,
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

COLUMNS = ("name", "locked", "fetched", "verified", "size", "licence")


def lock(name: str, folder: Path | None, file: Path | None, licence: str | None, console: Console) -> None:
    """Fills an entry of weights.lock from the hub's records, or from a folder, which is trusted. In a lock
    file of the operator's own, a folder makes an entry, and the file, where there is none."""
    if file is not None and folder is not None:
        found = read_lock(file) if file.exists() else Lock(())
        if name not in found:
            found = found.with_entry(Entry(name, FOLDER, licence or "not stated", ()))
    elif file is not None and not file.exists():
        raise CliError(
            f"there is no lock {file}: --from FOLDER makes one; to keep an entry of this installation in a"
            " lock of your own, name that in STOKER_WEIGHTS_LOCK in place of --lock"
        )
    else:
        found = read_lock(file)
    entry, written = found.entry(name), file or lock_path()
    if licence is not None:
        entry = replace(entry, licence=licence)
    hub = ListedHub(hub_of(os.environ))
    filled = lock_from_hub(entry, hub) if folder is None else lock_from_folder(entry, folder)
    _write(filled, written)
    at = f" at {filled.commit}" if filled.commit else ""
    console.print(
        f"locked {name}{at}: {len(filled.files)} files, {_size(filled)}, in {written}", soft_wrap=True
    )


def _write(filled: Entry, path: Path) -> None:
    """Writes the entry to a lock, beside those that it has. Raises CliError."""
    there = read_lock(path) if path.exists() else Lock(())
    try:
        write_lock(there.with_entry(filled), path)
    except OSError as error:
        raise CliError(
            f"{path} cannot be written: {error.strerror}; name a lock of your own in STOKER_WEIGHTS_LOCK"
        ) from None


def fetch_all(
    names: Sequence[str],
    folder: Path,
    mirror: str | None,
    config: Path | None,
    environ: Mapping[str, str],
    console: Console,
    lock_file: Path | None = None,
) -> None:
    """Fetches entries of the lock, with a bar of bytes, rate and remaining time at a terminal. Raises
    WeightsError."""
    entries, hub = _entries(names, lock_file), hub_of(environ)
    chosen = mirror_of(mirror, config, environ)
    for entry in entries:
        own = folder_of(entry, folder)
        console.print(f"{entry.name} ({_size(entry)}, licence: {entry.licence})")
        with _bar(console, entry) as arrived:
            fetching = _Fetching(hub, chosen, arrived, console)
            fetch(entry, own, fetching.bring, fetching.on_file)
        console.print(f"  complete and verified in {own}", soft_wrap=True)


class _Fetching:
    """The fetch of one entry: counts the bytes of its files that are there."""

    def __init__(
        self, hub: Hub, mirror: Mirror | None, arrived: Callable[[int], None], console: Console
    ) -> None:
        self._hub, self._mirror, self._arrived, self._console = hub, mirror, arrived, console
        self._before = 0

    def bring(self, entry: Entry, file: LockedFile, to: Path) -> str:
        before = self._before
        return bring(entry, file, to, self._hub, self._mirror, lambda there: self._arrived(before + there))

    def on_file(self, file: LockedFile) -> None:
        self._before += file.size or 0
        self._arrived(self._before)
        if not self._console.is_terminal:
            self._console.print(f"  {file.path}")


@contextmanager
def _bar(console: Console, entry: Entry) -> Iterator[Callable[[int], None]]:
    """Shows a bar at a terminal; yields the function that is called with the bytes that are there."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(entry.name, total=entry.size)
        yield lambda there: bar.update(task, completed=there)


def remove(names: Sequence[str], folder: Path, console: Console) -> None:
    """Removes the folders of these entries, however they were fetched, and what has arrived of others. Raises
    CliError for weights that a worker uses."""
    store = WeightsStore(folder, 0, SharedDigests())
    for name in names:
        found = _folders_of(name, folder)
        if not found:
            raise CliError(f"there are no weights {name!r} in {folder}")
        freed = sum(sum(map(bytes_below, (folder / one, store.part(one)))) for one in found)
        for one in found:
            if store.is_own(one):
                if not store.remove(one):
                    raise CliError(
                        f"{one} is in use by a worker; remove its endpoint, or stop its agent first"
                    )
                continue
            for path in (folder / one, store.part(one)):
                remove_tree(path)
            cache_path(folder / one).unlink(missing_ok=True)
        console.print(f"removed {name}: {_bytes(freed)}")


def _folders_of(name: str, folder: Path) -> list[str]:
    """Returns the names of the entry's folders, and of those that are not complete."""
    found = [name] if any((folder / one).is_dir() for one in (name, f".{name}.part")) else []
    if (folder / name).is_symlink():
        found = []
    kept = [path.name for path in folder.glob("*@*")] + [path.name[1:-5] for path in folder.glob(".*@*.part")]
    return found + sorted({one for one in kept if one.rpartition("@")[0] == name})


def show(folder: Path, lock_file: Path | None = None, *, as_json: bool) -> None:
    """Lists the entries. Computes no hash: `verified` is the last result of a fetch, a worker or `verify`."""
    records = [_record(entry, folder) for entry in read_lock(lock_file).entries]
    rows = [[_cell(name, record[name]) for name in COLUMNS] for record in records]
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
        "size": entry.size,
        "licence": entry.licence,
    }


def _cell(column: str, value: str | bool | int | None) -> str:
    if column == "size":
        return "size unknown" if value is None else _bytes(int(value))
    return value if isinstance(value, str) else "yes" if value else "no"


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


def _size(entry: Entry) -> str:
    return "size unknown" if entry.size is None else _bytes(entry.size)


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"
