"""The options of `stoker agent` that no other command has."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.pasted import clean_option, clean_token

ControlAddress = Annotated[
    str,
    typer.Option(
        callback=clean_option,
        help="HOST:PORT of control's gRPC server; several with commas, of control and its standbys.",
    ),
]
JoinToken = Annotated[
    str | None,
    typer.Option(
        callback=clean_token,
        help="Needed until the node has joined. Prefer STOKER_JOIN_TOKEN: arguments can be read.",
    ),
]
NodeName = Annotated[str | None, typer.Option(help="Name of the node; the host's name by default.")]
WorkerUser = Annotated[
    str | None,
    typer.Option(envvar="STOKER_WORKER_USER", help="As root: run all handlers as this user."),
]
DataCenter = Annotated[
    str | None, typer.Option(help="Data center of this host, such as EU-RO-1; or STOKER_DATA_CENTER.")
]
PublicIp = Annotated[
    str | None,
    typer.Option(help="IPv4 address for callers of this host's pods; or STOKER_PUBLIC_IP."),
]
GatewayListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where control on another host reaches this host's HTTP workers; or STOKER_GATEWAY_LISTEN.",
    ),
]
GatewayAdvertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="The address of --gateway-listen as control sees it; or STOKER_GATEWAY_ADVERTISE.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A label that endpoints may require; may be repeated, or STOKER_LABELS=a=1,b=2.",
    ),
]
Probes = Annotated[
    str | None,
    typer.Option(
        envvar="STOKER_PROBES",
        metavar="HOST:PORT",
        help="Serve /healthz, /ready and /metrics of this agent there, without a key.",
    ),
]
ReclaimNotices = Annotated[
    str | None,
    typer.Option(
        envvar="STOKER_RECLAIM_NOTICES",
        metavar="CLOUD",
        help="aws, gcp or azure: leave in time when this cloud takes the host back.",
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        envvar="STOKER_GRACE_S",
        min=0.0,
        help="How long running jobs may take to end after SIGTERM, in seconds; others are queued again.",
    ),
]
