"""The options of `stoker replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.errors import CliError
from stoker.cli.options import DATA_DIR, URL, ConfigFile, DataDir, Url


def replay(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job that failed, or completed.")],
    endpoint: Annotated[
        str | None, typer.Option(help="The job's endpoint; looked for by default, which takes longer.")
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option(metavar="FILE:NAME", help="The handler; by default the one that stoker.toml names."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", help="A file that the job had fetched, found by its sha256; may be repeated."),
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch the job's URLs from here, unguarded: a caller chose them.")
    ] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin anew, not from the job's last save.")
    ] = False,
    until: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many reports of progress and chunks.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Run it on this node of the platform, by its id or name."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="job|DIR", help="Compare with what the job gave, or with another replay, by its --out."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the output and its files.")
    ] = Path("out"),
    cpu: Annotated[bool, typer.Option("--cpu", help="Give the handler no GPU.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """Runs a job again, on this machine or a node, and says whether it ends in the same way."""
    from stoker.cli.replay.replay import Replay, run

    if until is not None and compare is not None:
        raise CliError("--until stops before there is an output, so --compare has nothing to compare")
    if on is not None and (handler or files or fetch or cpu):
        raise CliError("--handler, --file, --fetch and --cpu are for a replay here, and not with --on")
    options = Replay(
        job=job,
        endpoint=endpoint,
        handler=handler,
        files=tuple(files or ()),
        fetch=fetch,
        from_start=from_start,
        until=until,
        on=on,
        compare=compare,
        out=out,
        use_gpu=not cpu,
        as_json=as_json,
        url=url,
        data_dir=data_dir,
        config=config,
    )
    raise typer.Exit(run(options))
