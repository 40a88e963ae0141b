"""The command `stoker image` with its options; `jobs.image_job` submits the job and downloads the image."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, OtherEndpoint, Url, examples
from stoker.cli.pasted import clean_options
from stoker.cli.previews.choice import Wanted
from stoker.cli.terminal import log_to_stderr

ENDPOINT = "text-to-image"


def add_to(app: typer.Typer) -> None:
    lighthouse = 'stoker image "a lighthouse in a storm"'
    app.command(epilog=examples(lighthouse, f"{lighthouse} -n 4 --seed 7 -o lighthouse.jpg"))(image)


def image(
    prompt: Annotated[str, typer.Argument(help="What the image shows.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="File to write; .png or .jpg. By default the prompt's first words, numbered."
        ),
    ] = None,
    url: Url = URL,
    endpoint: OtherEndpoint = ENDPOINT,
    negative_prompt: Annotated[str | None, typer.Option(help="What the image must not show.")] = None,
    width: Annotated[int | None, typer.Option(help="Width in pixels; the model's default.")] = None,
    height: Annotated[int | None, typer.Option(help="Height in pixels; the model's default.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps; the model's default.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale; the model's default.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; -1 draws one, which is printed.")] = None,
    number: Annotated[int | None, typer.Option("-n", "--number", min=1, help="How many images.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="How the steps are made, such as unipc.")] = None,
    lora: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=SCALE]", help="A LoRA of the pipeline; may be repeated."),
    ] = None,
    image_: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            callback=clean_options,
            help="The image to start from: a file or a URL. Repeated: the images that the prompt is about.",
        ),
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="How much of --image is made anew, from 0.01 to 1.")
    ] = None,
    preview: Annotated[
        Wanted, typer.Option(help="How previews are drawn; by default, as the terminal can.")
    ] = Wanted.AUTO,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Makes an image from a prompt."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.jobs.ids import resolve_endpoint
    from stoker.cli.jobs.image_job import ImageOptions, lora_of, run
    from stoker.cli.previews.screen import screen_of

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
        number=number,
        scheduler=scheduler,
        loras=tuple(map(lora_of, lora or ())),
        images=tuple(image_ or ()),
        strength=strength,
    )
    console = plain_console(stderr=True)
    run(request, data_dir, console, screen_of(console, preview, os.environ))
