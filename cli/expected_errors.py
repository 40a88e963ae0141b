"""Errors of other folders whose message is meant for the operator. All other errors show a traceback.

Listed by name: an install with only some of the extras cannot import them all.
"""

from __future__ import annotations

EXPECTED = frozenset(
    {
        "stoker.agent.host.devices.interfaces.DevicesUnknown",
        "stoker.agent.errors.AgentRefused",
        "stoker.agent.errors.OutboxUnusable",
        "stoker.client.errors.ClientError",
        "stoker.control.http.server.listener.CannotListen",
        "stoker.control.config.config.ConfigError",
        "stoker.control.errors.ControlError",
        "stoker.control.nodes.grpc_stream.CannotListen",
        "stoker.control.store.database.secrets.SecretKeyError",
        "stoker.control.store.database.opening.StoreError",
        "stoker.control.config.tls.NotLoopback",
        "stoker.models.weights.lock.WeightsError",
        "stoker.outbound.errors.OutboundError",
        "stoker.wire.tls_files.TlsFilesUnusable",
    }
)


def is_expected(error: Exception) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in EXPECTED for kind in type(error).__mro__)
