"""S3 connections that refuse forbidden peer addresses, for buckets that a caller names.

The check uses the connected socket, before a byte is sent: what the name resolved to earlier, or resolves to
later, does not matter. `outbound.refused_addresses` decides which addresses are forbidden.
"""

from __future__ import annotations

import socket
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from stoker.outbound.refused_addresses import forbidden


class PeerRefused(Exception):
    """The peer's address is forbidden; the message names it."""


class _CheckedPeer:
    def _new_conn(self) -> socket.socket:
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]
        address = str(connected.getpeername()[0])
        if kind := forbidden(address, allow_private=False):
            connected.close()
            raise PeerRefused(f"its host is the {kind} address {address}")
        return connected


class _HttpConnection(_CheckedPeer, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_CheckedPeer, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def refuse_private_peers(client: Any) -> None:
    """Replaces the client's connection classes. botocore has no API for that: if its attributes change, this
    raises and nothing connects."""
    manager = client._endpoint.http_session._manager
    assert manager.pool_classes_by_scheme.keys() == {"http", "https"}
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
