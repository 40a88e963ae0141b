"""The admission of nodes: with a join token the first time, and from then on with a credential of its own.

    join token ── of an unknown node ──────────── revoked, expired, no uses left ──> refused
        │                                     └─> NEW: one use less, and a credential of its own
        ├── of one that never came with its credential ── the token that it joined with ──> AGAIN: another
        │                                                                  (the first may not have arrived)
        ├── of one whose credential was revoked ── a token made after that ──> NEW
        ├── of one that brings its credential, too ── its certificate has ended ──> NEW
        └── of any other that is known ──> refused: its id belongs to its credential
    credential ── of this node, and not revoked ──> BACK; of several unused ones, the first to come stays
               └─> refused

A join token is on every host that was started with it, so it does not identify one of them: it gets the node
a credential and no session, and only the credential opens one. The rule is `entry`, which is
pure; the rest reads and writes what it decides about.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, select, update

from stoker.control.store.database.opening import Conn
from stoker.control.store.resources import keys
from stoker.control.store.resources.keys import note_use
from stoker.control.store.tables.accounts import keys as key_rows
from stoker.control.store.tables.nodes import nodes

UNKNOWN = "this join token is not known, or was revoked: make one with `stoker key create --join`"
OUT = (
    "this node's credential is not known, or was revoked (control may be restored from a backup of before it"
    " joined): to let the node in again, run `stoker node revoke` if `stoker node list` shows it, remove the"
    " file node_credential from its data folder, and start its agent with a join token made after that by"
    " `stoker key create --join`"
)

ANOTHER = "make another with `stoker key create --join`"

UNUSED_MOST = 16
"""Credentials of one node that wait for their first use. Each Hello that is answered too late for its agent
leaves one, and the agent may have kept any of them."""


PROOF_MAX = 512


class JoinRefused(Exception):
    """An agent may not join with this token or credential; the message says why."""


class JoinCase(Enum):
    NEW = "it joins, and spends a use"
    AGAIN = "it joined, and gets another credential"
    BACK = "it comes back with its credential"


class Brought(Struct, frozen=True):
    """A join token, or a node's credential (`node` says whose), that is known and was not revoked."""

    id: str
    created_at: float
    expires_at: float | None = None
    uses_left: int | None = None
    node: str | None = None


class JoinedNode(Struct, frozen=True):
    """The store's record of a node: the token that it joined with, and its credential's id. `used`: the node
    came with the credential before."""

    join_key: str = ""
    credential: str = ""
    used: bool = False
    revoked_at: float | None = None


def entry(
    brought: Brought, node: str, known: JoinedNode | None, now: float, proof: str | None = None
) -> JoinCase:
    """Returns how this node comes in. `proof` is the id of the credential that came beside a join token.
    Raises JoinRefused."""
    if brought.node is not None:
        if known is None or not (known.credential == brought.id or _may_be_first(brought, node, known)):
            whose = "an earlier one of this node" if brought.node == node else f"that of node {brought.node}"
            raise JoinRefused(f"this credential is not node {node}'s: it is {whose}")
        return JoinCase.BACK
    if known is not None and known.join_key and known.revoked_at is None:
        if known.join_key == brought.id and not known.used:
            return JoinCase.AGAIN
        if known.credential == proof:
            return _joins(brought, now)
        raise JoinRefused(
            f"node {node} is known, and its id belongs to the credential that it got when it joined. On a"
            " copy of its host, remove node_id from the data folder; to let the node itself in again, see"
            " `stoker node revoke`"
        )
    if known is not None and known.revoked_at is not None and brought.created_at <= known.revoked_at:
        raise JoinRefused(f"node {node} was turned out after join token {brought.id} was made: make another")
    return _joins(brought, now)


def _may_be_first(brought: Brought, node: str, known: JoinedNode) -> bool:
    """Returns whether a credential may be the node's first. A Hello that control saw late got the node
    another credential, while its agent had kept this one."""
    return brought.node == node and not known.used and known.revoked_at is None


def _joins(brought: Brought, now: float) -> JoinCase:
    if brought.expires_at is not None and brought.expires_at <= now:
        raise JoinRefused(f"join token {brought.id} has expired: {ANOTHER}")
    if brought.uses_left == 0:
        raise _used_up(brought)
    return JoinCase.NEW


def _used_up(brought: Brought) -> JoinRefused:
    return JoinRefused(f"join token {brought.id} has been used as often as it may be: {ANOTHER}")


# ---- on the store -------------------------------------------------------------------------------


def unknown(conn: Conn, token: str) -> str | None:
    """Returns why this token or credential admits no node at all; None for one that is known."""
    if keys.find(conn, _kind(token), token) is not None:
        return None
    return UNKNOWN if _kind(token) == "join" else OUT


def why_refused(conn: Conn, token: str, node: str, now: float, proof: str = "") -> str | None:
    """Returns why this node may not connect with this token or credential; None when it may. `proof` is the
    credential that came beside a join token, if one did."""
    try:
        entry(_brought(conn, token), node, _known(conn, node), now, _proven(conn, proof))
    except JoinRefused as refused:
        return str(refused)
    return None


