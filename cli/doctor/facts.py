"""Facts that the probes of `stoker doctor` find, for `cli.doctor.findings` to judge. `trouble` is a sentence
of the part that was asked, and empty where it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gpus:
    """The NVIDIA GPUs: those on the PCI bus, the names of those that the driver shows, and its versions."""

    on_bus: int = 0
    shown: tuple[str, ...] = ()
    driver: str = ""
    cuda: Version | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch. `cuda` is the version that it is built for; None for the CPU alone."""

    version: str
    cuda: Version | None


@dataclass(frozen=True, slots=True)
class Engine:
    """The container engine. `cdi_takes`: its version takes CDI names of devices; `cdi_files`: the files that
    name NVIDIA's."""

    name: str = ""
    version: str = ""
    cdi_takes: bool = False
    cdi_files: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class OwnCgroup:
    path: str = ""
    controllers: frozenset[str] = frozenset()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a folder. `needed` is below which its process gives up."""

    folder: str
    free: int
    total: int
    needed: int


@dataclass(frozen=True, slots=True)
class Tried:
    """A file or an address that was tried: the configuration, the object store, or control's gRPC server as
    an agent of this host reaches it. `refused`: nothing listens there."""

    name: str
    trouble: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Certificate:
    """A PEM file, and for certificates in how many seconds they begin and end to be valid; None for a key.
    `begins` and `ends` are the same as a reader knows them. `soon_s`: how long before its end it should have
    been renewed; None: as long as for a certificate that people renew."""

    what: str
    path: str
    begins_in_s: float | None = None
    ends_in_s: float | None = None
    begins: str = ""
    ends: str = ""
    trouble: str = ""
    soon_s: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Control over HTTP. `checks` and `warnings` are those of its `/ready`. `version` is empty where no key
    of ours may read it, `ahead_s` is how far its clock is before ours. `refused`: nothing listens there."""

    address: str
    trouble: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    version: str = ""
    ahead_s: float | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. None is what does not apply: its part is not installed, or was not asked for."""

    version: str
    gpus: Gpus | None = None
    torch: Torch | None = None
    engine: Engine | None = None
    cgroup: OwnCgroup | None = None
    disk: Disk | None = None
    configuration: Tried | None = None
    certificates: tuple[Certificate, ...] = ()
    objects: Tried | None = None
    services: tuple[Service, ...] = ()
    doors: tuple[Tried, ...] = ()
