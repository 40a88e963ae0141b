"""Named secrets: values to which the environments of templates, endpoints and pods refer.

They are stored encrypted, and in memory in clear, because every new worker receives those that its
environment names. A changed value reaches workers that are created later; existing workers and pods keep the
old one, even when their process restarts.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.control import store
from stoker.control.auth.secret_references import SecretValues, UnknownSecret, find
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.scheduling.worker_scaling import WorkerScaling
from stoker.control.store import Conn

VALUE_BYTES = 64 * 1024


SSH_KEYS = "account_ssh_keys"
"""A secret that the platform keeps for an account: the keys with which its pods are entered. Callers change
it where its keys are, and nowhere else."""


class ManagedSecrets:
    """The secrets as a resource. `load` must be awaited before `fill` is called."""

    def __init__(self, context: Context, values: SecretValues, scaling: WorkerScaling) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._values, self._scaling = values, scaling

    async def load(self) -> None:
        """Loads the values; in a commit, so that it is ordered with other changes."""
        self._values.by_account = await self._commits.commit(store.read_secrets)

    def check(self, account: str, env: Mapping[str, str]) -> None:
        """Raises BadRequest if it names a secret that does not exist."""
        filled = self._values.fill(account, env)
        if isinstance(filled, UnknownSecret):
            raise BadRequest(f"{filled.why}; store it first, under /v1/secrets/{filled.secret}")

    def check_still(self, conn: Conn, account: str, env: Mapping[str, str]) -> None:
        """Checks, in the transaction that stores the environment, that no secret was deleted meanwhile.
        Raises BadRequest."""
        wanted = {name for names in find(env).values() for name in names}
        gone = wanted - {one.name for one in store.list_secrets(conn, account)} if wanted else wanted
        if gone:
            raise BadRequest(f"env: secret {', '.join(sorted(gone))} has just been deleted")

    def value(self, account: str, name: str) -> str | None:
        """Returns the value, for what the platform itself keeps as a secret."""
        return self._values.by_account.get(account, {}).get(name)

    async def put(self, account: str, name: str, value: str) -> store.NamedSecret:
        """Stores a caller's secret. Raises BadRequest."""
        _check_own(name)
        return await self.keep(account, name, value)

    async def keep(self, account: str, name: str, value: str) -> store.NamedSecret:
        """Stores a secret, also one that the platform keeps. Raises BadRequest for a value that is too
        long."""
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > VALUE_BYTES:
            raise BadRequest(f"value is at most {VALUE_BYTES} bytes long; got {size}")
        now = self._clock()
        stored = await self._commits.commit(lambda conn: store.put_secret(conn, account, name, value, now))
        self._values.by_account.setdefault(account, {})[name] = value
        self._scaling.wake.set()
        return stored

    async def list(self, account: str) -> tuple[store.NamedSecret, ...]:
        """Returns the secrets that callers stored."""
        every = await self._commits.read(lambda conn: store.list_secrets(conn, account))
        return tuple(one for one in every if one.name != SSH_KEYS)

    async def delete(self, account: str, name: str) -> None:
        """Deletes a caller's secret. Raises BadRequest if it is in use, and NotFound."""
        _check_own(name)

        def remove(conn: Conn) -> None:
            using = [user.description for user in store.users_of(conn, account) if _names(user.env, name)]
            if using:
                raise BadRequest(f"secret {name} is in use by {', '.join(using)}")
            if not store.remove_secret(conn, account, name):
                raise NotFound(f"no secret {name!r}")

        await self._commits.commit(remove)
        self._values.by_account.get(account, {}).pop(name, None)


def _check_own(name: str) -> None:
    if name == SSH_KEYS:
        raise BadRequest(
            f"secret {name} is kept by the platform, from the account's SSH keys: change them under"
            " /v2/account/ssh-keys, or choose another name"
        )


def _names(env: Mapping[str, str], secret: str) -> bool:
    return any(secret in names for names in find(env).values())
