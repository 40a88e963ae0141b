"""Derives from a pod what it needs of a node, and the PodSpec that its node receives. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.control.rules.needs import Needs
from stoker.control.rules.pods import Pod, PodBody, WantedPod
from stoker.control.rules.volumes import GB
from stoker.wire.messages import PodPort, PodSpec, RegistryAuth, WorkerLimits


def needs(body: PodBody) -> Needs:
    """Returns the pod's needs: whole GPUs of one name, or a part of a CPU."""
    if body.compute == "CPU":
        return Needs(compute="CPU", data_centers=body.data_centers, vcpus=body.vcpus)
    return Needs(
        compute="GPU",
        gpu_types=body.gpu_types,
        gpu_count=body.gpu_count,
        cuda_versions=body.cuda_versions,
        min_cuda=body.min_cuda,
        data_centers=body.data_centers,
    )


def ports(texts: Sequence[str]) -> tuple[PodPort, ...]:
    """Parses ports such as "8888/http"."""
    parts = (text.partition("/") for text in texts)
    return tuple(PodPort(int(number), protocol) for number, _, protocol in parts)


def spec(
    wanted: WantedPod,
    env: Mapping[str, str],
    hidden: tuple[str, ...] = (),
    login: RegistryAuth | None = None,
) -> PodSpec:
    """Returns the PodSpec. `env` has its secrets filled in; `hidden` are their values. `login` is used if the
    store has none."""
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
        env={"RUNPOD_API_KEY": pod.api_key, **env} if pod.api_key else env,  # unless its owner has set one
        entrypoint=body.entrypoint,
        command=body.command,
        devices=pod.devices,
        ports=ports(body.ports),
        limits=WorkerLimits(cpus=cpus) if cpus else None,
        disk_bytes=None if body.disk_gb is None else body.disk_gb * GB,
        volume=body.network_volume,
        volume_path=body.volume_path,
        volume_bytes=None if body.volume_gb is None else body.volume_gb * GB,
        hidden=(*hidden, pod.api_key) if pod.api_key else hidden,
    )
