"""/v2/account/ssh-keys: the public keys with which the account's pods are entered.

They are kept as a secret of the account, to which the variable PUBLIC_KEY of a pod with `startSsh` refers, as
images with an SSH server expect it. A pod that exists keeps the keys that it was made with.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.v2.shapes import CHANGES, LISTS, Body, Record
from stoker.control.resources import ManagedResources
from stoker.control.resources.secrets import SSH_KEYS

router = APIRouter(prefix="/account", tags=["account"])

_NONE = "# no keys"
"""The value without keys, a comment in a file of authorized keys. Pods refer to the secret, so it
is not deleted."""

Key = Annotated[
    str,
    Field(
        min_length=1,
        max_length=8192,
        pattern=r"^[^\r\n#][^\r\n]*$",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@example.com"],
    ),
]


class SshKeys(Body):
    """All keys of the account: those that are left out are removed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@example.com"]}]}
    )

    keys: Annotated[list[Key], Field(max_length=100)]


class SshKeyList(Record):
    keys: list[str]


def ssh_keys(managed: ManagedResources, account: str) -> list[str]:
    stored = managed.secrets.value(account, SSH_KEYS)
    return [] if stored in (None, _NONE) else stored.splitlines()


def ssh_env(managed: ManagedResources, account: str) -> dict[str, str]:
    """Returns the variable with the keys, if there are any."""
    return {"PUBLIC_KEY": f"{{{{ STOKER_SECRET_{SSH_KEYS} }}}}"} if ssh_keys(managed, account) else {}


@router.get("/ssh-keys", responses=LISTS)
async def get_ssh_keys(by: By, managed: Managed) -> SshKeyList:
    """Returns the account's public keys."""
    return SshKeyList(keys=ssh_keys(managed, by.account))


@router.put("/ssh-keys", responses=CHANGES)
async def replace_ssh_keys(by: By, managed: Managed, body: SshKeys) -> SshKeyList:
    """Replaces the account's public keys."""
    await managed.secrets.keep(by.account, SSH_KEYS, "\n".join(body.keys) or _NONE)
    return SshKeyList(keys=body.keys)
