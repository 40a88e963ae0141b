"""A handler's `File`, opened so that it can be handed over as a descriptor instead of a name.

Only a regular file below the attempt's scratch folder is taken. This process is the handler's own and holds
no rights that the handler lacks: the checks here give the handler an early and clear error. The agent checks
the descriptor again, and trusts nothing that it is sent.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from stoker.worker.errors import FileRefused, clean
from stoker.worker.sdk import File

# O_NONBLOCK: a pipe or a device must not hold up the open. It changes nothing for a regular file.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file to hand over. Its holder closes `fd`."""

    fd: int
    name: str
    media_type: str


def open_file(file: File, scratch: str) -> OpenFile:
    """Opens one File of an attempt. Raises FileRefused, whose message names the file."""
    path = os.path.abspath(file.path)
    public_path = _public_path(path, scratch)
    try:
        _require_regular(public_path, os.lstat(path).st_mode)
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileRefused(f"{public_path} cannot be opened: {_reason(error)}") from None
    try:
        _require_regular(public_path, os.fstat(fd).st_mode)
        _require_below(public_path, os.readlink(f"/proc/self/fd/{fd}"), os.path.realpath(scratch))
    except BaseException:
        os.close(fd)
        raise
    name = clean(file.name or os.path.basename(path), 255)
    return OpenFile(fd, name, file.media_type or media_type_of(name))


def written(text: bytes, scratch: str, name: str) -> OpenFile:
    """Writes a file of JSON text below the scratch folder. Raises OSError when there is no room."""
    path = os.path.join(scratch, name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return OpenFile(fd, name, "application/json")


def media_type_of(name: str) -> str:
    """Returns the media type by the name's extension; `application/octet-stream` for an unknown extension."""
    import mimetypes

    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _require_regular(public_path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise FileRefused(f"{public_path} is {kind}; a File must be a regular file")


def _require_below(public_path: str, real: str, scratch: str) -> None:
    """Raises FileRefused if a file lies outside scratch. `real` is the path of the open file, with links
    resolved.
    """
    if not real.startswith(scratch.rstrip("/") + "/"):
        raise FileRefused(f"{public_path} lies outside the job's scratch folder; write it below job.scratch")


def _public_path(path: str, scratch: str) -> str:
    """Returns the path relative to the scratch folder, else the bare name: callers read it, and must not see
    the host's folders.
    """
    below = path.removeprefix(os.path.abspath(scratch).rstrip("/") + "/")
    return clean(below if below != path else os.path.basename(path), 1024)


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
