"""The options of `stoker model ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli.options import examples

app = typer.Typer(help="Pipelines of this machine, run without a platform.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A pipeline of `stoker model list`.")]
Input = Annotated[
    str | None, typer.Argument(metavar="INPUT", help="A JSON object, @FILE, or - for standard input.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One value of the input; may be repeated."),
]
Prompt = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The prompt of the input: the same as --set prompt=TEXT.")
]
Cpu = Annotated[bool, typer.Option("--cpu", help="Run on the CPU, even if there is a GPU.")]
Profile = Annotated[
    str | None,
    typer.Option(help="The speed-ups: exact, fast, low-memory, or as exact+taylor-seer. STOKER_PROFILE's."),
]
Json = Annotated[bool, typer.Option("--json", help="Print records as JSON.")]


@app.command("list", epilog=examples("stoker model list"))
def list_pipelines(as_json: Json = False) -> None:
    """Lists the pipelines, with those of installed packages, and whether their weights are here."""
    from stoker.cli.model import listing

    listing.show_all(as_json=as_json)


@app.command(epilog=examples("stoker model show flux-1-dev"))
def show(name: Name, as_json: Json = False) -> None:
    """Shows a pipeline: its defaults, inputs, price, licence and weights."""
    from stoker.cli.model import listing

    listing.show_one(name, as_json=as_json)


@app.command(
    epilog=examples(
        "stoker model run flux-tiny --prompt lighthouse",
        "stoker model run flux-1-schnell @input.json --out images",
    )
)
def run(
    name: Name,
    input_: Input = None,
    sets: Sets = None,
    prompt: Prompt = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the files of the output.")
    ] = Path("out"),
    profile: Profile = None,
    cpu: Cpu = False,
    as_json: Json = False,
) -> None:
    """Runs one job, shows its progress, and prints the time of each stage and the peak memory."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.model import timing

    typed = _typed(input_, sets, prompt)
    timing.run(name, typed, out, plain_console(), profile=profile, use_gpu=not cpu, as_json=as_json)


@app.command(
    epilog=examples("stoker model bench flux-tiny", "stoker model bench flux-1-dev --runs 10 --set width=512")
)
def bench(
    name: Name,
    input_: Input = None,
    sets: Sets = None,
    prompt: Prompt = None,
    runs: Annotated[int, typer.Option(min=1, help="How many jobs are timed, after one that is not.")] = 5,
    profile: Profile = None,
    cpu: Cpu = False,
    as_json: Json = False,
) -> None:
    """Runs the same job several times and prints the median time of each stage and the peak memory."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.model import timing

    typed = _typed(input_, sets, prompt)
    timing.bench(name, typed, runs, plain_console(), profile=profile, use_gpu=not cpu, as_json=as_json)


def _typed(input_: str | None, sets: list[str] | None, prompt: str | None) -> dict[str, Any]:
    from stoker.cli.jobs.input import read_input

    typed = read_input(input_, sets or (), sys.stdin.buffer.read)
    return typed if prompt is None else {**typed, "prompt": prompt}
