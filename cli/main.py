"""The `stoker` command: parses options, calls the modules that do the work, prints errors as one sentence.

Exit status: 0 done, 1 failed (the message says why), 2 wrong usage, 130 killed by a second Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from stoker import __version__
from stoker.cli import extras
from stoker.cli.agent.options import (
    CaFingerprint,
    ControlAddress,
    DataCenter,
    GatewayAdvertise,
    GatewayListen,
    Grace,
    JoinToken,
    Labels,
    NodeName,
    Probes,
    PublicIp,
    ReclaimNotices,
    WorkerUser,
)
from stoker.cli.daemons import start
from stoker.cli.daemons.options import GRACE_S, AgentOptions, ControlOptions, Options
from stoker.cli.database import app as database_app
from stoker.cli.dev import commands as dev_commands
from stoker.cli.doctor import command as doctor_command
from stoker.cli.ending import explained
from stoker.cli.errors import CliError
from stoker.cli.jobs import image, talk
from stoker.cli.jobs.app import app as job_app
from stoker.cli.log_lines import Format, Level
from stoker.cli.manage import resource_app
from stoker.cli.manage.ca_app import app as ca_app
from stoker.cli.manage.key_app import app as key_app
from stoker.cli.manage.weights_app import app as weights_app
from stoker.cli.model.app import app as model_app
from stoker.cli.narrowed import narrowed
from stoker.cli.options import (
    DATA_DIR,
    URL,
    AgentTlsCa,
    AgentTlsCert,
    BehindProxy,
    BillBucket,
    Billed,
    ConfigFile,
    Database,
    DataDir,
    GrpcPort,
    Host,
    Hosted,
    HttpFd,
    Insecure,
    LogFormat,
    LogLevel,
    Port,
    ReadyFd,
    TlsCert,
    TlsClientCa,
    TlsKey,
    Url,
    VolumeRoot,
    WorkerUsers,
    config_file,
    examples,
)
from stoker.cli.pasted import clean_environment
from stoker.cli.predict.command import predict
from stoker.cli.processes.handed_over import listener_of_manager
from stoker.cli.processes.imports import uncollected
from stoker.cli.processes.parents import end_with_parent
from stoker.cli.processes.readiness import MANAGER
from stoker.cli.replay.command import replay
from stoker.cli.terminal import log_to_stderr

app = typer.Typer(
    name="stoker",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(job_app, name="job")
app.add_typer(key_app, name="key")
app.add_typer(ca_app, name="ca")
app.add_typer(weights_app, name="weights")
app.add_typer(model_app, name="model")
app.command(
    epilog=examples(
        "stoker predict caption.py:handler --set text=hello",
        "stoker predict model.py:Handler @input.json --out images --watch",
    )
)(predict)
app.command(
    epilog=examples(
        "stoker replay 5f64d3b0-9c7b-4e0e-8d2f-1a7b63c0e9aa-u1 --from-start",
        "stoker replay JOB --handler caption.py:handler --file voice.wav",
    )
)(replay)
resource_app.add_to(app)
database_app.add_to(app)
dev_commands.add_to(app)
doctor_command.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"stoker {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Runs handlers on the GPUs of your machines, behind one HTTP API."""
    clean_environment(os.environ)
    if context.invoked_subcommand not in (ControlOptions.NAME, AgentOptions.NAME):  # `start` does it there
        MANAGER.adopt(os.environ)


@app.command(epilog=examples("stoker up", "stoker up --config stoker.toml --no-hosted", "stoker up --reload"))
def up(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    grpc_port: GrpcPort = 0,
    hosted: Hosted = None,
    no_hosted: Annotated[
        bool, typer.Option("--no-hosted", help="Serve no hosted endpoints, only those of the configuration.")
    ] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    volume_root: VolumeRoot = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Apply changes of stoker.toml and of handlers' source at once.")
    ] = False,
    worker_user: WorkerUser = None,
    worker_users: WorkerUsers = None,
    probes: Probes = None,
    reclaim_notices: ReclaimNotices = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Start no page for browsers.")] = False,
    log_format: LogFormat = Format.TEXT,
    log_level: LogLevel = Level.INFO,
    ready_fd: ReadyFd = None,
) -> None:
    """Runs control, agent, object store and hosted endpoints on this machine. Ctrl-C stops all of them."""
    end_with_parent(os.environ)
    log_to_stderr(logging.WARNING)
    chosen = () if no_hosted else tuple(hosted or (image.ENDPOINT, talk.ENDPOINT))
    extras.check(("control", "agent"))
    if chosen:
        extras.check(("models",), "; or serve no hosted models: stoker up --no-hosted")
    with uncollected():
        from stoker.cli.up.up import UpOptions, run

    options = UpOptions(
        data_dir=data_dir,
        config=config_file(config),
        host=host,
        port=port,
        grpc_port=grpc_port,
        hosted=chosen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        volume_root=volume_root,
        reload=reload,
        worker_user=worker_user,
        worker_users=worker_users,
        probes=probes,
        reclaim_notices=reclaim_notices,
        log_format=log_format.value,
        log_level=log_level.value,
        page=not no_page and extras.has("nicegui"),
        ready_fd=ready_fd,
    )
    if reload and options.config is None:
        raise CliError("--reload watches stoker.toml and the handlers that it names, and there is none here")
    raise typer.Exit(run(options))


