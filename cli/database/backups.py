"""`stoker backup` and `stoker restore`.

A backup is the database at one moment, whatever control does meanwhile. Objects of the object store are not
in it, nor what agents keep. A store that is restored knows what it knew at that moment, and nothing since.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from stoker import __version__
from stoker.cli.control.database import chosen, note_database
from stoker.cli.data_folder import DataFolder, locked
from stoker.cli.database.archive import KEY, SNAPSHOT, Manifest, digest, pack, unpack
from stoker.cli.database.place import opened_to_look
from stoker.cli.errors import CliError
from stoker.control.config.config import load_config
from stoker.control.store import Store, open_store
from stoker.control.store.database.failures import unavailable
from stoker.control.store.database.opening import tables_of
from stoker.control.store.database.secrets import (
    FILE,
    VARIABLE,
    Encryption,
    SecretKeyError,
    load_secrets,
    make_key_file,
)
from stoker.control.store.database.snapshots import count_objects, count_rows, replace_rows, write_snapshot
from stoker.control.store.tables.schema import SCHEMA_VERSION

AFTER = (
    "Keys and nodes that were revoked since are valid again: revoke them anew. Nodes that joined since are"
    " refused, and must join again. Jobs, keys and bills since are gone; jobs that ran or waited then run"
    " again, and send their webhooks again. Objects are not in a backup."
)


# ---- backup -------------------------------------------------------------------------------------


def backup(data_dir: Path, config: Path | None, file: Path, *, with_keys: bool, console: Console) -> None:
    if file.exists():
        raise CliError(f"{file} exists already: give the backup another name")
    if not file.absolute().parent.is_dir():
        raise CliError(f"there is no folder {file.absolute().parent} for the backup")
    with opened_to_look(data_dir, config) as store, _folder(file.absolute().parent) as folder:
        found = tables_of(store.writer)
        if found.version > SCHEMA_VERSION:
            raise CliError(
                f"the database {store.database.name} has schema version {found.version}, and this Stoker"
                f" knows {SCHEMA_VERSION}: back it up by the Stoker that wrote it"
            )
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        with _said(f"the database {store.database.name} cannot be backed up"):
            write_snapshot(store, folder / SNAPSHOT)
        if with_keys:
            make_key_file(folder / KEY, store.secrets.key_file())
        manifest = _described(store, folder, taken_at)
        pack(manifest, folder, file)
    jobs, megabytes = manifest.rows.get("jobs", 0), file.stat().st_size / (1 << 20)
    console.print(f"{file}: {jobs} jobs as of {taken_at}, {megabytes:.1f} MiB", soft_wrap=True)
    if not with_keys:
        console.print(
            f"The key to its secrets is not in it: keep {store.secrets.origin} elsewhere, or a restored"
            " control cannot read them. --with-keys puts it in.",
            soft_wrap=True,
        )
    if manifest.objects:
        console.print(f"{manifest.objects} objects that it names are not in it: back up the object store.")


def _described(store: Store, folder: Path, taken_at: str) -> Manifest:
    with closing(open_store(folder / SNAPSHOT, secrets=store.secrets, tables="look")) as copy:
        schema, rows, objects = (
            tables_of(copy.writer).version,
            count_rows(copy.writer),
            count_objects(copy.writer),
        )
        copy.writer.raw.execute("PRAGMA journal_mode = DELETE")
    names = [name for name in (SNAPSHOT, KEY) if (folder / name).exists()]
    digests = {name: digest(folder / name) for name in names}
    return Manifest(__version__, schema, taken_at, store.database.name, rows, objects, digests)


# ---- restore ------------------------------------------------------------------------------------


def restore(data_dir: Path, config: Path | None, file: Path, *, force: bool, console: Console) -> None:
    if not file.exists():
        raise CliError(f"there is no file {file}")
    loaded, folder = load_config(config), DataFolder.make(data_dir)
    where = chosen(folder, loaded, os.environ)
    runs = f"a control runs on {folder.root}: stop it first"
    with locked(folder.control_lock, runs), _folder(folder.root) as unpacked:
        manifest = unpack(file, unpacked)
        if manifest.schema > SCHEMA_VERSION:
            raise CliError(
                f"{file} has schema version {manifest.schema}, and this Stoker knows {SCHEMA_VERSION}:"
                " restore it by the Stoker that wrote it, or a later one"
            )
        if isinstance(where, Path) and where.exists() and not force:
            raise _there_is_one(str(where))
        secrets, key = _key(folder, unpacked, manifest, force=force)
        if isinstance(where, Path):
            name = _into_file(unpacked / SNAPSHOT, where, folder, secrets, key)
        else:
            name = _into_server(unpacked / SNAPSHOT, where, folder, secrets, key, force=force)
    console.print(f"{name}: restored as of {manifest.taken_at}, {manifest.rows['jobs']} jobs", soft_wrap=True)
    console.print(AFTER, soft_wrap=True)


def _there_is_one(name: str) -> CliError:
    return CliError(f"{name} holds a store already: restore into another, or replace it by --force")


def _key(
    folder: DataFolder, unpacked: Path, manifest: Manifest, *, force: bool
) -> tuple[Encryption, bytes | None]:
    """Returns the key that opens the backup's secrets, and what to write as the key file, if that is not the
    key that control of this folder has."""
    why = "there is none"
    if os.environ.get(VARIABLE) or (folder.root / FILE).exists():
        ours = load_secrets(folder.root, os.environ, make=False)
        try:
            open_store(unpacked / SNAPSHOT, secrets=ours, tables="look").close()
        except SecretKeyError as error:
            why = str(error)
        else:
            return ours, None
    if not manifest.has_key:
        raise CliError(
            f"the backup lacks the key to its secrets, and {folder.root} has no other ({why}): put the key"
            f" file of the control that was backed up there as {FILE}, or set {VARIABLE}"
        )
    if os.environ.get(VARIABLE):
        raise CliError(f"{VARIABLE} is not the key of this backup: unset it, and the backup's key is used")
    if (folder.root / FILE).exists() and not force:
        raise CliError(
            f"{folder.root / FILE} is not the key of this backup: replace it by --force, or move it"
        )
    return load_secrets(unpacked, {}, make=False), (unpacked / KEY).read_bytes()


def _into_file(
    snapshot: Path, where: Path, folder: DataFolder, secrets: Encryption, key: bytes | None
) -> str:
    """Puts the snapshot, upgraded, in the place of the file, whose WAL is emptied into it first: SQLite would
    play it back into the new file."""
    with closing(open_store(snapshot, secrets=secrets)) as store:
        problems = store.writer.raw.execute("PRAGMA quick_check").fetchall()
        if problems != [("ok",)]:
            raise CliError(f"the database in the backup is damaged: {problems[0][0]}")
        store.writer.raw.execute("PRAGMA journal_mode = DELETE")
    _keep_key(folder, key)
    with suppress(sqlite3.Error), closing(sqlite3.connect(where)) as old:  # it may be damaged
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for of_old in (f"{where}-wal", f"{where}-shm"):
        Path(of_old).unlink(missing_ok=True)
    os.replace(snapshot, where)
    with closing(open_store(where, secrets=secrets)) as store:
        note_database(folder, store)
        return store.database.name


def _into_server(
    snapshot: Path, url: str, folder: DataFolder, secrets: Encryption, key: bytes | None, *, force: bool
) -> str:
    with (
        closing(open_store(snapshot, secrets=secrets)) as source,
        closing(open_store(url, secrets=secrets)) as target,
    ):
        if not target.made and not force:
            raise _there_is_one(target.database.name)
        with _said(f"the database {target.database.name} cannot be restored"):
            replace_rows(source.writer, target.writer)
        _keep_key(folder, key)
        note_database(folder, target)
        return target.database.name


def _keep_key(folder: DataFolder, key: bytes | None) -> None:
    if key is not None:
        (folder.root / FILE).unlink(missing_ok=True)
        make_key_file(folder.root / FILE, key)


@contextmanager
def _folder(above: Path) -> Iterator[Path]:
    """Makes a folder for the block, on the disk of what is made from it."""
    made = Path(tempfile.mkdtemp(prefix=".backup-", dir=above))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Ends the command with a sentence where the database or a disk fails in the block."""
    try:
        yield
    except Exception as error:
        if (why := unavailable(error)) is None:
            raise
        raise CliError(f"{what}: {why}") from None
