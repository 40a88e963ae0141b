"""Assigns users to workers: the agent's own user, one configured user, or a user of a range for each. Pure.

A user of the range belongs to one running worker, and is free again when none of its processes runs any more.
Its group has the same number. Free users are assigned in turn, so that a number is used again as late as
possible, in case a former worker left something.
"""

from __future__ import annotations

from collections import deque

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.isolation import User
from stoker.agent.host.storage import volumes


class WorkerUsers:
    """The users that workers run as. `named` is (uid, gid); `between` the first and the last uid of a range.
    Not both."""

    def __init__(self, named: User | None = None, between: tuple[int, int] | None = None) -> None:
        self._named = named
        self._free = deque(range(between[0], between[1] + 1) if between is not None else ())
        self._between = between
        self._taken: dict[str, list[User]] = {}

    @property
    def other(self) -> bool:
        """Returns whether workers run as another user than the agent's."""
        return self._named is not None or self._between is not None

    @property
    def own(self) -> bool:
        """Returns whether each worker has a user of its own."""
        return self._between is not None

    def take(self, worker: str) -> User | None:
        """Returns a user for the worker; None means the agent's own. Raises SpawnFailed if none is free."""
        if self._between is None:
            return self._named
        if not self._free:
            first, last = self._between
            raise SpawnFailed(
                f"all worker users {first}-{last} are taken: give the agent more with --worker-users"
            )
        uid = self._free.popleft()
        return self.join(worker, (uid, uid))

    def join(self, worker: str, user: User) -> User:
        """Lets another worker use the same user: a forked worker has its zygote's."""
        self._taken.setdefault(worker, []).append(user)
        return user

    def of(self, worker: str) -> User | None:
        """Returns the user that owns the worker's files. While its former process still ends, that is the
        user of the newer one."""
        if self._between is None:
            return self._named
        taken = self._taken.get(worker)
        return taken[-1] if taken else None

    def free(self, worker: str, user: User | None) -> None:
        """Frees the user, after the worker's last process has ended."""
        if self._between is None or user is None:
            return
        users = self._taken[worker]
        users.remove(user)
        if not users:
            del self._taken[worker]
        if not self.in_use(user):
            self._free.append(user[0])

    def group_of(self, volume: str) -> int | None:
        """Returns the group that a volume's folder needs so that its workers may write to it; None means
        any."""
        if self._between is not None:
            return volumes.group(volume)
        return None if self._named is None else self._named[1]

    def in_use(self, user: User) -> bool:
        return any(user in others for others in self._taken.values())
