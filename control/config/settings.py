"""The settings of the control plane. Durations are in seconds; the defaults are the protocol's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from stoker.control.rules.billing import PriceList
from stoker.control.rules.limits import RETENTION_S, RETENTION_SYNC_S
from stoker.control.rules.nodes.ways import WAYS, Way
from stoker.wire.messages import LockedWeights, Price, RegistryAuth

LIVE: Final = (
    "aliases",
    "functions",
    "local_roots",
    "price_list",
    "prices",
    "registries",
    "retention_s",
    "retention_sync_s",
    "set_by_file",
)
"""The settings that change while control runs: whoever needs one reads it here each time."""


class PlaneSettings(Struct):
    """The settings of the control plane. `aliases` maps further ids to endpoints' ids. `registries` are those
    that the file declares.

    `local_roots` are the folders in which `local:` handlers may be; relative paths start at `local_base`.
    `functions`: whether callers' functions may run on the nodes.
    `weights`: what nodes fetch for each entry of this installation's lock file, by its name.
    `prices` apply to every endpoint's jobs; `price_list` is used for bills. `gateway_ways`: those in which
    http workers may be reached. `network_namespace`: the one that control is in, if that is known.
    `set_by_file`: of each hosted endpoint, the fields that the configuration file sets, named as in the API.
    `spool`: the folder of temporary files; None: the system's. `sources`: the folder of archives of handlers;
    None: nodes are sent none. `not_sent` are files of no use to nodes.
    """

    beat_s: float = 5.0
    lease_s: float = 45.0  # from the last acknowledged beat that an agent sent until it stops its own work
    silence_s: float = 60.0  # control requeues a silent node's jobs: later than the agent stopped them
    broken_s: float = 5.0  # a broken stream may come back
    sweep_s: float = 1.0
    retention_s: float = RETENTION_S  # how long the record of an ended job is kept
    retention_sync_s: float = RETENTION_SYNC_S
    allow_private_addresses: bool = False  # may a caller's bucket or webhook lie in a private range?
    aliases: Mapping[str, str] = field(default_factory=dict)
    price_list: PriceList = field(default_factory=PriceList)
    registries: Mapping[str, RegistryAuth] = field(default_factory=dict)
    local_roots: tuple[str, ...] = ()
    local_base: str = "/"
    functions: bool = False
    weights: Mapping[str, tuple[LockedWeights, ...]] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()
    gateway_ways: tuple[Way, ...] = WAYS
    network_namespace: str = ""
    set_by_file: Mapping[str, frozenset[str]] = field(default_factory=dict)
    spool: str | None = None
    sources: str | None = None
    not_sent: tuple[str, ...] = ()

    def take(self, other: PlaneSettings) -> None:
        """Takes over the settings in `LIVE`; the others stay until a restart."""
        for name in LIVE:
            setattr(self, name, getattr(other, name))
