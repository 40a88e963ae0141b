"""Findings of `stoker doctor`: what the facts of a host mean, and what to do about each. Pure.

A finding fails where something that is needed does not work, and warns where Stoker works with less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stoker.cli.doctor.facts import Certificate, Disk, Engine, Facts, Gpus, OwnCgroup, Service, Torch, Version

SOON_S = 14 * 86_400.0
"""How long before its end a certificate is warned of, as at the start of control and agent."""

AHEAD_WARNS_S, AHEAD_FAILS_S = 5.0, 300.0
"""Object stores refuse signatures whose time is 15 minutes off; times in logs are hard to compare before."""

FREE_SHARE = 0.05
"""The share of a disk below which the alert of agents rings, too."""

CONTROLLERS = frozenset({"memory", "pids", "cpu"})


class Level(StrEnum):
    ok = "ok"
    warning = "warning"
    failed = "failed"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    found: str
    do: str = ""


def findings(facts: Facts) -> list[Finding]:
    """Returns a finding for each check, in the order in which a host is brought up."""
    no_agent = "the part `agent` is not installed here"
    found = [
        _driver(facts.gpus) if facts.gpus else Finding("driver", Level.skipped, no_agent),
        _cuda(facts.gpus, facts.torch),
        _engine(facts.engine, facts.gpus) if facts.engine else Finding("engine", Level.skipped, no_agent),
        _cdi(facts.engine, facts.gpus),
        _cgroups(facts.cgroup) if facts.cgroup else Finding("cgroups", Level.skipped, no_agent),
    ]
    if facts.disk:
        found.append(_disk(facts.disk))
    found += [_clock(facts.services), *_configuration(facts), *_certificates(facts), _objects(facts)]
    return [*found, *_control(facts)]


def failed(found: list[Finding]) -> bool:
    return any(one.level is Level.failed for one in found)


def _driver(gpus: Gpus) -> Finding:
    if gpus.trouble:
        do = "look into `dmesg` and `nvidia-smi`; a driver that was updated needs a restart of the host"
        return Finding("driver", Level.failed, gpus.trouble, do)
    if gpus.shown:
        return Finding("driver", Level.ok, f"{gpus.driver}: {', '.join(gpus.shown)}")
    if gpus.on_bus:
        found = f"{gpus.on_bus} NVIDIA device{_s(gpus.on_bus)} on the PCI bus, and no driver is loaded"
        return Finding("driver", Level.failed, found, "install NVIDIA's driver, and restart the host")
    return Finding("driver", Level.warning, "no NVIDIA GPU is here; jobs would run on the CPU")


def _cuda(gpus: Gpus | None, torch: Torch | None) -> Finding:
    """Compares versions. A driver runs all that is built for its own major version of CUDA and for earlier
    ones; of a later minor version it lacks what is compiled when a model is loaded."""
    if torch is None:
        return Finding("cuda", Level.skipped, "torch is not installed here: workers bring their own")
    if gpus is None or gpus.cuda is None:
        return Finding("cuda", Level.skipped, f"torch {torch.version}; there is no driver to compare it with")
    if torch.cuda is None:
        do = "install a torch that is built for CUDA, from the package index or PyTorch's own"
        return Finding(
            "cuda", Level.failed, f"torch {torch.version} is built for the CPU, and a GPU is here", do
        )
    found = (
        f"torch {torch.version} is built for CUDA {_dotted(torch.cuda)}, the driver has {_dotted(gpus.cuda)}"
    )
    do = f"update the driver, or install a torch that is built for CUDA {_dotted(gpus.cuda)}"
    if torch.cuda[0] > gpus.cuda[0]:
        return Finding("cuda", Level.failed, found, do)
    return (
        Finding("cuda", Level.warning, found, do)
        if torch.cuda > gpus.cuda
        else Finding("cuda", Level.ok, found)
    )


def _engine(engine: Engine, gpus: Gpus | None) -> Finding:
    if engine.trouble:
        do = (
            "for endpoints and pods with images: install docker (25 or later for GPUs) or podman, start its"
            " socket, and let this user use it"
        )
        return Finding("engine", Level.warning, engine.trouble, do)
    return Finding("engine", Level.ok, f"{engine.name} {engine.version}")


def _cdi(engine: Engine | None, gpus: Gpus | None) -> Finding:
    if engine is None or engine.trouble or gpus is None or not gpus.shown:
        return Finding("cdi", Level.skipped, "there is no engine with a GPU to give to containers")
    if not engine.cdi_takes:
        found = f"{engine.name} {engine.version} takes no CDI names: containers get no GPU"
        return Finding("cdi", Level.failed, found, "update to docker 25, or to podman 4, or later")
    if not engine.cdi_files:
        do = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
        return Finding("cdi", Level.failed, "no file in /etc/cdi or /var/run/cdi names NVIDIA's GPUs", do)
    return Finding("cdi", Level.ok, ", ".join(engine.cdi_files))


def _cgroups(own: OwnCgroup) -> Finding:
    do = "run the agent as the shipped systemd unit, which has Delegate=yes, or as root"
    if own.trouble:
        return Finding("cgroups", Level.warning, f"workers have no limits of memory: {own.trouble}", do)
    lacking = sorted(CONTROLLERS - own.controllers)
    if lacking:
        return Finding("cgroups", Level.warning, f"{own.path} lacks the controllers {', '.join(lacking)}", do)
    return Finding("cgroups", Level.ok, own.path)


def _disk(disk: Disk) -> Finding:
    found = f"{_size(disk.free)} of {_size(disk.total)} are free for {disk.folder}"
    do = "make room: `stoker weights list` shows what may be removed, the engine has images; or a larger disk"
    if disk.free < disk.needed:
        return Finding("disk", Level.failed, f"{found}, {_size(disk.needed)} are needed", do)
    if disk.free < FREE_SHARE * disk.total:
        return Finding("disk", Level.warning, found, do)
    return Finding("disk", Level.ok, found)


def _clock(services: tuple[Service, ...]) -> Finding:
    known = [(one.ahead_s, one.address) for one in services if one.ahead_s is not None]
    if not known:
        return Finding("clock", Level.skipped, "no control answered whose clock could be compared")
    ahead_s, address = max(known, key=lambda one: abs(one[0]))
    off_s = abs(ahead_s)
    if off_s < AHEAD_WARNS_S:
        return Finding("clock", Level.ok, f"as at {address}")
    direction = "behind" if ahead_s > 0 else "ahead of"
    found = f"this host's clock is {off_s:.0f} s {direction} that of {address}"
    do = "let both hosts take their time from NTP: timedatectl set-ntp true"
    return Finding("clock", Level.failed if off_s >= AHEAD_FAILS_S else Level.warning, found, do)


def _configuration(facts: Facts) -> Iterator[Finding]:
    if (read := facts.configuration) is None:
        return
    if read.trouble:
        do = "deploy/stoker.example.toml shows every field"
        yield Finding("configuration", Level.failed, read.trouble, do)
    else:
        yield Finding("configuration", Level.ok, read.name)


def _certificates(facts: Facts) -> Iterator[Finding]:
    if not facts.certificates:
        yield Finding("certificates", Level.skipped, "no TLS file is configured or given")
    for file in facts.certificates:
        yield _certificate(file)


def _certificate(file: Certificate) -> Finding:
    renew = "renew it, and send SIGHUP to the process that has it"
    if file.soon_s is not None:
        renew = "its agent renews it in time: look at the log of the agent, and of control"
    if file.trouble:
        return Finding("certificates", Level.failed, file.trouble, "give a file as the sentence says")
    named = f"the {file.what} {file.path}"
    if file.begins_in_s is None or file.ends_in_s is None:
        return Finding("certificates", Level.ok, named)
    if file.ends_in_s <= 0:
        return Finding("certificates", Level.failed, f"{named} ended on {file.ends}", renew)
    if file.begins_in_s > 0:
        found = f"{named} is valid from {file.begins} only"
        return Finding("certificates", Level.failed, found, "set this host's clock, or wait")
    if file.ends_in_s <= (SOON_S if file.soon_s is None else file.soon_s):
        return Finding("certificates", Level.warning, f"{named} ends on {file.ends}", renew)
    return Finding("certificates", Level.ok, f"{named} is valid until {file.ends}")


def _objects(facts: Facts) -> Finding:
    if facts.objects is None:
        found = "none is configured here; control's own answer is among its checks"
        return Finding("object store", Level.skipped, found)
    if facts.objects.trouble:
        do = "correct [s3] of stoker.toml, or the store: its address, its bucket, what the key may do there"
        return Finding("object store", Level.failed, facts.objects.trouble, do)
    return Finding("object store", Level.ok, f"{facts.objects.name} takes, gives back and deletes an object")


STANDS_BY = "refuses connections, as a standby that waits does; another address of control answers"


def _control(facts: Facts) -> Iterator[Finding]:
    serves = any(not one.trouble for one in facts.services)
    takes = any(not one.trouble for one in facts.doors)
    for service in facts.services:
        if service.refused and serves:
            yield Finding("control", Level.ok, f"{service.address} {STANDS_BY}")
        else:
            yield from _service(service, facts.version)
    for door in facts.doors:
        if door.refused and takes:
            yield Finding("control", Level.ok, f"{door.name} {STANDS_BY}")
        elif door.trouble:
            do = "compare --control and --tls-ca with control's --grpc-host, --grpc-port and certificate"
            yield Finding("control", Level.failed, f"{door.name}: {door.trouble}", do)
        else:
            yield Finding("control", Level.ok, f"agents reach {door.name}")


def _service(service: Service, version: str) -> Iterator[Finding]:
    if service.trouble:
        do = "start control, or name its address with --url; a standby that waits refuses connections"
        yield Finding("control", Level.failed, f"{service.address} does not answer: {service.trouble}", do)
        return
    yield _versions(service, version)
    for name, said in service.checks.items():
        if said != "ok":
            do = "its log has the cause, on the line `not ready`"
            yield Finding("control", Level.failed, f"{service.address}, {name}: {said}", do)
    for warning in service.warnings:
        yield Finding("control", Level.warning, f"{service.address}: {warning}")


def _versions(service: Service, ours: str) -> Finding:
    if not service.version:
        found = f"{service.address} answers; its version is for keys that may read in management"
        return Finding("control", Level.ok, found)
    if service.version == ours:
        return Finding("control", Level.ok, f"{service.address} answers, version {ours}")
    found = f"{service.address} has version {service.version}, and here is {ours}"
    return Finding("control", Level.warning, found, "they work together; upgrade control first, then agents")


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number >> 20} MiB"


def _s(number: int) -> str:
    return "" if number == 1 else "s"
