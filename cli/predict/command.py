"""The options of `stoker predict`, and its two modes: one run, or another run after each saved file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli.errors import CliError


def predict(
    handler: Annotated[
        str, typer.Argument(metavar="FILE:NAME", help="The handler, such as caption.py:handler.")
    ],
    input_: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="A JSON object, @FILE, or - for standard input.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="One value of the input; NAME=@FILE is a URL of that local file; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the files of the output.")
    ] = Path("out"),
    cpu: Annotated[bool, typer.Option("--cpu", help="Give the handler no GPU.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Run again whenever a Python file in the handler's folder changes."),
    ] = False,
) -> None:
    """Runs a handler once without a platform: progress, partial output, then the output as JSON."""
    from stoker.cli.jobs.input import read_input

    if watch and input_ == "-":
        raise CliError("--watch reads the input again for each run, which standard input does not allow")
    source = absolute(handler)
    typed = read_input(input_, sets or (), sys.stdin.buffer.read)
    if watch:
        from stoker.cli.predict.watching import run_after_changes

        folder = Path(source.rpartition(":")[0]).parent
        run_after_changes(folder, _arguments(source, input_, sets or [], out, cpu))
        return
    from stoker.cli.predict.local_files import served_as
    from stoker.cli.predict.run import run

    with served_as(typed, _local_files(typed)) as known:
        status = run(source, known, out, use_gpu=not cpu)
    raise typer.Exit(status)


def _local_files(typed: Mapping[str, Any]) -> dict[str, Path]:
    """Returns the files of the values that read `@FILE`; a text of which there is no file stays a text."""
    texts = {name: value for name, value in typed.items() if isinstance(value, str) and value[:1] == "@"}
    return {name: Path(value[1:]) for name, value in texts.items() if Path(value[1:]).is_file()}


def absolute(handler: str) -> str:
    """Returns the handler as `/folder/caption.py:handler`. A file without a name means its `handler`."""
    file, mark, name = handler.removeprefix("local:").partition(".py:")
    if not mark:
        file, name = file.removesuffix(".py"), "handler"
    path = Path(f"{file}.py").resolve()
    if not path.is_file():
        raise CliError(f"there is no file {path}; the handler is written FILE.py:NAME, as caption.py:handler")
    return f"{path}:{name}"


def _arguments(handler: str, input_: str | None, sets: list[str], out: Path, cpu: bool) -> list[str]:
    """Returns the arguments of a single run, without --watch."""
    options = [argument for pair in sets for argument in ("--set", pair)] + ["--cpu"] * cpu
    return ["predict", *options, "--out", str(out), "--", handler, *([] if input_ is None else [input_])]
