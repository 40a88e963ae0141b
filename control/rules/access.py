"""What a key may do. Pure: it reads what is stored with the key, and answers yes or no.

all         everything, keys and join tokens too
read        to look at everything but keys, and to change nothing
restricted  `management` and each endpoint: none, read or write; an endpoint that is not named, as "*" says

No scope is more than `all`, and who may change may look. Only `all` makes and changes keys, so no key makes a
stronger one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["all", "read", "restricted"]
Right = Literal["none", "read", "write"]


@dataclass(frozen=True, slots=True)
class Access:
    scope: Scope = "all"
    management: Right = "none"
    endpoints: Mapping[str, Right] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: str) -> Access:
        return cls(**json.loads(stored))

    def stored(self) -> str:
        """`parse` understands it."""
        if self.scope != "restricted":
            return json.dumps({"scope": self.scope})
        told = {"scope": self.scope, "management": self.management, "endpoints": dict(self.endpoints)}
        return json.dumps(told, sort_keys=True)

    @property
    def keys(self) -> bool:
        """Whether it may see, make and change keys."""
        return self.scope == "all"

    def manages(self, *, write: bool) -> bool:
        return self._may(self.management, write=write)

    def calls(self, endpoint: str, *, write: bool) -> bool:
        return self._may(self.endpoints.get(endpoint, self.endpoints.get("*", "none")), write=write)

    def _may(self, right: Right, *, write: bool) -> bool:
        if self.scope == "restricted":
            return right == "write" or (right == "read" and not write)
        return self.scope == "all" or not write


ALL = Access()
NOTHING = Access("restricted")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever holds a key: its account, the key's id, and what it may do."""

    account: str
    key: str = ""
    access: Access = NOTHING
