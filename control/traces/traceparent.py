"""The place of a request or job in its caller's trace: the header `traceparent` of W3C Trace Context.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version, id of the trace, id of the span that is the parent of what follows, flags (01: it is recorded)

Pure. The ids of a job's spans are derived from those of its parent, so whoever ends an attempt, this control
or the next one, names the same span that its worker was given as the parent of its own. `tracestate`, which
only vendors read, is not taken along.
"""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec import Struct

_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class Traceparent(Struct, frozen=True):
    """A span: its own id and its trace's, in hexadecimal digits. `sampled`: its trace is recorded."""

    trace: str
    span: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.sampled):02x}"

    def child(self, *names: str) -> Traceparent:
        """Returns the span of these names below this one: always the same one."""
        told = "/".join((self.trace, self.span, *names)).encode()
        return Traceparent(self.trace, sha256(told).hexdigest()[:16], self.sampled)


def parse_traceparent(text: str | None) -> Traceparent | None:
    """Returns the parent that a caller names; None where the header is missing or is not valid, which begins
    a new trace, as the specification says. Later versions may add fields at the end."""
    found = _FORM.fullmatch(text or "")
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return Traceparent(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


def kept_traceparent(text: str | None) -> str | None:
    """Returns the header as it is stored with a job and handed on; None where it is not valid."""
    parent = parse_traceparent(text)
    return None if parent is None else str(parent)
