"""The choice of a network's attention: the quickest that runs on this device, at the shape that jobs have.

    STOKER_ATTENTION              what is used
    (empty)                       on a GPU the quickest, measured at the start; on a CPU torch's own
    native                        torch's own, which is diffusers' default
    cudnn, xformers, … (NAMES)    this one, or an error if it does not run

    measured: one step of the largest example ──> its largest attention ──> each name once at that shape,
              compared with torch's own ──> those that are right are timed ──> the quickest

Whether one runs is found out by calling it: xformers, for example, can be imported without a GPU and reports
that it is available, but raises when it is called.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from stoker.models.speed_ups.speed_up import Loaded, NotHere

log = logging.getLogger(__name__)

ENVIRONMENT: Final = "STOKER_ATTENTION"
NATIVE, XFORMERS, SAGE = "native", "xformers", "sage"

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        NATIVE: "native",
        "cudnn": "_native_cudnn",
        "torch-flash": "_native_flash",
        "torch-efficient": "_native_efficient",
        "flash": "flash",
        "flash-3": "_flash_3",
        SAGE: "sage",
        XFORMERS: "xformers",
    }
)
"""Our names, and diffusers' for the same. Those that it would download from a hub are left out."""

FULL: Final = tuple(name for name in NAMES if name != SAGE)
"""Those that compute in the network's own format. sage multiplies in 8 bits."""

TOKENS: Final = 16
GAIN: Final = 0.97
"""Another attention is used if it takes at most this share of the time of torch's own; below it, noise of the
measurement would decide."""
TOLERANCE: Final = 0.02
TOLERANCE_8_BIT: Final = 0.2
"""The largest difference to torch's own, divided by its largest value."""
RUNS: Final = 5


class AttentionUnavailable(RuntimeError):
    """The requested implementation does not run here; the message says why, and what can be used instead."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a call of attention: (batch, tokens, heads, width) of the query, the tokens of the keys,
    and the shape of the mask if there is one."""

    query: tuple[int, ...]
    keys: int
    mask: tuple[int, ...] | None = None


Measure: TypeAlias = Callable[[str, Shape], float]
"""The seconds of a call of this name at this shape. Raises whatever goes wrong."""


def chosen(value: str) -> str:
    """Returns the implementation that a value of STOKER_ATTENTION names; empty if it is to be measured.
    Raises ValueError."""
    name = value.strip().lower()
    if name and name not in NAMES:
        raise ValueError(f"{ENVIRONMENT} is {name!r}; it must be empty or one of {', '.join(NAMES)}")
    return name


def choose(network: Any, device: str, *, head_width: int | None = None) -> None:
    """Sets the requested attention of a diffusers network, if one is requested. `head_width`: the channels of
    a head, unless the network's configuration has them. Raises AttentionUnavailable, and ValueError for an
    unknown name."""
    name = chosen(os.environ.get(ENVIRONMENT, ""))
    if name in ("", NATIVE):
        return
    shape = Shape((1, TOKENS, 1, head_width or network.config.attention_head_dim), TOKENS)
    try:
        use(network, name)
        _attended(network, device, name, shape)
    except Exception as error:
        install = "`pip install 'stoker[gpu]'` installs it for a GPU; " if name == XFORMERS else ""
        raise AttentionUnavailable(
            f"{ENVIRONMENT} is {name}, which does not run on {device}: {_first_line(error)}. {install}"
            f"{ENVIRONMENT}={NATIVE} needs nothing"
        ) from error


def use(network: Any, name: str) -> None:
    """Raises ValueError, RuntimeError where diffusers cannot use it for this network."""
    if _dispatches(network):
        network.set_attention_backend(NAMES[name])
    elif name == XFORMERS:
        network.enable_xformers_memory_efficient_attention()
    elif name != NATIVE:
        raise ValueError(f"diffusers does not let {type(network).__name__} use it")


def no_xformers() -> str:
    """Returns why xformers is not among the attentions that are measured. Empty if it is, or if
    STOKER_ATTENTION names one, so that none is measured."""
    if os.environ.get(ENVIRONMENT) or find_spec(XFORMERS) is not None:
        return ""
    return "it is not installed; it is in the extra gpu"


def measured_attention(loaded: Loaded) -> str:
    """Uses the quickest attention that computes in the network's own format."""
    return _measured(loaded, FULL)


def attention_8_bit(loaded: Loaded) -> str:
    """Uses the quickest attention, also one that multiplies in 8 bits."""
    return _measured(loaded, tuple(NAMES))


