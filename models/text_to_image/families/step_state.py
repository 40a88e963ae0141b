"""The state of sampling after a step, as bytes, and sampling that goes on from there to the same picture.

    saved      the latents, what the scheduler keeps from step to step, the state of the noise's generator
    gone on    the library's own loop runs from its beginning; until the step that was saved, the network
               answers each step as it did the first, unlooked at, and the scheduler passes the latents on

So no pipeline's loop is written anew, and whatever it does before and after the steps it does again. That
costs one step and the reading of the prompt.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

KEEPS_MORE: Final = frozenset({"first-block-cache", "mag-cache", "taylor-seer", "apg"})
"""Speed-ups that keep something of their own from step to step: with one of them there is no state, as the
picture would be another one."""


def state_after(done: int, latents: torch.Tensor, scheduler: Any, generator: torch.Generator) -> bytes:
    """Returns the state after so many steps; to be called before the next one."""
    import torch

    kept = {name: _on_cpu(value) for name, value in vars(scheduler).items() if _is_kept(value)}
    state = {"done": done, "latents": _on_cpu(latents), "scheduler": kept, "noise": generator.get_state()}
    written = io.BytesIO()
    torch.save(state, written)
    return written.getvalue()


def _is_kept(value: object) -> bool:
    import torch

    if isinstance(value, list):
        return all(map(_is_kept, value))
    return value is None or isinstance(value, bool | int | float | str | torch.Tensor)


def _on_cpu(value: Any) -> Any:
    """Returns a copy of a tensor. Where the tensor is a part of a larger one, only the part is copied."""
    import torch

    if isinstance(value, list):
        return [_on_cpu(one) for one in value]
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return float(value) if isinstance(value, float) else value


class Begun:
    """Sampling that goes on from a state. `done`: the steps before it."""

    def __init__(self, state: bytes, generator: torch.Generator) -> None:
        import torch

        found = torch.load(io.BytesIO(state), weights_only=True)
        self.done: int = found["done"]
        self._latents: torch.Tensor = found["latents"]
        self._scheduler: dict[str, Any] = found["scheduler"]
        self._noise: torch.Tensor = found["noise"]
        self._generator = generator
        self._answers: list[Any] = []
        self._calls, self._passed = 0, 0

    def passes(self, scheduler: Any, latents: torch.Tensor) -> torch.Tensor:
        """Returns the latents after a step that was done before: at the last of them, those that were
        saved."""
        self._passed, self._calls = self._passed + 1, 0
        if self._passed < self.done:
            return latents
        self._answers.clear()
        for name, value in self._scheduler.items():
            setattr(scheduler, name, _on_device(value, getattr(scheduler, name, None), latents))
        self._generator.set_state(self._noise)
        return self._latents.to(latents.device)

    @contextlib.contextmanager
    def unasked(self, network: Any) -> Iterator[None]:
        """Has the network compute nothing after its first step, until the step that was saved."""
        forward, own = network.forward, "forward" in vars(network)

        @functools.wraps(forward)
        def answer(*arguments: Any, **named: Any) -> Any:
            if self._passed >= self.done:
                return forward(*arguments, **named)
            self._calls += 1
            if self._calls > len(self._answers):
                self._answers.append(forward(*arguments, **named))
            return self._answers[self._calls - 1]

        network.forward = answer
        try:
            yield
        finally:
            if own:
                network.forward = forward
            else:
                del network.forward


def _on_device(value: Any, there: Any, latents: torch.Tensor) -> Any:
    """Returns the value where the scheduler has its own: a tensor that it does not have yet is computed from
    the latents, and is where they are."""
    import torch

    if isinstance(value, list):
        return [_on_device(one, None, latents) for one in value]
    if isinstance(value, torch.Tensor):
        return value.to(there.device if isinstance(there, torch.Tensor) else latents.device)
    return value
