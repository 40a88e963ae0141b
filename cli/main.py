"""The `stoker` command: reads options, hands them to what does the work, tells errors in a sentence.

Exit status: 0 done, 1 could not (the sentence says why), 2 wrong usage, 130 killed by a second Ctrl-C.
"""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli import resource_app
from stoker.cli.errors import CliError
from stoker.cli.job_app import app as job_app
from stoker.cli.key_app import app as key_app
from stoker.cli.options import DATA_DIR, URL, ConfigFile, DataDir, Url, config_file
from stoker.cli.terminal import plain_console
from stoker.cli.weights_app import app as weights_app

app = typer.Typer(
    name="stoker",
    help="Feeds GPUs: runs handlers on your machines behind one HTTP interface.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(job_app, name="job")
app.add_typer(key_app, name="key")
app.add_typer(weights_app, name="weights")
resource_app.add_to(app)

Host = Annotated[str, typer.Option(help="Address that HTTP binds to.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 takes a free one.")]
GrpcPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port that agents join at; 0 takes a free one.")
]
Hosted = Annotated[
    list[str] | None, typer.Option("--hosted", help="A hosted endpoint to serve; may be given again.")
]
ReadyFd = Annotated[int | None, typer.Option(hidden=True)]
TlsFile = Annotated[Path | None, typer.Option(exists=True, dir_okay=False)]
Database = Annotated[
    str | None,
    typer.Option(
        help="postgresql://...; a file in the data folder by default. "
        "Better in STOKER_DATABASE_URL: arguments are readable by everybody."
    ),
]


class Billed(StrEnum):
    endpoint = "endpoint"
    pod = "pod"
    volume = "volume"


class Size(StrEnum):
    small = "480p"
    large = "720p"


class Bucket(StrEnum):
    hour = "hour"
    day = "day"
    week = "week"
    month = "month"
    year = "year"


HOSTED = ("text-to-image", "talking-video")
NOISY = ("botocore", "boto3", "urllib3", "s3transfer", "httpx", "uvicorn")
"""Loggers that are heard from WARNING on."""


@app.command()
def up(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    grpc_port: GrpcPort = 0,
    hosted: Hosted = None,
    no_hosted: Annotated[
        bool, typer.Option("--no-hosted", help="Serve the configuration's endpoints only.")
    ] = False,
    ready_fd: ReadyFd = None,
) -> None:
    """Everything on this machine: control, agent, object store, hosted endpoints. Ctrl-C stops all of it."""
    from stoker.cli.up import UpOptions, run

    _log_to_stderr(logging.WARNING)
    chosen = () if no_hosted else tuple(hosted or HOSTED)
    raise typer.Exit(run(UpOptions(data_dir, config_file(config), host, port, grpc_port, chosen, ready_fd)))


@app.command()
def control(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    database: Database = None,
    grpc_host: Annotated[str, typer.Option(help="Address that agents join at.")] = "127.0.0.1",
    grpc_port: GrpcPort = 8001,
    hosted: Hosted = None,
    tls_cert: TlsFile = None,
    tls_key: TlsFile = None,
    tls_client_ca: TlsFile = None,
    ready_fd: ReadyFd = None,
) -> None:
    """The control plane: HTTP for callers, gRPC for agents."""
    given = _become_a_part()
    from stoker.cli.control_process import ControlOptions, run

    options = ControlOptions(
        data_dir=data_dir,
        config=config_file(config),
        host=host,
        port=port,
        grpc_host=grpc_host,
        grpc_port=grpc_port,
        hosted=tuple(hosted or ()),
        database=database,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        ready_fd=ready_fd,
    )
    run(options, given)


@app.command()
def agent(
    control: Annotated[str, typer.Option(help="HOST:PORT of the control plane's gRPC.")],
    join_token: Annotated[
        str | None, typer.Option(help="Better in STOKER_JOIN_TOKEN: arguments are readable by everybody.")
    ] = None,
    data_dir: DataDir = DATA_DIR / "agent",
    name: Annotated[
        str | None, typer.Option(help="How the node is called; the host's name by default.")
    ] = None,
    tls_ca: TlsFile = None,
    tls_cert: TlsFile = None,
    tls_key: TlsFile = None,
    worker_user: Annotated[
        str | None, typer.Option(help="As root: run handlers as this user instead.")
    ] = None,
    worker_users: Annotated[
        str | None,
        typer.Option(help="As root: run each worker as a user of its own of this range, 100000-100999."),
    ] = None,
    volume_root: Annotated[
        Path | None,
        typer.Option(help="The folder of this host's network volumes; or STOKER_VOLUME_ROOT."),
    ] = None,
    data_center: Annotated[
        str | None, typer.Option(help="Where this host stands, as EU-RO-1; or STOKER_DATA_CENTER.")
    ] = None,
    public_ip: Annotated[
        str | None,
        typer.Option(
            help="The IPv4 address at which callers reach the ports of this host's pods; or STOKER_PUBLIC_IP."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What endpoints may ask of a node; as often as wanted, or STOKER_LABELS=a=1,b=2.",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            envvar="STOKER_GRACE_S",
            min=0.0,
            help="Seconds that running jobs get to end after SIGTERM; the rest goes back to the queue.",
        ),
    ] = 30.0,
    ready_fd: ReadyFd = None,
) -> None:
    """The node agent: one per host with GPUs."""
    given = _become_a_part()
    token = join_token or given.get("STOKER_JOIN_TOKEN")
    if not token:
        raise CliError("an agent joins with a token: --join-token, or STOKER_JOIN_TOKEN in the environment")
    # A worker of another user is started by fork, not vfork, and gRPC's own fork handlers crash the child
    # (seen: SIGSEGV before its exec). gRPC looks when it is imported.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    from stoker.cli.agent_process import AgentOptions, run

    options = AgentOptions(
        control=control,
        join_token=token,
        data_dir=data_dir,
        name=name,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        ready_fd=ready_fd,
        worker_user=worker_user,
        worker_users=worker_users,
        volume_root=volume_root,
        data_center=data_center,
        public_ip=public_ip,
        labels=tuple(label or ()),
        grace_s=grace,
    )
    run(options, given)


