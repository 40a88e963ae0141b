"""Errors of the other parts whose text is a sentence for an operator; every other error shows its trace."""

from __future__ import annotations

from stoker.agent.devices import DevicesUnknown
from stoker.agent.seams import AgentRefused
from stoker.client.errors import ClientError
from stoker.control.api.server import CannotListen
from stoker.control.config import ConfigError
from stoker.control.errors import ControlError
from stoker.control.grpc_stream import CannotListen as CannotListenGrpc
from stoker.control.grpc_stream import NotLoopback
from stoker.control.secrets import SecretKeyError
from stoker.control.store import StoreError
from stoker.models.weights import WeightsError
from stoker.outbound.errors import OutboundError

SENTENCES: tuple[type[Exception], ...] = (
    AgentRefused,
    CannotListen,
    CannotListenGrpc,
    ClientError,
    ConfigError,
    ControlError,
    DevicesUnknown,
    NotLoopback,
    OutboundError,
    SecretKeyError,
    StoreError,
    WeightsError,
)
