"""A run of the handler in this process, whose results are printed.

    standard output  the output, as JSON; files as the paths that they were saved under
    standard error   what the handler prints, `progress {...}`, `chunk {...}`, and why it failed

Only a frame of the handler's own code is in a traceback, as in the error that callers would see.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError
from stoker.cli.jobs.text import shortened
from stoker.cli.predict.device import first_device
from stoker.cli.terminal import json_text, print_text
from stoker.worker.errors import RegistrationError, describe
from stoker.worker.sdk import Device
from stoker.worker.setup.registration import load
from stoker.worker.testing import LocalFile, LocalJob

FAILED, INTERRUPTED = 1, 130


def run(handler: str, input_: dict[str, Any], out: Path, *, use_gpu: bool) -> int:
    """Returns the exit status: 0 if the handler returned, 1 if it raised, 130 if Ctrl-C cancelled it.
    `handler` is an absolute path and a name. Raises CliError if the handler cannot be loaded."""
    device = first_device(os.environ) if use_gpu else Device()
    print(f"on {device.name}", file=sys.stderr)
    with _output_on_stderr() as result:
        job = _local_job(handler, input_, device)
        begun = time.monotonic()
        with _cancelled_by_ctrl_c(job) as cancelled:
            error = _error_of(job)
        if error is not None:
            print_text(error, to_stderr=True)
            return INTERRUPTED if cancelled.is_set() else FAILED
        print(f"done in {time.monotonic() - begun:.2f} s", file=sys.stderr)
        value = save_files(job.result(), out)
    print_text(json_text(value, indent=os.isatty(result)))
    return 0


def _local_job(handler: str, input_: dict[str, Any], device: Device) -> LocalJob:
    try:
        return LocalJob(
            load(handler).target,
            input_,
            device=device,
            network=True,
            on_progress=lambda value: print_event("progress", value),
            on_chunk=lambda value: print_event("chunk", value),
        )
    except RegistrationError as error:
        raise CliError(str(error)) from None


def _error_of(job: LocalJob) -> str | None:
    """Runs the job. The text that the platform would show if it failed: what the handler raised, with its
    traceback. A class that raises in `setup` has run no job, and fails the same way."""
    try:
        return job.run().error
    except Exception as error:  # the handler's own code may raise anything
        return describe(error)


def save_files(value: Any, folder: Path, named: Callable[[Path], Any] = str) -> Any:
    """Returns the value with each file replaced by the path that it was saved under, in `folder`, as `named`
    writes it. Two files of one output never have one path; those of an earlier run are replaced."""
    taken: set[Path] = set()

    def saved(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: saved(below) for key, below in item.items()}
        if isinstance(item, list):
            return [saved(below) for below in item]
        return named(_save(item, folder, taken)) if isinstance(item, LocalFile) else item

    return saved(value)


def _save(file: LocalFile, folder: Path, taken: set[Path]) -> Path:
    name = Path(file.name).name
    path, number = folder / name, 1
    while path in taken:
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    taken.add(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, path)
    except OSError as error:
        raise CliError(f"the file {name} of the output cannot be saved as {path}: {error.strerror}") from None
    return path


def print_event(kind: str, value: Any) -> None:
    """Prints progress or a chunk; at a terminal, with long texts cut, as previews are."""
    value = shortened(value) if sys.stderr.isatty() else value
    print_text(f"{kind} {json.dumps(value, ensure_ascii=False)}", to_stderr=True)


@contextlib.contextmanager
def _output_on_stderr() -> Iterator[int]:
    """Sends what the handler prints to standard error, also from its child processes and from C; standard
    output gets the output alone. Yields the descriptor of the true standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield kept
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _cancelled_by_ctrl_c(job: LocalJob) -> Iterator[threading.Event]:
    """Cancels the job on the first Ctrl-C, as a caller's cancel does, and sets the event; the second Ctrl-C
    raises KeyboardInterrupt."""
    cancelled = threading.Event()

    def cancel(*_: object) -> None:
        cancelled.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("cancelling; Ctrl-C again kills it", file=sys.stderr, flush=True)
        job.cancel("Ctrl-C")

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield cancelled
    finally:
        signal.signal(signal.SIGINT, before)
