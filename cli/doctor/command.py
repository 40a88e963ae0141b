"""The options and the output of `stoker doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.options import (
    DATA_DIR,
    URL,
    AgentTlsCa,
    ConfigFile,
    DataDir,
    ServiceUrl,
    TlsCert,
    TlsKey,
    config_file,
    examples,
)

if TYPE_CHECKING:
    from stoker.cli.doctor.findings import Finding


def doctor(
    url: ServiceUrl = None,
    control: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of control's gRPC server, as an agent here has it; several with commas."
        ),
    ] = None,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    tls_ca: AgentTlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Checks this host and the service, and says what to do. Ends with 1 if something needed fails."""
    import asyncio

    from stoker.cli.doctor.checkup import Asked, gather_facts
    from stoker.cli.doctor.findings import failed, findings
    from stoker.cli.tables import show
    from stoker.client import dotenv, pasted

    doors = tuple(filter(None, (control or "").split(",")))
    named = url or dotenv.lookup("STOKER_URL", {}, Path.cwd())
    urls = pasted.addresses("the service's address", named) if named else () if doors else (URL,)
    asked = Asked(urls, doors, data_dir.absolute(), config_file(config), tls_ca, tls_cert, tls_key)
    found = findings(asyncio.run(gather_facts(asked)))
    records = [
        {"check": one.check, "level": one.level.value, "found": one.found, "do": one.do} for one in found
    ]
    show(("CHECK", "", "FOUND", "DO"), [_row(one) for one in found], records, as_json=as_json)
    raise typer.Exit(failed(found))


def _row(one: Finding) -> tuple[str, str, str, str]:
    level = one.level.value.upper() if one.level.name == "failed" else one.level.value
    return one.check, level, one.found, one.do


def add_to(main: typer.Typer) -> None:
    main.command(
        "doctor",
        epilog=examples(
            "stoker doctor",
            "stoker doctor --control control.example.com:8001 --tls-ca ca.pem",
            "stoker doctor --url https://control.example.com --json",
        ),
    )(doctor)
