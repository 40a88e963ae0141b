"""What a pod asks of placement, and what its node is told to make of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.control.needs import Needs
from stoker.control.pod import Pod, PodBody, WantedPod
from stoker.control.volume import GB
from stoker.wire.messages import PodPort, PodSpec, RegistryAuth, WorkerLimits


def needs(body: PodBody) -> Needs:
    """Whole devices: GPUs of one name, or a part of a CPU."""
    if body.compute == "CPU":
        return Needs(compute="CPU", data_centers=body.data_centers, vcpus=body.vcpus)
    return Needs(
        compute="GPU",
        gpu_types=body.gpu_types,
        gpu_count=body.gpu_count,
        cuda_versions=body.cuda_versions,
        data_centers=body.data_centers,
    )


def ports(texts: Sequence[str]) -> tuple[PodPort, ...]:
    """ "8888/http" each."""
    parts = (text.partition("/") for text in texts)
    return tuple(PodPort(int(number), protocol) for number, _, protocol in parts)


def spec(
    wanted: WantedPod,
    env: Mapping[str, str],
    hidden: tuple[str, ...] = (),
    login: RegistryAuth | None = None,
) -> PodSpec:
    """`env` with its secrets filled in, which `hidden` holds; `login` stands where the store has none."""
    pod: Pod = wanted.pod
    body = pod.body
    cpus = float(body.vcpus) if body.compute == "CPU" and body.vcpus else None
    return PodSpec(
        pod=pod.id,
        version=pod.version,
        wish=pod.wish,
        image=body.image,
        restarts=pod.restarts,
        registry=wanted.login or login,
        env=env,
        entrypoint=body.entrypoint,
        command=body.command,
        devices=pod.devices,
        ports=ports(body.ports),
        limits=WorkerLimits(cpus=cpus) if cpus else None,
        disk_bytes=None if body.disk_gb is None else body.disk_gb * GB,
        volume=body.network_volume,
        volume_path=body.volume_path,
        volume_bytes=None if body.volume_gb is None else body.volume_gb * GB,
        hidden=hidden,
    )
