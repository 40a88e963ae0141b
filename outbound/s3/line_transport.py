"""The connections of an httpx2 client that can be ended from another thread (`outbound.line`)."""

from __future__ import annotations

import ssl
from typing import Any

import httpcore2
import httpx2

from stoker.outbound.line import in_use, refuse_ended


class LineTransport(httpx2.HTTPTransport):
    """httpx2 has no API for the streams of its connections: if its attributes change, this raises and nothing
    connects."""

    def __init__(self, tls: ssl.SSLContext | bool) -> None:
        super().__init__(verify=tls, trust_env=False)
        assert isinstance(self._pool, httpcore2.ConnectionPool)
        assert hasattr(self._pool, "_network_backend")
        self._pool._network_backend = _Backend()


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(self, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        try:
            refuse_ended()
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from None
        return _Stream(super().connect_tcp(*args, **options))


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._note()
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._note()
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        self._note()
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _note(self) -> None:
        try:
            in_use(self.get_extra_info("socket"))
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from None
