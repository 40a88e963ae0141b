"""Whom workers run as: the agent's own user, one that was named, or each another of a range.

A user of the range belongs to one living worker, and is free again when nothing of it runs any more. It is
its group, too. Free ones are taken in turn, so that what a former worker left behind meets its number late.
"""

from __future__ import annotations

from collections import deque

from stoker.agent import volumes
from stoker.agent.isolation import User
from stoker.agent.seams import SpawnFailed


class WorkerUsers:
    """`named` is (uid, gid); `between` the first and the last uid of a range. Not both."""

    def __init__(self, named: User | None = None, between: tuple[int, int] | None = None) -> None:
        self._named = named
        self._free = deque(range(between[0], between[1] + 1) if between is not None else ())
        self._between = between
        self._taken: dict[str, list[User]] = {}

    @property
    def other(self) -> bool:
        """Whether workers are not the agent's user."""
        return self._named is not None or self._between is not None

    @property
    def own(self) -> bool:
        """Whether each has one of its own."""
        return self._between is not None

    def take(self, worker: str) -> User | None:
        """None: the agent's own. Raises SpawnFailed when all of the range are taken."""
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
        """Another worker of the same user: one that is forked has its template's."""
        self._taken.setdefault(worker, []).append(user)
        return user

    def of(self, worker: str) -> User | None:
        """Whom its files belong to. While its former process is still being cleared away, that is the user of
        the newer one."""
        if self._between is None:
            return self._named
        taken = self._taken.get(worker)
        return taken[-1] if taken else None

    def free(self, worker: str, user: User | None) -> None:
        """Nothing of that worker runs any more."""
        if self._between is None or user is None:
            return
        users = self._taken[worker]
        users.remove(user)
        if not users:
            del self._taken[worker]
        if not self.in_use(user):
            self._free.append(user[0])

    def group_of(self, volume: str) -> int | None:
        """The group that a volume's folder must have so that its workers may write there; None: any."""
        if self._between is not None:
            return volumes.group(volume)
        return None if self._named is None else self._named[1]

    def in_use(self, user: User) -> bool:
        return any(user in others for others in self._taken.values())