@app.command()
def image(
    prompt: Annotated[str, typer.Argument(help="What to see.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write; .png or .jpg.")],
    url: Url = URL,
    endpoint: str = "text-to-image",
    negative_prompt: Annotated[str | None, typer.Option(help="What not to see.")] = None,
    width: int | None = None,
    height: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    seed: Annotated[int | None, typer.Option(help="-1 draws one, and it is told.")] = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """A prompt goes in, a picture comes out."""
    from stoker.cli.image import ImageRequest, run

    _log_to_stderr(logging.WARNING)
    request = ImageRequest(
        prompt=prompt,
        out=out,
        url=url,
        endpoint=endpoint,
        negative_prompt=negative_prompt,
        width=width,
        height=height,
        steps=steps,
        guidance=guidance,
        seed=seed,
    )
    run(request, data_dir, plain_console(stderr=True))


@app.command()
def talk(
    image: Annotated[str, typer.Argument(help="The picture: a file or a URL.")],
    audio: Annotated[str, typer.Argument(help="The voice: a file or a URL.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write; .mp4.")],
    prompt: Annotated[str, typer.Option(help="What the video shows.")] = "a person talks to the camera",
    size: Annotated[Size, typer.Option(help="Of the video; 720p costs twice as much.")] = Size.small,
    check: Annotated[bool, typer.Option(help="Look for what the safety checker flags.")] = True,
    url: Url = URL,
    endpoint: str = "talking-video",
    data_dir: DataDir = DATA_DIR,
) -> None:
    """A picture and a voice go in, a talking video comes out."""
    from stoker.cli.talk import TalkRequest, run

    _log_to_stderr(logging.WARNING)
    request = TalkRequest(image, audio, out, prompt, size.value, check, url, endpoint)
    run(request, data_dir, plain_console(stderr=True))


@app.command()
def bill(
    of: Annotated[Billed, typer.Argument(help="What the bill is for.")] = Billed.endpoint,
    by: Annotated[
        str | None, typer.Option(help="Endpoints by endpoint, worker or gpu; pods by pod or gpu.")
    ] = None,
    bucket: Annotated[Bucket, typer.Option(help="How long each line's time is, in UTC.")] = Bucket.day,
    since: Annotated[str | None, typer.Option(help="A date or a time; 30 days ago, without it.")] = None,
    until: Annotated[str | None, typer.Option(help="A date or a time; now, without it.")] = None,
    only: Annotated[str | None, typer.Option("--id", help="Of this endpoint or pod only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The records as the service writes them.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """What endpoints, pods or network volumes have cost."""
    from stoker.cli.bill import BillRequest, run

    run(url, data_dir, BillRequest(of.value, by, bucket.value, since, until, only), as_json=as_json)


def _become_a_part() -> dict[str, str]:
    """For control and agent: end with whoever started us, log, keep our secrets from what we start."""
    from stoker.cli.parents import end_with_parent
    from stoker.cli.s3_settings import take_secrets
    from stoker.cli.shown_environment import wipe

    end_with_parent(os.environ)
    _log_to_stderr(logging.INFO)
    given = take_secrets(os.environ)
    wipe("STOKER_")
    return given


def _log_to_stderr(level: int) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


def explained() -> tuple[type[Exception], ...]:
    """The errors whose text is a sentence for whoever typed the command."""
    from stoker.cli.sentences import SENTENCES

    return SENTENCES


def main(arguments: list[str] | None = None) -> Any:
    atexit.register(gc.freeze)  # what goes with the process is not walked once more: seconds, for control
    try:
        return app(arguments)
    except CliError as error:
        _end(error)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _end(CliError(f"there is no room on the disk: {error}"))
        if not isinstance(error, explained()):
            raise
        _end(error)


def _end(error: Exception) -> None:
    print(f"stoker: {error}", file=sys.stderr)
    sys.exit(1)
