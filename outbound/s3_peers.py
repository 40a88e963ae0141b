"""S3 connections that refuse a peer by its address, for buckets that a caller names.

The check is on the socket, after it is connected and before a byte is sent: what a name resolved to
earlier or resolves to later does not matter. Which addresses are forbidden is `outbound.addresses`' to say.
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

from stoker.outbound.addresses import forbidden


class PeerRefused(Exception):
    """The text names the address."""


class _Vetted:
    def _new_conn(self) -> socket.socket:
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]
        address = str(connected.getpeername()[0])
        if kind := forbidden(address, allow_private=False):
            connected.close()
            raise PeerRefused(f"its host is the {kind} address {address}")
        return connected


class _HttpConnection(_Vetted, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_Vetted, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def refuse_private_peers(client: Any) -> None:
    """botocore has no other way in than its own attributes: if they move, this raises, nothing connects."""
    manager = client._endpoint.http_session._manager
    assert manager.pool_classes_by_scheme.keys() == {"http", "https"}
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
