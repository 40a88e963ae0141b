"""References to secrets in environment values, and the values once the secrets are filled in. Pure.

    URL = "pg://me:{{ STOKER_SECRET_db }}@host"     secrets: db = "hunter2"     ──> "pg://me:hunter2@host"

- RUNPOD_SECRET_ reads the same; white space inside the braces does not matter.
- Everything that reads like a reference is one. A reference whose secret does not exist is never handed on as
  written: a program would take the braces for its password.
- A secret's value is taken as it is: text in this value that reads like a reference is not a reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from stoker.wire.records import Hiding

_REFERENCE = re.compile(r"\{\{\s*(?:STOKER|RUNPOD)_SECRET_([^\s{}]*)\s*\}\}")


class Filled(Hiding, frozen=True):
    """An environment with its secrets filled in. `hidden` are the values that were filled in: no log may show
    them."""

    HIDDEN = ("env", "hidden")

    env: Mapping[str, str]
    hidden: tuple[str, ...] = ()


class UnknownSecret(Struct, frozen=True):
    """An environment that cannot be filled in. `variable` names a secret that there is not."""

    secret: str
    variable: str

    @property
    def why(self) -> str:
        return f"env.{self.variable} names the secret {self.secret!r}, and there is none of this name"


def find(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the variables that refer to secrets, each with the secrets' names in order."""
    found = {variable: tuple(_REFERENCE.findall(value)) for variable, value in env.items()}
    return {variable: names for variable, names in found.items() if names}


def fill(env: Mapping[str, str], secrets: Mapping[str, str]) -> Filled | UnknownSecret:
    """Returns the environment with every reference replaced, or the first reference whose secret is
    unknown."""
    references = find(env)
    for variable, names in references.items():
        for name in names:
            if name not in secrets:
                return UnknownSecret(name, variable)
    if not references:
        return Filled(env)
    filled = {
        variable: _REFERENCE.sub(lambda found: secrets[found[1]], env[variable]) for variable in references
    }
    used = {secrets[name]: None for names in references.values() for name in names}
    return Filled({**env, **filled}, tuple(used))


class SecretValues:
    """The secrets of every account, in clear."""

    def __init__(self) -> None:
        self.by_account: dict[str, dict[str, str]] = {}

    def fill(self, account: str, env: Mapping[str, str]) -> Filled | UnknownSecret:
        """Returns the environment as a worker or a pod of this account gets it."""
        return fill(env, self.by_account.get(account, {}))
