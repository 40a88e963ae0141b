"""Nodes that are avoided, because workers did not start or did not stay well there. Pure: time is data.

    a worker of an endpoint's version turns unhealthy on a node ──> the node is avoided for this version:
                                                        FIRST_S, and twice as long each further time, up to
                                                        LONGEST_S; from then on as any node
    a worker of the version is ready on the node ──> all is forgotten for this version there
    SEVERAL endpoints avoid a node at once ──> it is the node: it takes no new workers of anybody meanwhile

It decides nothing about the workers that are there: `control.scheduling.worker_scaling` withdraws those for
which another node has a place, and leaves the others to their agent, which tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.control.rules.placement import NodeRoom

FIRST_S = 60.0
LONGEST_S = 3600.0
SEVERAL = 3
"""So many endpoints whose workers do not start on a node show that the node is at fault."""

KEPT_S = 2 * LONGEST_S
"""How long after its end an avoidance still counts for the next one's length."""

REASON_MOST = 200


class Version(Struct, frozen=True):
    """A version of an endpoint."""

    endpoint: str
    number: int


class Avoided(Struct, frozen=True):
    """A node that is avoided for a version. `times`: how often in a row; `until`, in the caller's seconds."""

    version: Version
    node: str
    times: int
    until: float
    why: str

    @property
    def sentence(self) -> str:
        """The reason why nothing of this version may go there, as the end of a sentence about the node."""
        return f"is avoided after {self.times} failed {'try' if self.times == 1 else 'tries'}: {self.why}"


class Avoidance(Struct):
    """All that is avoided. A worker counts once, however often it is noted."""

    _avoided: dict[tuple[Version, str], Avoided] = field(default_factory=dict)
    _noted: dict[str, float] = field(default_factory=dict)

    def note_failed(self, version: Version, node: str, worker: str, why: str, now: float) -> None:
        """Notes that this worker turned unhealthy."""
        self._forget(now)
        if worker in self._noted:
            return
        before = self._avoided.get((version, node))
        times = before.times + 1 if before else 1
        until = now + min(FIRST_S * 2.0 ** min(times - 1, 32), LONGEST_S)
        self._noted[worker] = until + KEPT_S
        line = why.partition("\n")[0][:REASON_MOST] or "it is unhealthy"
        self._avoided[version, node] = Avoided(version, node, times, until, line)

    def note_ready(self, version: Version, node: str) -> None:
        """Notes that a worker of the version is ready on the node."""
        self._avoided.pop((version, node), None)

    def note_resumed(self, node: str) -> None:
        """Forgets a node's failures: an operator says that the node is well."""
        for key in [key for key in self._avoided if key[1] == node]:
            del self._avoided[key]

    def now_avoided(self, now: float) -> list[Avoided]:
        """Returns what is avoided at this time."""
        return [one for one in self._avoided.values() if now < one.until]

    def at_fault(self, now: float) -> dict[str, str]:
        """Returns the nodes that take no new workers of anybody, and why, as the end of a sentence."""
        endpoints: dict[str, set[str]] = {}
        for one in self.now_avoided(now):
            endpoints.setdefault(one.node, set()).add(one.version.endpoint)
        return {
            node: f"is avoided: workers of {len(failing)} endpoints do not start there"
            for node, failing in endpoints.items()
            if len(failing) >= SEVERAL
        }

    def closing(self, rooms: Sequence[NodeRoom], version: Version, now: float) -> list[NodeRoom]:
        """Returns the rooms, closed where the version is not to go."""
        closed = self.at_fault(now)
        closed |= {one.node: one.sentence for one in self.now_avoided(now) if one.version == version}
        return [
            replace(room, closed=room.closed or closed[room.node]) if room.node in closed else room
            for room in rooms
        ]

    def keep(self, endpoints: Iterable[str]) -> None:
        """Forgets all endpoints but these."""
        kept = set(endpoints)
        for key in [key for key in self._avoided if key[0].endpoint not in kept]:
            del self._avoided[key]

    def _forget(self, now: float) -> None:
        for key in [key for key, one in self._avoided.items() if one.until + KEPT_S < now]:
            del self._avoided[key]
        for worker in [worker for worker, until in self._noted.items() if until < now]:
            del self._noted[worker]
