"""Probes of `stoker doctor`: each asks one part of this host or of the service, blocking, and returns what it
found, trouble included. They change nothing but for an object in the object store, which is deleted again."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from stoker.cli.doctor.facts import Certificate, Disk, Engine, Gpus, OwnCgroup, Service, Torch, Tried

if TYPE_CHECKING:
    from stoker.outbound.s3.buckets import ObjectStoreConfig
    from stoker.wire.tls_files import PemFile

ANSWER_S = 10.0
NVIDIA, DISPLAYS = "0x10de", "0x03"
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_BUILD = re.compile(r"^stoker_build_info\{.*version=\"([^\"]+)\"", re.MULTILINE)


def gpus(bus: Path = Path("/sys/bus/pci/devices")) -> Gpus:
    """Asks the driver, as the agent does at its start."""
    from stoker.agent.host.devices.devices import NvmlSampler
    from stoker.agent.host.devices.interfaces import DevicesUnknown

    on_bus = sum(_is_gpu(device) for device in bus.glob("*"))
    try:
        sampler = NvmlSampler()
        shown = [device for device in sampler.inventory() if device.kind != "cpu"]
        cuda = sampler.facts(host_pids=True).get("cuda")
    except DevicesUnknown as error:
        return Gpus(on_bus, trouble=str(error))
    driver = next((device.driver for device in shown if device.driver), "")
    return Gpus(on_bus, tuple(device.name for device in shown), driver, _version(cuda))


def _is_gpu(device: Path) -> bool:
    try:
        kind = (device / "class").read_text()
        return (device / "vendor").read_text().strip() == NVIDIA and kind.startswith(DISPLAYS)
    except OSError:
        return False


def torch() -> Torch | None:
    """Reads the versions from torch's own file: to import it takes seconds."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*= '([^']+)'", text, re.MULTILINE)
    return Torch(version[1] if version else "of an unknown version", _version(cuda[1] if cuda else None))


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def engine(environment: Mapping[str, str], uid: int) -> Engine:
    from stoker.agent.workers.containers.connect import addresses, connect

    with closing(connect(addresses(environment, uid))) as found:
        facts = found.facts
    if not facts.name:
        return Engine(trouble=facts.why)
    named = (path for folder in CDI_FOLDERS if folder.is_dir() for path in sorted(folder.iterdir()))
    files = tuple(str(path) for path in named if "nvidia" in path.name)
    return Engine(facts.name, facts.version, facts.cdi, files)


def cgroup() -> OwnCgroup:
    from stoker.agent.host.process_tree.cgroups import NoCgroups, find_own

    try:
        own = find_own()
        controllers = (own / "cgroup.controllers").read_text().split()
    except (NoCgroups, OSError) as error:
        return OwnCgroup(trouble=str(error))
    return OwnCgroup(str(own), frozenset(controllers))


def disk(folder: Path, needed: int) -> Disk:
    """Looks at the disk that has the folder, or would have it."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(there)
    return Disk(str(folder), usage.free, usage.total, needed)


def certificate(path: Path, key: Path | None) -> tuple[Certificate, ...]:
    """Reads a certificate, and its key where one is given."""
    from stoker.wire.tls_files import TlsFilesUnusable, read_certificate, read_key

    try:
        read = read_certificate(path)
    except TlsFilesUnusable as error:
        return (Certificate("TLS certificate", str(path), trouble=str(error)),)
    if key is None:
        return (_dates(read),)
    try:
        read_key(key, read)
    except TlsFilesUnusable as error:
        return (_dates(read), Certificate("TLS key", str(key), trouble=str(error)))
    return (_dates(read), Certificate("TLS key", str(key)))


def certificates_made_here(folder: Path) -> tuple[Certificate, ...]:
    """Reads what `stoker ca` and an agent keep in this data folder, if anything; none of what may not be
    read."""
    found: tuple[Certificate, ...] = ()
    with suppress(OSError):
        for path in (folder / "node_certificate", folder / "agent" / "node_certificate"):
            found += _node_certificate(path) if path.exists() else ()
        ca = folder / "ca"
        found += authority(ca / "ca.pem") if (ca / "ca.pem").exists() else ()
        if (ca / "control.pem").exists():
            found += certificate(ca / "control.pem", ca / "control.key")
    return found


def _node_certificate(path: Path) -> tuple[Certificate, ...]:
    """Reads the certificate of a node. Agents renew after a quarter of its life, so half is late."""
    (read,) = certificate(path, None)
    if read.begins_in_s is None or read.ends_in_s is None:
        return (read,)
    return (replace(read, what="certificate of the node", soon_s=(read.ends_in_s - read.begins_in_s) / 2),)


def authority(path: Path) -> tuple[Certificate, ...]:
    from stoker.wire.tls_files import TlsFilesUnusable, read_authority

    try:
        return (_dates(read_authority(path)),)
    except TlsFilesUnusable as error:
        return (Certificate("TLS authority", str(path), trouble=str(error)),)


def _dates(file: PemFile) -> Certificate:
    from stoker.wire.tls_files import valid_until

    now = datetime.now(UTC)
    begins, ends = file.certificates[0].not_valid_before_utc, valid_until(file)
    in_s = ((begins - now).total_seconds(), (ends - now).total_seconds())
    return Certificate(file.what, str(file.path), *in_s, _moment(begins), _moment(ends))


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d at %H:%M} UTC"


def objects(config: ObjectStoreConfig) -> Tried:
    """Writes, reads and deletes an object, as control does at its start."""
    from stoker.outbound.errors import OutboundError
    from stoker.outbound.s3.objects import ObjectStore

    try:
        with closing(ObjectStore(config)) as store:
            store.check()
    except OutboundError as error:
        return Tried(config.endpoint_url, str(error))
    return Tried(config.endpoint_url)


def service(address: str, key: str | None, ca: str | None) -> Service:
    """Asks `/ready`, which needs no key, and `/metrics` for the version, which does."""
    try:
        trusted: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca) if ca else True
        with httpx2.Client(base_url=address, verify=trusted, trust_env=False, timeout=ANSWER_S) as http:
            asked = time.time()
            answer = http.get("/ready")
            ahead_s = _ahead_s(answer.headers.get("date"), asked, time.time())
            body = answer.json()
            version = _version_of_control(http, key) if key else ""
            checks = {str(name): str(said) for name, said in body["checks"].items()}
            warnings = tuple(body.get("warnings", ()))
            return Service(address, "", checks, warnings, version, ahead_s)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return Service(address, str(error) or type(error).__name__, refused=_is_refusal(error))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Service(address, "what answers there has no /ready of a control")


def _is_refusal(error: BaseException | None) -> bool:
    """Returns whether nothing listens at the address: the operating system's error may be the cause's."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


def _version_of_control(http: httpx2.Client, key: str) -> str:
    text = http.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text
    found = _BUILD.search(text)
    return found[1] if found else ""


def _ahead_s(date: str | None, asked: float, answered: float) -> float | None:
    """Returns how far the other clock is ahead: the least that fits, as the header has whole seconds, and is
    of some moment between the question and the answer."""
    if date is None:
        return None
    told = parsedate_to_datetime(date).timestamp()
    early, late = told - answered, told + 1 - asked
    return 0.0 if early <= 0 <= late else early if early > 0 else late


def door(
    address: str, ca: Path | None, connect: Callable[..., socket.socket] = socket.create_connection
) -> Tried:
    """Connects as an agent does, with TLS where an authority is given."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        with connect((host, int(port)), timeout=ANSWER_S) as plain:
            if ca is not None:
                context = ssl.create_default_context(cafile=ca)
                context.set_alpn_protocols(["h2"])
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return Tried(address, f"its certificate is not accepted: {error.verify_message}")
    except OSError as error:
        return Tried(address, error.strerror or str(error), _is_refusal(error))
    except ValueError:
        return Tried(address, "an address reads HOST:PORT")
    return Tried(address)
