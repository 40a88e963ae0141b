"""What a protocol worker finds in its environment: where it asks for jobs, as whom, and which device it has.

Pure. The names and forms are those of the protocol (the program replaces `$ID` and `$RUNPOD_POD_ID` itself).
Each URL has a query, since the program appends `&name=value` without looking; that of job-take holds
`/job-take/`, from which it makes those of batches and of stops. No secret of the platform is among them: the
key opens this worker's own calls on loopback, for the life of one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus

from stoker.wire.messages import Device, WorkerSpec

PING_S = 10

_LEVELS = ("RUNPOD_LOG_LEVEL", "RUNPOD_DEBUG_LEVEL")


def protocol_environment(spec: WorkerSpec, device: Device | None, url: str, key: str) -> Mapping[str, str]:
    """What the endpoint declares comes first for everything but the protocol itself."""
    base, gpu = f"{url}/v2/{spec.endpoint}", device is not None and device.kind != "cpu"
    query = f"?gpu={quote_plus(device.name if device is not None else 'none')}"
    return {
        "PYTHONUNBUFFERED": "1",
        **_quiet(spec.env),
        **_checks(gpu=gpu),
        **spec.env,
        "RUNPOD_WEBHOOK_GET_JOB": f"{base}/job-take/$ID{query}",
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{base}/job-done/$RUNPOD_POD_ID/$ID{query}",
        "RUNPOD_WEBHOOK_POST_STREAM": f"{base}/job-stream/$RUNPOD_POD_ID/$ID{query}",
        "RUNPOD_WEBHOOK_PING": f"{base}/ping/$RUNPOD_POD_ID{query}",
        "RUNPOD_PING_INTERVAL": str(PING_S * 1000),
        "RUNPOD_AI_API_KEY": key,
        "RUNPOD_POD_ID": spec.worker,
        "RUNPOD_POD_HOSTNAME": spec.worker,
        "RUNPOD_ENDPOINT_ID": spec.endpoint,
        **_place(spec, device if gpu else None),
    }


def _place(spec: WorkerSpec, gpu: Device | None) -> dict[str, str]:
    """What handlers of the field look at; the protocol does not need it."""
    told = {"RUNPOD_GPU_COUNT": str(len(spec.devices) if gpu is not None else 0)}
    if gpu is not None:
        told["RUNPOD_GPU_TYPE_ID"] = gpu.name
    if spec.volume:
        told["RUNPOD_VOLUME_ID"] = spec.volume
    return told


def _quiet(declared: Mapping[str, str]) -> dict[str, str]:
    """Its default is DEBUG, whose lines about its own loop push a handler's out of those that are kept."""
    return {} if any(name in declared for name in _LEVELS) else {"RUNPOD_LOG_LEVEL": "INFO"}


def _checks(*, gpu: bool) -> dict[str, str]:
    """The program's own checks: of the system they ask 8.8.8.8, which an isolated host does not reach; of the
    GPU they ask nvidia-smi, which shows those of the host to a worker that has none."""
    system = {"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true"}
    return system if gpu else {**system, "RUNPOD_SKIP_GPU_CHECK": "true"}
