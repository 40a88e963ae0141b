"""Builds the environment of a protocol worker: the URLs that it calls, its key, and its device.

Pure. Names and forms are those of the protocol; the program itself replaces `$ID` and `$RUNPOD_POD_ID`. Each
URL has a query, because the program always appends `&name=value`. The URL of job-take contains `/job-take/`,
from which the program derives those of batches and of stops. No secret of the platform is included: the key
is valid for this worker's own calls on loopback, during the life of one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus

from stoker.wire.messages import Device, WorkerSpec

PING_S = 10

_LEVELS = ("RUNPOD_LOG_LEVEL", "RUNPOD_DEBUG_LEVEL")


def protocol_environment(spec: WorkerSpec, device: Device | None, url: str, key: str) -> Mapping[str, str]:
    """Returns the worker's environment. The endpoint's own variables replace all but those of the
    protocol."""
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
        **_resources(spec, device if gpu else None),
    }


def _resources(spec: WorkerSpec, gpu: Device | None) -> dict[str, str]:
    """Returns variables that RunPod handlers read; the protocol does not need them."""
    variables = {"RUNPOD_GPU_COUNT": str(len(spec.devices) if gpu is not None else 0)}
    if gpu is not None:
        variables["RUNPOD_GPU_TYPE_ID"] = gpu.name
    if spec.volume:
        variables["RUNPOD_VOLUME_ID"] = spec.volume
    return variables


def _quiet(declared: Mapping[str, str]) -> dict[str, str]:
    """Sets the level INFO: the program's default, DEBUG, logs so much that the handler's lines are
    displaced."""
    return {} if any(name in declared for name in _LEVELS) else {"RUNPOD_LOG_LEVEL": "INFO"}


def _checks(*, gpu: bool) -> dict[str, str]:
    """Turns off the program's own checks: the system check calls 8.8.8.8, which an isolated host cannot
    reach, and the GPU check calls nvidia-smi, which shows the host's GPUs to a worker that has none."""
    system = {"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true"}
    return system if gpu else {**system, "RUNPOD_SKIP_GPU_CHECK": "true"}
