"""The tensors of a safetensors file on a device, and the pinned memory through which its bytes go there.

    file on disk ─ read ─> pinned buffer ─ copy, not waited for ─> each tensor of the block
                              ^ two for each thread: one is filled while the other is copied

On the CPU, which only tests use, the buffers are plain memory.
"""

from __future__ import annotations

import bisect
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor's bytes in the file; `data` are these bytes on the device."""

    first: int
    last: int
    data: torch.Tensor


class File:
    """A file of safetensors: its header is read, its tensors are made on the device, and filled by
    `Lane.copy`. Each tensor has memory of its own, since kernels expect it to begin at a round address.
    Raises ValueError if the file is damaged."""

    def __init__(self, path: Path, device: str) -> None:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
        self.size = path.stat().st_size
        self.tensors: dict[str, torch.Tensor] = {}
        self.places: list[_Place] = []
        for name, about in header.items():
            if name != "__metadata__":
                self._add(path, name, about, 8 + length, device)
        self.places.sort(key=lambda place: place.first)

    def _add(self, path: Path, name: str, about: dict[str, Any], begin: int, device: str) -> None:
        dtype, shape = DTYPES.get(about["dtype"]), about["shape"]
        first, last = (begin + offset for offset in about["data_offsets"])
        if dtype is None or last > self.size or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{path.name}: {name} is damaged: {about}")
        data = torch.empty(last - first, dtype=torch.uint8, device=device)
        self.tensors[name] = data.view(dtype).reshape(shape)
        if data.numel():
            self.places.append(_Place(first, last, data))


class Lane:
    """The buffers of one thread."""

    def __init__(self, device: str) -> None:
        self._on_gpu = torch.device(device).type == "cuda"
        self._buffers: list[torch.Tensor] = []
        self._copied: list[Any] = [None, None]
        self._at = self._filled = 0

    def buffer(self, size: int) -> memoryview:
        """Returns a buffer to fill, once what was in it before is copied."""
        if not self._buffers:
            self._buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=self._on_gpu) for _ in range(2)]
        self._at, self._filled = 1 - self._at, size
        if self._copied[self._at] is not None:
            self._copied[self._at].synchronize()
        return memoryview(self._buffers[self._at].numpy().data)[:size]

    def copy(self, file: File, begin: int) -> None:
        """Copies the last buffer, whose first byte is `begin` of the file, to the tensors of the file."""
        buffer, end = self._buffers[self._at], begin + self._filled
        for place in file.places[bisect.bisect_right(file.places, begin, key=lambda place: place.last) :]:
            if place.first >= end:
                break
            first, last = max(begin, place.first), min(end, place.last)
            place.data[first - place.first : last - place.first].copy_(
                buffer[first - begin : last - begin], non_blocking=True
            )
        if self._on_gpu:
            self._copied[self._at] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied[self._at].record()

    def settle(self) -> None:
        """Waits until all is copied."""
        for copied in filter(None, self._copied):
            copied.synchronize()
