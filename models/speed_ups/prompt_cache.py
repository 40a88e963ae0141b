"""A cache of encoded prompts: a prompt that was encoded before is not encoded again.

The output does not change by a bit. A prompt is known by its digest only, so its text is not kept; the
least recently used encodings go first once all take more than `LIMIT_BYTES` bytes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from stoker.models.speed_ups.speed_up import Loaded, NotHere

LIMIT_BYTES: Final = 256 * 2**20
"""Bytes: some 60 prompts of FLUX.1."""


class PromptCache:
    """A cache of encoded prompts. Calls `encode`, a pipeline's `encode_prompt`, or returns what that returned
    for equal arguments."""

    def __init__(self, encode: Callable[..., Any], limit_bytes: int = LIMIT_BYTES) -> None:
        self._encode, self._limit_bytes = encode, limit_bytes
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self.hits = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if any(True for _ in _tensors((arguments, named))):
            return self._encode(*arguments, **named)  # already encoded, or arguments without a digest
        key = hashlib.sha256(repr((arguments, sorted(named.items()))).encode()).hexdigest()
        if key in self._kept:
            self.hits += 1
            self._kept.move_to_end(key)
            return self._kept[key][0]
        found = self._encode(*arguments, **named)
        self._kept[key] = found, sum(one.numel() * one.element_size() for one in _tensors(found))
        while len(self._kept) > 1 and self.size_bytes > self._limit_bytes:
            self._kept.popitem(last=False)
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of all encodings."""
        return sum(size for _, size in self._kept.values())

    def forget(self) -> None:
        """Forgets all encodings; to be called when the encoders' weights change."""
        self._kept.clear()


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def prompt_cache(loaded: Loaded) -> str:
    """Keeps encoded prompts, so that a prompt that comes again is not encoded again."""
    if not hasattr(loaded.pipe, "encode_prompt"):
        raise NotHere("the pipeline has no function that encodes a prompt")
    loaded.pipe.encode_prompt = PromptCache(loaded.pipe.encode_prompt)
    return f"up to {LIMIT_BYTES >> 20} MiB"
