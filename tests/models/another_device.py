"""A device beside the CPU, on a machine that has none: what mixes the two up fails here as it does on a GPU.

    with another_device() as name:           "elsewhere:0"
        module.to(name)(tensor.to(name))     computed on the CPU, and reported as on `name`
        tensor.to(name) + other              raises: two devices

Only the device of a tensor is distinguished. The CPU and its kernels compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

TYPE = "elsewhere"
HERE = torch.device("cpu")

aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default}
INDICES = {aten.index.Tensor, aten.index_put_.default}
"""Of these, a GPU takes tensors that lie on the CPU."""


@contextmanager
def another_device() -> Iterator[str]:
    """The name of the device. torch knows it for the rest of the process, so a process of its own is best.

    Inference mode is off: tensors of this kind cannot be made in it.
    """
    _register()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "inference_mode", torch.no_grad)
        with _Made(), _Computed():
            yield f"{TYPE}:0"


@cache
def _register() -> None:
    _setup_privateuseone_for_python_backend(TYPE)


class Elsewhere(torch.Tensor):
    """Lies on the device; `here` is the tensor of the CPU that it is computed with."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> Elsewhere:
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=torch.device(TYPE, 0),
        )
        made.here = here
        return made

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Computed(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Made(TorchFunctionMode):
    """`torch.tensor` copies within itself, out of the other mode's sight."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = dict(kwargs or {})
        if func is torch.tensor and arguments.get("device") is not None:
            return func(*args, **arguments | {"device": None}).to(arguments["device"])
        return func(*args, **arguments)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is aten._has_compatible_shallow_copy_type.default:
        return False
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    lying = {id(tensor.here): tensor for tensor in tensors if isinstance(tensor, Elsewhere)}
    requested = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
    _check(func, tensors, requested, kwargs.get("generator"))
    args, kwargs = tree_map_only(torch.device, _of_cpu, (args, kwargs))
    args, kwargs = tree_map_only(Elsewhere, lambda tensor: tensor.here, (args, kwargs))
    made = func(*args, **kwargs)
    if requested is not None:
        goes = requested.type == TYPE
    else:
        goes = isinstance(tensors[0], Elsewhere) if func is aten.copy_.default else bool(lying)
    if not goes:
        return made
    return tree_map_only(
        torch.Tensor, lambda out: lying[id(out)] if id(out) in lying else Elsewhere(out), made
    )


def _check(func: Any, tensors: list[torch.Tensor], requested: torch.device | None, generator: Any) -> None:
    """As CUDA does: all on one device, but for numbers, moves and indices."""
    if generator is not None and requested is not None and requested.type != generator.device.type:
        raise RuntimeError(f"{func} on {requested} is given a generator of {generator.device}")
    if func in MOVES or func in INDICES:
        return
    devices = {tensor.device.type for tensor in tensors if tensor.dim() > 0}
    if TYPE in devices and len(devices) > 1:
        raise RuntimeError(f"{func} is given tensors of {' and '.join(sorted(devices))}")


def _of_cpu(device: torch.device) -> torch.device:
    return HERE if device.type == TYPE else device