@app.command(epilog=examples("stoker page --url https://control.example.com --port 8080"))
def page(
    url: Url = URL,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A host name under which browsers reach the page; may be repeated."),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        typer.Option(help="The identity provider at which people sign in, as [oidc] of control names it."),
    ] = None,
    oidc_client_id: Annotated[
        str | None, typer.Option(help="The page's id there, which is an audience of control's [oidc].")
    ] = None,
    oidc_scope: Annotated[str, typer.Option(help="The scope that is requested there.")] = "openid",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    ready_fd: ReadyFd = None,
) -> None:
    """Serves a page that shows the service to browsers, and prints a link that signs in once."""
    end_with_parent(os.environ)
    log_to_stderr(logging.WARNING)
    extras.check(("page",))
    if (tls_cert is None) != (tls_key is None):
        raise CliError("--tls-cert and --tls-key belong together: give both, or neither")
    from stoker.cli.page import PageOptions, client_of, run

    options = PageOptions(
        url=url,
        host=host,
        port=port,
        names=tuple(name or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        client=client_of(oidc_issuer, oidc_client_id, oidc_scope),
        ready_fd=ready_fd,
    )
    run(options)


@app.command(
    epilog=examples(
        "stoker control --config stoker.toml",
        "stoker control --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
        "stoker control --config stoker.toml --standby",
    )
)
def control(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    database: Database = None,
    grpc_host: Annotated[
        str, typer.Option(help="Address that the gRPC server for agents binds to.")
    ] = "127.0.0.1",
    grpc_port: GrpcPort = 8001,
    hosted: Hosted = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    behind_proxy: BehindProxy = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait, loaded, while another control works on the store, and take over at its end.",
        ),
    ] = False,
    grpc_plain: Annotated[bool, typer.Option("--grpc-plain", hidden=True)] = False,
    reload: Annotated[bool, typer.Option("--reload", hidden=True)] = False,
    log_format: LogFormat = Format.TEXT,
    log_level: LogLevel = Level.INFO,
    ready_fd: ReadyFd = None,
    http_fd: HttpFd = None,
) -> None:
    """Runs the control plane: HTTP for callers, gRPC for agents."""
    handed_over = listener_of_manager(os.environ, os.getpid())
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
        behind_proxy=behind_proxy,
        grpc_plain=grpc_plain,
        standby=standby,
        reload=reload,
        log_format=log_format.value,
        log_level=log_level.value,
        ready_fd=ready_fd,
        http_fd=handed_over if http_fd is None else http_fd,
    )
    _start(context, options)


@app.command(
    epilog=examples(
        "stoker agent --control control.example.com:8001 --tls-ca ca.pem",
        "stoker agent --control control.example.com:8001 --ca-fingerprint sha256:HEX",
    )
)
def agent(
    context: typer.Context,
    control: ControlAddress,
    join_token: JoinToken = None,
    data_dir: DataDir = DATA_DIR / "agent",
    name: NodeName = None,
    tls_ca: AgentTlsCa = None,
    tls_cert: AgentTlsCert = None,
    tls_key: TlsKey = None,
    ca_fingerprint: CaFingerprint = None,
    insecure: Insecure = False,
    worker_user: WorkerUser = None,
    worker_users: WorkerUsers = None,
    volume_root: VolumeRoot = None,
    data_center: DataCenter = None,
    public_ip: PublicIp = None,
    gateway_listen: GatewayListen = None,
    gateway_advertise: GatewayAdvertise = None,
    label: Labels = None,
    grace: Grace = GRACE_S,
    reclaim_notices: ReclaimNotices = None,
    probes: Probes = None,
    log_format: LogFormat = Format.TEXT,
    log_level: LogLevel = Level.INFO,
    ready_fd: ReadyFd = None,
) -> None:
    """Runs the node agent: one per host with GPUs."""
    options = AgentOptions(
        control=control,
        join_token=join_token,
        data_dir=data_dir,
        name=name,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        ca_fingerprint=ca_fingerprint,
        insecure=insecure,
        ready_fd=ready_fd,
        worker_user=worker_user,
        worker_users=worker_users,
        volume_root=volume_root,
        data_center=data_center,
        public_ip=public_ip,
        labels=tuple(label or ()),
        gateway_listen=gateway_listen,
        gateway_advertise=gateway_advertise,
        grace_s=grace,
        reclaim_notices=reclaim_notices,
        probes=probes,
        log_format=log_format.value,
        log_level=log_level.value,
    )
    _start(context, options)


image.add_to(app)
talk.add_to(app)


@app.command(epilog=examples("stoker bill endpoint --by gpu --bucket month --since 2026-01-01"))
def bill(
    of: Annotated[Billed, typer.Argument(help="What the bill is for.")] = Billed.endpoint,
    by: Annotated[
        str | None, typer.Option(help="Grouping: endpoint, worker or gpu for endpoints; pod or gpu for pods.")
    ] = None,
    bucket: Annotated[BillBucket, typer.Option(help="Period of each line, in UTC.")] = BillBucket.day,
    since: Annotated[
        str | None, typer.Option(help="Begin: a date or a time; 30 days ago by default.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="End: a date or a time; now by default.")] = None,
    only: Annotated[str | None, typer.Option("--id", help="Only this endpoint or pod.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's records as JSON.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Shows the cost of endpoints, pods or network volumes."""
    from stoker.cli.manage.bill import BillRequest, run

    run(url, data_dir, BillRequest(of.value, by, bucket.value, since, until, only), as_json=as_json)


def _start(context: typer.Context, options: Options) -> None:
    started: Callable[[Options], None] = context.obj
    started(options)


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command of `arguments` in this process. Without them, runs that of the process's own command
    line: then control and the agent are started in the place of this process."""
    atexit.register(gc.freeze)  # no collection at exit: it takes seconds in control
    typed = sys.argv[1:] if arguments is None else arguments
    with explained(typed):
        return narrowed(app, typed)(arguments, obj=start.become if arguments is None else start.run)
