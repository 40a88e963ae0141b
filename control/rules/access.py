"""The rights of a key. Pure: reads what is stored with the key, and answers yes or no.

all         everything, keys and join tokens too
read        to read everything but keys, and to change nothing
restricted  `management` and each endpoint: none, read or write; an endpoint that is not named, as for "*";
            and, with `cases`, the cases of jobs at endpoints where it may look
pod         to read and to stop one pod, and nothing else: it is that pod's own

A case shows a caller's input to others than the caller, so `read` does not include cases, nor the inputs of
jobs that another key submitted.

No scope is more than `all`, and who may change may look. Only `all` makes and changes keys, so no key makes a
stronger one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from stoker.control.rules.queueing.priorities import Priority, outranks
from stoker.control.rules.quotas import UNBOUNDED, Quota

Scope = Literal["all", "read", "restricted", "pod"]
Right = Literal["none", "read", "write"]


class Access(Struct, frozen=True):
    scope: Scope = "all"
    management: Right = "none"
    endpoints: Mapping[str, Right] = field(default_factory=dict)
    pod: str = ""
    cases: bool = False

    @classmethod
    def parse(cls, stored: str) -> Access:
        return cls(**json.loads(stored))

    def stored(self) -> str:
        """Returns the text that `parse` reads."""
        if self.scope == "pod":
            return json.dumps({"scope": self.scope, "pod": self.pod})
        if self.scope != "restricted":
            return json.dumps({"scope": self.scope})
        fields = {"scope": self.scope, "management": self.management, "endpoints": dict(self.endpoints)}
        if self.cases:  # left out otherwise: a control of an earlier version knows no such field
            return json.dumps({**fields, "cases": True}, sort_keys=True)
        return json.dumps(fields, sort_keys=True)

    @property
    def highest(self) -> Priority:
        """The highest class that a key with this scope may submit, where nothing else is set for it."""
        return Priority.URGENT if self.scope == "all" else Priority.NORMAL

    @property
    def keys(self) -> bool:
        """True if the key may see, make and change keys."""
        return self.scope == "all"

    def may(self, *, write: bool, endpoint: str = "") -> bool:
        """Returns whether the key may look or change at this endpoint; without an endpoint, in management."""
        if self.scope != "restricted":
            return self.scope == "all" or (self.scope == "read" and not write)
        right = self.management
        if endpoint:
            right = self.endpoints.get(endpoint, self.endpoints.get("*", "none"))
        return right == "write" or (right == "read" and not write)

    def may_read_cases(self, endpoint: str) -> bool:
        """Returns whether the key may read the cases of jobs at this endpoint."""
        return self.scope == "all" or (self.cases and self.may(write=False, endpoint=endpoint))

    def is_own_pod(self, method: str, path: str) -> bool:
        """Returns whether the key is a pod's own, and may make this request below /v1 or /v2. Which action it
        asks for below /v2 is in its body, and checked there."""
        own = f"/pods/{self.pod}"
        allowed = (("GET", own), ("POST", f"{own}/stop"), ("POST", f"{own}/action"))
        return self.scope == "pod" and (method, path) in allowed


ALL = Access()
NOTHING = Access("restricted")


class Caller(Struct, frozen=True):
    """The holder of a key: its account, the key's id, what it may do, how much, and the highest class of the
    jobs that it may submit."""

    account: str
    key: str = ""
    access: Access = NOTHING
    quota: Quota = UNBOUNDED
    priority: Priority = Priority.NORMAL

    def granted(self, asked: Priority | None) -> Priority | None:
        """Returns the class of a job; None where the caller asked for more than the key may. A job that asks
        for none is normal, or as high as the key may."""
        if asked is None:
            return Priority.LOW if self.priority is Priority.LOW else Priority.NORMAL
        return None if outranks(asked, self.priority) else asked


NOBODY = Caller("")
"""The caller of what no key was sent with."""
