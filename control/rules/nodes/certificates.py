"""The rules of nodes' certificates: when each begins and ends, which credential it goes with, and which
sessions have outlived theirs. Pure.

    call ── with a join token ───────────────────────────────────> no certificate is needed: no session
        └── with a credential ── a certificate that names it ────> admitted
                              ├── one that names another ────────> refused
                              └── none, or one that has ended ───> refused

A certificate names the node and the credential that it goes with. So it is refused as soon as the credential
is revoked, and after a node has joined anew: there is no list of revoked certificates beside the store's
keys."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

SKEW_S = 600.0
"""How far before its signature a certificate begins: a host's clock may be behind. `stoker doctor` fails at
half of this."""

LIFE_S = 4 * 86_400.0
"""Agents renew after a quarter. So a host that was off for three days comes back by itself, and what somebody
has copied from one is of no use after four."""

ANEW = "to let the node in again, start its agent with a join token, of `stoker key create --join`"


class AuthorityEnded(Exception):
    """The authority has ended, or is about to: what it signs would be of no use."""


class Certified(Struct, frozen=True):
    """A certificate of ours that a caller showed. `credential` is the id of a key; `ends_at` is in seconds
    since the epoch."""

    node: str
    credential: str
    ends_at: float


def validity(now: float, life_s: float, authority_ends_at: float) -> tuple[float, float]:
    """Returns when a certificate that is signed now begins and ends, in seconds since the epoch: never after
    its authority. Raises AuthorityEnded."""
    end = min(now + life_s, authority_ends_at)
    if end <= now:
        raise AuthorityEnded("the authority has ended: make another with `stoker ca rotate`")
    return now - SKEW_S, end


def why_not_certified(shown: Certified | None, credential: str | None, now: float) -> str | None:
    """Returns why a caller is refused for the certificate that it showed; None where the certificate is good.
    `credential` is the id of the caller's credential; None for a join token."""
    if credential is None:
        return None
    if shown is None:
        return f"this control demands certificates of nodes, and this node showed none of its own: {ANEW}"
    if shown.ends_at <= now:
        return f"the certificate of node {shown.node} has ended: {ANEW}"
    if shown.credential != credential:
        return (
            f"this certificate of node {shown.node} goes with another credential than the one that came"
            f" with it: {ANEW}"
        )
    return None


def outlived(ends: Mapping[str, float], now: float) -> frozenset[str]:
    """Returns the nodes whose certificate has ended; `ends` has the newest that control has seen of each."""
    return frozenset(node for node, end in ends.items() if end <= now)
