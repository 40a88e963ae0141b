"""The options of `stoker dev`, `init`, `deploy`, `undeploy` and `logs`."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, Url, examples
from stoker.control.rules.limits import DEV_CONFIRMS_ABOVE, DEV_HOST, DEV_PORT, DEV_PORTS


class Action(StrEnum):
    clean = "clean"


Names = Annotated[list[str] | None, typer.Argument(metavar="[ENDPOINT]...", help="Only these endpoints.")]


def dev(
    action: Annotated[
        Action | None, typer.Argument(metavar="[clean]", help="clean: delete the live endpoints, and end.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address that the local server binds to.")] = DEV_HOST,
    port: Annotated[
        int,
        typer.Option("--port", "-p", help=f"Its port; if that is in use, the next free one of {DEV_PORTS}."),
    ] = DEV_PORT,
    reload: Annotated[
        bool, typer.Option("--reload/--no-reload", help="Use changed code from the next call on.")
    ] = True,
    auto_provision: Annotated[
        bool,
        typer.Option("--auto-provision", help="Create all endpoints now, not when they are first called."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help=f"Create more than {DEV_CONFIRMS_ABOVE} endpoints without asking.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Start a platform on this machine, which ends with the server.")
    ] = False,
    once: Annotated[
        Path | None,
        typer.Option(
            metavar="SCRIPT",
            help="Run this program, whose f.remote(...) call the functions; then delete what was created.",
        ),
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Serves the app in this folder, and runs its functions on the platform's workers."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.dev import dev as shell
    from stoker.cli.dev.local_server.display import Display

    logging.basicConfig(level=logging.WARNING, format="stoker: %(levelname)s: %(message)s")
    options = shell.DevOptions(url, data_dir, host, port, reload, auto_provision, yes, local, once)
    display = Display(plain_console(stderr=once is not None))  # the program's output is its own
    if action is None:
        raise typer.Exit(shell.run(options, display))
    shell.clean(options, display)


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's folder.")] = Path(),
) -> None:
    """Makes a project that runs: three workers, with settings and instructions."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.dev.starter import write_project

    write_project(folder, plain_console())


def deploy(
    names: Names = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Creates or updates the app's endpoints, with its code, to stay."""
    from stoker.cli.dev.deploying import deploy as deploy_project

    deploy_project(url, data_dir, tuple(names or ()))


def undeploy(
    names: Names = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Deletes the app's deployed endpoints; their waiting jobs are cancelled."""
    from stoker.cli.dev.deploying import undeploy as undeploy_project

    undeploy_project(url, data_dir, tuple(names or ()), sure=yes)


def logs(
    endpoint: Annotated[
        str | None, typer.Argument(help="Its name or id; all endpoints of the app by default.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    worker: Annotated[
        str | None, typer.Option(help="All that this worker prints, whatever it runs; its id.")
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Prints what jobs of queue endpoints and workers of load-balancing ones print, with the time of each
    line."""
    from stoker.cli.dev.logs import show_logs

    show_logs(url, data_dir, endpoint, worker, follow=follow)


def add_to(app: typer.Typer) -> None:
    app.command(epilog=examples("stoker dev", "stoker dev --local -p 9000", "stoker dev --once main.py"))(dev)
    app.command("run", hidden=True, epilog=examples("stoker run --local"))(dev)
    app.command(epilog=examples("stoker init caption"))(init)
    app.command(epilog=examples("stoker deploy", "stoker deploy caption"))(deploy)
    app.command(epilog=examples("stoker undeploy caption --yes"))(undeploy)
    app.command(epilog=examples("stoker logs caption --follow", "stoker logs caption --worker oqk7ao1"))(logs)
