"""Generated weights that are not trained: the same numbers and the same bytes on every machine.

A number is an 8-bit integer, read from a hash of its name, times a power of two. It is exact in float32 and
in bfloat16, and depends on no random generator, library or CPU.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]


def draw(name: str, *shape: int, scale: float) -> Array:
    """Numbers in [-scale, scale), each an 8-bit integer times a power of two."""
    if math.frexp(scale)[0] != 0.5:
        raise ValueError(f"{name}: {scale} is not a power of two, so its products would be rounded")
    data = hashlib.shake_256(name.encode()).digest(math.prod(shape))
    return np.frombuffer(data, np.int8).astype(np.float32).reshape(shape) * np.float32(scale / 128)


def full(value: float, *shape: int) -> Array:
    return np.full(shape, value, np.float32)


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=True) + "\n").encode()


def safetensors_bytes(weights: Mapping[str, Array]) -> bytes:
    """Encodes weights as safetensors: the header's length, a header of JSON padded to eight bytes, the
    numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name in sorted(weights):
        array = weights[name].astype("<f4")
        start = len(data)
        data += array.tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes each file by its path below `folder`, which is created if it is missing."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
