"""The device that the handler gets: this machine's first GPU, else the CPU."""

from __future__ import annotations

from collections.abc import MutableMapping

from stoker.cli.errors import CliError
from stoker.worker.sdk import Device


def first_device(environ: MutableMapping[str, str]) -> Device:
    """Returns this machine's first GPU and limits CUDA to that GPU, as a worker's environment does. Without
    nvidia-ml-py the device is the CPU. Raises CliError if the driver is there and fails."""
    from stoker.agent.host.devices.devices import NvmlSampler
    from stoker.agent.host.devices.interfaces import DevicesUnknown

    try:
        first = NvmlSampler().inventory()[0]
    except ModuleNotFoundError:
        return Device()
    except DevicesUnknown as error:
        raise CliError(f"{error}; or run it on the CPU: --cpu") from None
    if first.kind != "cpu":
        environ.setdefault("CUDA_VISIBLE_DEVICES", first.uuid)
    return Device(first.uuid, first.kind, first.name, first.index)
