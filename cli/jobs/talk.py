"""The command `stoker talk` with its options; `jobs.talk_job` submits the job and downloads the video."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, OtherEndpoint, Size, Url, examples
from stoker.cli.pasted import clean_option
from stoker.cli.terminal import log_to_stderr

ENDPOINT = "talking-video"


def add_to(app: typer.Typer) -> None:
    app.command(epilog=examples("stoker talk face.png voice.wav -o out.mp4 --size 480p"))(talk)


def talk(
    image: Annotated[
        str, typer.Argument(callback=clean_option, help="The image of a person: a file or a URL.")
    ],
    audio: Annotated[str, typer.Argument(callback=clean_option, help="The speech: a file or a URL.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write; .mp4.")],
    prompt: Annotated[str, typer.Option(help="What the video shows.")] = "a person talks to the camera",
    size: Annotated[Size, typer.Option(help="Size of the video; 720p costs twice as much.")] = Size.small,
    check: Annotated[bool, typer.Option(help="Run the safety checker.")] = True,
    assume_face: Annotated[
        bool,
        typer.Option("--assume-face", help="Move a mouth also where no face is found, as in a drawing."),
    ] = False,
    url: Url = URL,
    endpoint: OtherEndpoint = ENDPOINT,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Makes a talking video from an image and speech."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.jobs.ids import resolve_endpoint
    from stoker.cli.jobs.talk_job import TalkOptions, run

    log_to_stderr(logging.WARNING)
    if endpoint != ENDPOINT:
        endpoint = resolve_endpoint(url, data_dir, endpoint)
    request = TalkOptions(image, audio, out, prompt, size.value, check, assume_face, url, endpoint)
    run(request, data_dir, plain_console(stderr=True))
