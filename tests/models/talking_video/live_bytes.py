"""How many bytes of tensors are alive at a time, on any device, the meta device too."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Of what is made within it, less the weights of these modules; `most` is the peak."""

    def __init__(self, *modules: torch.nn.Module) -> None:
        super().__init__()
        self.now = self.most = 0
        self._weights = {tensor.untyped_storage()._cdata for one in modules for tensor in one.parameters()}
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        self.most = max(self.most, self.now)
        return made

    def _count(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._weights or key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.now += self._sizes[key]
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
