"""The options of `stoker key ...`; `key_commands` implements the commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.options import DATA_DIR, ConfigFile, DataDir, KeyUrl, config_file, examples

if TYPE_CHECKING:
    from stoker.cli.manage.key_places import Place

app = typer.Typer(help="Create, list and revoke API keys and join tokens.", no_args_is_help=True)

JobsWaiting = Annotated[
    int | None, typer.Option(min=1, help="How many jobs of the key may wait; any number by default.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many workers the endpoints that it creates may have in all.")
]
GpuSeconds = Annotated[
    int | None,
    typer.Option(min=1, help="GPU seconds that its jobs may use in a day of UTC; unbounded by default."),
]
FileBytes = Annotated[
    int | None, typer.Option(min=1, help="Bytes of uploaded files that are kept for it; 50 GiB by default.")
]
Highest = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="The highest class of jobs that the key may submit: urgent, normal or low; for a key that may do"
        " everything urgent by default, for others normal.",
    ),
]
KeyArgument = Annotated[str, typer.Argument(help="The key's id, or its beginning.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Join = Annotated[bool, typer.Option("--join", help="Join tokens for agents instead of API keys.")]


@app.command(
    "create",
    epilog=examples(
        "stoker key create --name laptop --expires 7d",
        "stoker key create --name ci --endpoint caption=write",
        "stoker key create --name debug --endpoint caption=read --cases",
        "stoker key create --name batch --jobs-waiting 100 --gpu-seconds-per-day 3600",
        "stoker key create --name studio --endpoint caption=write --priority urgent",
        "stoker key create --join --uses 1",
    ),
)
def create(
    name: Annotated[str, typer.Option(help="A name that says what the key is for.")] = "key",
    join: Join = False,
    uses: Annotated[
        int | None, typer.Option(min=1, help="How many nodes may join with it; any number by default.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="Lifetime, such as 90s, 30m, 24h or 7d; it does not expire by default."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The key may read everything except keys.")
    ] = False,
    management: Annotated[
        str | None,
        typer.Option(metavar="RIGHT", help="Restricts the key: none, read or write for the management API."),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=RIGHT",
            help="Restricts the key for an endpoint: none, read or write; * is all others.",
        ),
    ] = None,
    cases: Annotated[
        bool,
        typer.Option(
            "--cases", help="The key may read inputs and the cases of jobs at endpoints that it reads."
        ),
    ] = False,
    jobs_waiting: JobsWaiting = None,
    workers: Workers = None,
    gpu_seconds_per_day: GpuSeconds = None,
    file_bytes: FileBytes = None,
    priority: Highest = None,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Creates a key and prints it; it cannot be shown again."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import key_commands
    from stoker.control.rules.quotas import Quota

    rights = tuple(endpoint or ())
    quota = Quota(jobs_waiting, workers, gpu_seconds_per_day, file_bytes)
    options = key_commands.NewKey(
        name, join, uses, expires, read_only, management, rights, quota, priority, cases
    )
    key_commands.create(_place(data_dir, config, url), options, plain_console(), as_json=as_json)


@app.command("list", epilog=examples("stoker key list --join --json"))
def show(
    join: Join = False,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Lists ids and names of keys, never the keys themselves."""
    from stoker.cli.manage import key_commands

    key_commands.show(_place(data_dir, config, url), join=join, as_json=as_json)


@app.command("get", epilog=examples("stoker key get 106089f193a2"))
def get(
    key: KeyArgument,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Shows what a key may do, its quota, and how much of the quota is used."""
    from stoker.cli.manage import key_commands

    key_commands.get(_place(data_dir, config, url), key, as_json=as_json)


@app.command("quota", epilog=examples("stoker key quota 106089f193a2 --jobs-waiting 50"))
def quota(
    key: KeyArgument,
    jobs_waiting: JobsWaiting = None,
    workers: Workers = None,
    gpu_seconds_per_day: GpuSeconds = None,
    file_bytes: FileBytes = None,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Replaces the quota of a key; what no option bounds is unbounded."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import key_commands
    from stoker.control.rules.quotas import Quota

    wanted = Quota(jobs_waiting, workers, gpu_seconds_per_day, file_bytes)
    key_commands.set_quota(_place(data_dir, config, url), key, wanted, plain_console())


@app.command("set", epilog=examples("stoker key set 106089f193a2 --priority urgent"))
def change(
    key: KeyArgument,
    priority: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="The highest class of jobs it may submit: urgent, normal or low; default: by its scope.",
        ),
    ],
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Changes the highest class of jobs that a key may submit."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import key_commands

    key_commands.set_priority(_place(data_dir, config, url), key, priority, plain_console())


@app.command("revoke", epilog=examples("stoker key revoke 106089f193a2"))
def revoke(
    key: KeyArgument,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Revokes a key: from now on it is refused."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import key_commands

    key_commands.revoke(_place(data_dir, config, url), key, plain_console())


@app.command(
    "webhook-secret",
    epilog=examples("stoker key webhook-secret", "stoker key webhook-secret --rotate"),
)
def webhook_secret(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new one; webhooks are signed with both.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="End the signatures with the one before.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    url: KeyUrl = None,
) -> None:
    """Prints the secret that webhooks are signed with; receivers verify the signature with it."""
    from stoker.cli.manage import key_commands

    place = _place(data_dir, config, url)
    key_commands.webhook_secret(place, rotate=rotate, drop_old=drop_old)


def _place(data_dir: Path, config: Path | None, url: str | None) -> Place:
    from stoker.cli.manage.key_places import Place

    return Place(data_dir, None if url is not None else config_file(config), url)
