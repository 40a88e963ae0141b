"""Named secrets: values that environments of templates, endpoints and pods refer to.

They are kept sealed, and in memory in clear, since every new worker is given those that its environment
names. A changed value reaches workers that are made from then on; a worker or a pod that is there keeps what
it has, over restarts of its process too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.control import store
from stoker.control.commit import Commits
from stoker.control.errors import BadRequest
from stoker.control.secret_references import Filled, UnknownSecret, fill, find
from stoker.control.staffing import Staffing
from stoker.control.store import Conn

VALUE_BYTES = 64 * 1024


class SecretBook:
    """`load` is to be awaited before anything is filled in."""

    def __init__(self, commits: Commits, staffing: Staffing, clock: Callable[[], float]) -> None:
        self._commits, self._staffing, self._clock = commits, staffing, clock
        self._values: dict[str, dict[str, str]] = {}
        staffing.fill = self.fill

    async def load(self) -> None:
        """In line with what is stored meanwhile, and hence a commit."""
        self._values = await self._commits.commit(store.read_secrets)

    def fill(self, account: str, env: Mapping[str, str]) -> Filled | UnknownSecret:
        """The environment as a worker or a pod gets it."""
        return fill(env, self._values.get(account, {}))

    def check(self, account: str, env: Mapping[str, str]) -> None:
        """Raises BadRequest where it names a secret that there is not."""
        filled = self.fill(account, env)
        if isinstance(filled, UnknownSecret):
            raise BadRequest(f"{filled.why}; store it first, under /v1/secrets/{filled.secret}")

    def check_still(self, conn: Conn, account: str, env: Mapping[str, str]) -> None:
        """In the transaction that comes to use it. Raises BadRequest where one was deleted meanwhile."""
        wanted = {name for names in find(env).values() for name in names}
        gone = wanted - {one.name for one in store.list_secrets(conn, account)} if wanted else wanted
        if gone:
            raise BadRequest(f"env: secret {', '.join(sorted(gone))} has just been deleted")

    async def put(self, account: str, name: str, value: str) -> store.NamedSecret:
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > VALUE_BYTES:
            raise BadRequest(f"value is at most {VALUE_BYTES} bytes long; got {size}")
        now = self._clock()
        stored = await self._commits.commit(lambda conn: store.put_secret(conn, account, name, value, now))
        self._values.setdefault(account, {})[name] = value
        self._staffing.wake.set()
        return stored

    async def list(self, account: str) -> tuple[store.NamedSecret, ...]:
        return await self._commits.read(lambda conn: store.list_secrets(conn, account))

    async def delete(self, account: str, name: str) -> None:
        def remove(conn: Conn) -> None:
            using = [user.words for user in store.users_of(conn, account) if _names(user.env, name)]
            if using:
                raise BadRequest(f"secret {name} is in use by {', '.join(using)}")
            if not store.remove_secret(conn, account, name):
                raise BadRequest(f"no secret {name!r}: there is nothing to delete")

        await self._commits.commit(remove)
        self._values.get(account, {}).pop(name, None)


def _names(env: Mapping[str, str], secret: str) -> bool:
    return any(secret in names for names in find(env).values())