def _measured(loaded: Loaded, names: Sequence[str]) -> str:
    if requested := chosen(os.environ.get(ENVIRONMENT, "")):
        return f"{requested}, as {ENVIRONMENT} says"
    if not loaded.examples:
        raise NotHere("there is no example to measure it with")
    shape = largest(loaded.network, next(iter(loaded.examples.values())))
    best, times = race(names, shape, lambda name, at: _seconds(loaded, name, at))
    use(loaded.network, best)
    log.info("attention at %s: %s; %s is used", shape, times, best)
    return best


def race(names: Sequence[str], shape: Shape, measure: Measure) -> tuple[str, dict[str, str]]:
    """Returns the name to use, and for each name the milliseconds or why it does not run. torch's own is
    always there."""
    seconds, texts = dict[str, float](), dict[str, str]()
    for name in names:
        try:
            seconds[name] = measure(name, shape)
            texts[name] = f"{seconds[name] * 1000:.3f} ms"
        except Exception as error:  # each library raises errors of its own
            texts[name] = _first_line(error)
    return quickest(seconds), texts


def quickest(seconds: Mapping[str, float]) -> str:
    """Returns torch's own attention, unless another is quicker by more than noise."""
    best = min(seconds, key=lambda name: seconds[name], default=NATIVE)
    if NATIVE in seconds and seconds[best] > GAIN * seconds[NATIVE]:
        return NATIVE
    return best


def largest(network: Any, run: Callable[[], object]) -> Shape:
    """Returns the attention with the most products that the network computes in `run`. Raises NotHere if the
    network calls none."""
    import torch
    from torch.overrides import TorchFunctionMode

    found: list[Shape] = []
    inside = 0

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            named = dict(kwargs or {})
            if inside and function is torch.nn.functional.scaled_dot_product_attention:
                found.append(_shape(*args, **named))
            return function(*args, **named)

    def entered(*_: Any) -> None:
        nonlocal inside
        inside += 1

    def left(*_: Any) -> None:
        nonlocal inside
        inside -= 1

    hooks = (
        network.register_forward_pre_hook(entered),
        network.register_forward_hook(left, always_call=True),
    )
    try:
        with Watch():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise NotHere("the network does not call torch's attention")
    return max(found, key=lambda one: one.query[0] * one.query[1] * one.query[2] * one.keys)


def _shape(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Shape:
    """Returns the shape of an attention; torch's order is (batch, heads, tokens, width)."""
    batch, heads, tokens, width = query.shape
    mask = None if attn_mask is None else tuple(attn_mask.shape)
    return Shape((batch, tokens, heads, width), key.shape[2], mask)


def _seconds(loaded: Loaded, name: str, shape: Shape) -> float:
    """Returns the median seconds of some calls. Raises ValueError if the output is not torch's own."""
    use(loaded.network, name)
    try:
        tolerance = TOLERANCE_8_BIT if name == SAGE else TOLERANCE
        native = _attended(loaded.network, loaded.device, NATIVE, shape)
        wrong = (_attended(loaded.network, loaded.device, name, shape) - native).abs().max()
        if not float(wrong) <= tolerance * float(native.abs().max()):
            raise ValueError(f"its output differs from torch's own by {float(wrong):.3g}")
        times = [_timed(lambda: _attended(loaded.network, loaded.device, name, shape)) for _ in range(RUNS)]
    finally:
        use(loaded.network, NATIVE)
    return statistics.median(times)


def _timed(work: Callable[[], object]) -> float:
    """Seconds with all that runs on the GPU; inputs are made before, by the same generator each time."""
    import torch

    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    wait()
    begun = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begun


def _attended(network: Any, device: str, name: str, shape: Shape) -> Any:
    """Returns the output for random inputs, the same for each name. Raises RuntimeError if the output is not
    finite."""
    import torch
    from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn

    if name == XFORMERS:
        import xformers.ops  # noqa: F401  # its own error says more than that of diffusers
    batch, tokens, heads, width = shape.query
    drawn = torch.Generator(device).manual_seed(0)

    def some(*sides: int) -> Any:
        return torch.randn(sides, generator=drawn, device=device, dtype=network.dtype)

    query = some(batch, tokens, heads, width)
    key, value = some(batch, shape.keys, heads, width), some(batch, shape.keys, heads, width)
    mask = None if shape.mask is None else torch.ones(shape.mask, device=device, dtype=torch.bool)
    found = dispatch_attention_fn(query, key, value, mask, backend=AttentionBackendName(NAMES[name]))
    if not torch.isfinite(found).all():
        raise RuntimeError("its output has values that are not finite")
    return found


def _dispatches(network: Any) -> bool:
    """Returns whether diffusers' choice of attention has an effect on the network."""
    return any(
        hasattr(getattr(module, "processor", None), "_attention_backend") for module in network.modules()
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
