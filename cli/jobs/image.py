"""The command `stoker image` with its options; `jobs.image_job` submits the job and downloads the image."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, OtherEndpoint, Url, examples
from stoker.cli.terminal import log_to_stderr, plain_console

ENDPOINT = "text-to-image"


def add_to(app: typer.Typer) -> None:
    app.command(epilog=examples('stoker image "a lighthouse in a storm" -o lighthouse.png'))(image)


def image(
    prompt: Annotated[str, typer.Argument(help="What the image shows.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write; .png or .jpg.")],
    url: Url = URL,
    endpoint: OtherEndpoint = ENDPOINT,
    negative_prompt: Annotated[str | None, typer.Option(help="What the image must not show.")] = None,
    width: Annotated[int | None, typer.Option(help="Width in pixels; the model's default.")] = None,
    height: Annotated[int | None, typer.Option(help="Height in pixels; the model's default.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps; the model's default.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale; the model's default.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; -1 draws one, which is printed.")] = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Makes an image from a prompt."""
    from stoker.cli.jobs.ids import resolve_endpoint
    from stoker.cli.jobs.image_job import ImageOptions, run

    log_to_stderr(logging.WARNING)
    request = ImageOptions(
        prompt=prompt,
        out=out,
        url=url,
        endpoint=endpoint if endpoint == ENDPOINT else resolve_endpoint(url, data_dir, endpoint),
        negative_prompt=negative_prompt,
        width=width,
        height=height,
        steps=steps,
        guidance=guidance,
        seed=seed,
    )
    run(request, data_dir, plain_console(stderr=True))