def is_join_token(token: str) -> bool:
    """Returns whether the token is for `join`; any other is for `reconnect`."""
    return _kind(token) == "join"


def join(conn: Conn, token: str, node: str, now: float, proof: str = "") -> str:
    """Joins the node with this token; returns the credential with which the node reconnects. Raises
    JoinRefused, where `why_refused` says why.

    To be called when the node's row is there, in the transaction that made it: a token that may be used once
    is used up by the first node, and a refusal takes the row back.
    """
    brought, known = _brought(conn, token), _known(conn, node)
    if entry(brought, node, known, now, _proven(conn, proof)) is JoinCase.NEW:
        _spend(conn, brought)
        _forget_unused(conn, node)
    else:  # a full disk may ask for many
        _forget_unused(conn, node, newest=UNUSED_MOST - 1)
    note_use(conn, {brought.id: now})
    account = conn.execute(select(key_rows.c.account).where(key_rows.c.id == brought.id)).scalar_one()
    record, credential = keys.create_credential(conn, node=node, now=now, account=account)
    theirs = update(nodes).where(nodes.c.id == node)
    conn.execute(theirs.values(join_key=brought.id, credential=record.id, account=account))
    return credential


def _spend(conn: Conn, brought: Brought) -> None:
    """Takes a use from the token, if its uses are counted. Raises JoinRefused where another writer took the
    last one after this token was read."""
    spent = update(key_rows).where(key_rows.c.id == brought.id, key_rows.c.uses_left > 0)
    taken = conn.execute(spent.values(uses_left=key_rows.c.uses_left - 1)).rowcount
    if brought.uses_left is not None and not taken:
        raise _used_up(brought)


def reconnect(conn: Conn, credential: str, node: str, now: float) -> None:
    """Reconnects the node. Raises JoinRefused, where `why_refused` says why."""
    brought = _brought(conn, credential)
    entry(brought, node, _known(conn, node), now)
    note_use(conn, {brought.id: now})
    _forget_unused(conn, node, but=brought.id)
    conn.execute(update(nodes).where(nodes.c.id == node).values(credential=brought.id))


def _forget_unused(conn: Conn, node: str, but: str = "", newest: int = 0) -> None:
    """Deletes the credentials of this node that were never used: all but one, or but the newest."""
    unused = (key_rows.c.last_used_at.is_(None), key_rows.c.revoked_at.is_(None), key_rows.c.id != but)
    theirs = select(key_rows.c.id).where(key_rows.c.kind == "node", key_rows.c.name == node, *unused)
    by_age = theirs.order_by(key_rows.c.created_at.desc(), key_rows.c.id)
    forgotten = conn.execute(by_age).scalars().all()[newest:]
    conn.execute(delete(key_rows).where(key_rows.c.id.in_(forgotten)))


def is_credential_of(conn: Conn, credential: str, node: str) -> bool:
    """Returns whether this is the node's credential, and good."""
    row = keys.find(conn, "node", credential)
    known = _known(conn, node)
    return row is not None and known is not None and bool(row.id == known.credential)


def revoke(conn: Conn, node: str, now: float) -> bool:
    """Revokes the node's credential. Returns False if the node had none, or it was revoked before."""
    known = _known(conn, node)
    return known is not None and keys.revoke_key(conn, known.credential, now)


_REVOKED = """
SELECT nodes.id FROM nodes JOIN keys ON keys.id = nodes.credential WHERE keys.revoked_at IS NOT NULL
"""


def revoked_nodes(conn: Conn) -> frozenset[str]:
    """Returns the nodes whose credential was revoked."""
    return frozenset(node for (node,) in conn.run(_REVOKED, {}).fetchall())


def _kind(token: str) -> keys.Kind:
    return "node" if token.startswith("nk_") else "join"


def _brought(conn: Conn, token: str) -> Brought:
    kind = _kind(token)
    row = keys.find(conn, kind, token)
    if row is None:
        raise JoinRefused(UNKNOWN if kind == "join" else OUT)
    node = row.name if kind == "node" else None
    return Brought(row.id, row.created_at, row.expires_at, row.uses_left, node)


def _proven(conn: Conn, proof: str) -> str | None:
    """Returns the id of a credential that is good; None for anything else."""
    plausible = 0 < len(proof) <= PROOF_MAX and proof.isprintable()  # PostgreSQL takes no NUL
    row = keys.find(conn, "node", proof) if plausible else None
    return None if row is None else str(row.id)


def _known(conn: Conn, node: str) -> JoinedNode | None:
    found = (
        select(nodes.c.join_key, nodes.c.credential, key_rows.c.last_used_at, key_rows.c.revoked_at)
        .select_from(nodes.outerjoin(key_rows, key_rows.c.id == nodes.c.credential))
        .where(nodes.c.id == node)
    )
    row: Any = conn.execute(found).first()
    if row is None:
        return None
    return JoinedNode(row.join_key, row.credential, row.last_used_at is not None, row.revoked_at)
