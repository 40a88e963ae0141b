"""S3 connections that can be ended from another thread (`outbound.line`), and that refuse forbidden peer
addresses, for buckets that a caller names.

The check uses the connected socket, before a byte is sent: what the name resolved to earlier, or resolves to
later, does not matter. `outbound.refused_addresses` decides which addresses are forbidden. Of a name with
many addresses only the first few are tried, since each may take the whole time to connect.
"""

from __future__ import annotations

import socket
from typing import Any, ClassVar

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from stoker.outbound.line import in_use, refuse_ended
from stoker.outbound.refused_addresses import forbidden

_ADDRESSES_TRIED = 4


class PeerRefused(Exception):
    """The peer's address is forbidden; the message names it."""


class _Connection:
    guarded: ClassVar[bool] = False
    port: int
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        name, failure = self._dns_host, None
        try:
            for address in _addresses(name, self.port):
                refuse_ended()
                self._dns_host = address
                try:
                    connected: socket.socket = super()._new_conn()  # type: ignore[misc]
                except (ConnectTimeoutError, NewConnectionError) as error:
                    failure = error
                else:
                    return self._checked(connected)
        finally:
            self._dns_host = name
        assert failure is not None
        raise failure

    def _checked(self, connected: socket.socket) -> socket.socket:
        try:
            in_use(connected)
            address = str(connected.getpeername()[0])
            if self.guarded and (kind := forbidden(address, allow_private=False)):
                raise PeerRefused(f"its host is the {kind} address {address}")
        except BaseException:
            connected.close()
            raise
        return connected


def _addresses(name: str, port: int) -> tuple[str, ...]:
    """Returns the addresses to try; the name itself if the name has no address, for the error that says
    so."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return (name,)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))[:_ADDRESSES_TRIED]


class _Pool:
    """Notes which connection each call uses: an idle connection is not opened again."""

    def _make_request(self, conn: Any, *args: Any, **options: Any) -> Any:
        in_use(conn.sock)
        return super()._make_request(conn, *args, **options)  # type: ignore[misc]


class _HttpConnection(_Connection, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_Connection, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _GuardedHttpConnection(_HttpConnection):
    guarded = True


class _GuardedHttpsConnection(_HttpsConnection):
    guarded = True


class _HttpPool(_Pool, AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(_Pool, AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


class _GuardedHttpPool(_HttpPool):
    ConnectionCls = _GuardedHttpConnection


class _GuardedHttpsPool(_HttpsPool):
    ConnectionCls = _GuardedHttpsConnection


def use_own_connections(client: Any, *, allow_private: bool) -> None:
    """Replaces the client's connection classes. botocore has no API for that: if its attributes change, this
    raises and nothing connects."""
    manager = client._endpoint.http_session._manager
    assert manager.pool_classes_by_scheme.keys() == {"http", "https"}
    manager.pool_classes_by_scheme = (
        {"http": _HttpPool, "https": _HttpsPool}
        if allow_private
        else {"http": _GuardedHttpPool, "https": _GuardedHttpsPool}
    )
