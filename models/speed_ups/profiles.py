"""The named speed-ups, and the profiles that are composed of them.

    exact         nothing that is seen changes; the default
    fast          also what changes the picture a little, for the time it saves
    low-memory    as much on the GPU as fits; see `placement`

STOKER_PROFILE chooses one: `fast` for all pipelines, or `flux-1-dev=fast,infinitetalk=low-memory`. Single
speed-ups may follow: `exact+taylor-seer`. What was applied, and how, is in the log and in the file of a
result; what was left out, and why, in the log and in what the worker says that it serves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from textwrap import shorten
from types import MappingProxyType
from typing import Final

from stoker.models.interface import PipelineEntry, PipelineNeeds
from stoker.models.speed_ups import (
    attention,
    block_compile,
    float8,
    guidance,
    layers,
    placement,
    prompt_cache,
    several_gpus,
    step_caches,
)
from stoker.models.speed_ups.speed_up import Apply, Changes, Loaded, NotHere, SpeedUp

log = logging.getLogger(__name__)

ENVIRONMENT: Final = "STOKER_PROFILE"

WHY_MAX: Final = 90
"""So many characters of a reason, cut between words, stand in what a worker says that it serves; all of them
are in its log. Each sentence of ours is shorter, an error of a library may be longer; and the reasons of all
speed-ups of a profile fit into the 1,000 characters that a worker may say."""

CONTEXT_PARALLEL: Final = "context-parallel"
"""Only for programs with a process group, which load a pipeline themselves: a worker is one process."""

EXACT, FAST, LOW_MEMORY = "exact", "fast", "low-memory"


def _speed_up(
    name: str,
    apply: Apply,
    changes: Changes,
    *,
    gpu_only: bool = True,
    bound: int = 0,
    alone: bool = False,
) -> tuple[str, SpeedUp]:
    about = " ".join((apply.__doc__ or "").strip().partition("\n\n")[0].split())
    return name, SpeedUp(name, about, changes, apply, gpu_only=gpu_only, bound=bound, alone=alone)


SPEED_UPS: Final[Mapping[str, SpeedUp]] = MappingProxyType(
    dict(
        (
            _speed_up("prompt-cache", prompt_cache.prompt_cache, Changes.NOTHING, gpu_only=False),
            _speed_up("fused-projections", layers.fused_projections, Changes.ROUNDING, bound=2),
            _speed_up("channels-last", layers.channels_last, Changes.ROUNDING, bound=2),
            _speed_up(CONTEXT_PARALLEL, several_gpus.context_parallel, Changes.ROUNDING, bound=2),
            _speed_up("attention", attention.measured_attention, Changes.ROUNDING, bound=2),
            _speed_up("attention-8-bit", attention.attention_8_bit, Changes.PICTURE),
            _speed_up("float8-products", float8.float8_products, Changes.PICTURE),
            _speed_up("float8-storage", float8.float8_storage, Changes.PICTURE, gpu_only=False),
            _speed_up("planned-placement", placement.planned_placement, Changes.PICTURE, gpu_only=False),
            _speed_up("vae-tiling", placement.vae_tiling, Changes.PICTURE, gpu_only=False),
            _speed_up("block-compile", block_compile.block_compile, Changes.ROUNDING, bound=2),
            _speed_up(
                "first-block-cache",
                step_caches.first_block_cache,
                Changes.PICTURE,
                gpu_only=False,
                alone=True,
            ),
            _speed_up("mag-cache", step_caches.mag_cache, Changes.PICTURE, gpu_only=False),
            _speed_up("taylor-seer", step_caches.taylor_seer, Changes.PICTURE, gpu_only=False),
            _speed_up("apg", guidance.apg, Changes.PICTURE, gpu_only=False),
        )
    )
)
"""By name, in the order in which they are applied: code is compiled after the layers are as they stay, and
before the step caches put hooks around the blocks."""

ATTENTION: Final = ("attention", "attention-8-bit")
"""Those that measure xformers, where it is installed."""

AT_LOAD: Final = "planned-placement"
"""Applied before anything is moved to the GPU; the others after it."""

PROFILES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        EXACT: (
            "prompt-cache",
            "fused-projections",
            "channels-last",
            "attention",
            "block-compile",
        ),
        FAST: (
            "prompt-cache",
            "fused-projections",
            "channels-last",
            "attention-8-bit",
            "float8-products",
            "block-compile",
            "first-block-cache",
        ),
        LOW_MEMORY: (AT_LOAD, "prompt-cache", "attention", "vae-tiling"),
    }
)


def parse(value: str) -> dict[str, str]:
    """Returns the profile of each pipeline that a value of STOKER_PROFILE names; that of all others by the
    empty name. Raises ValueError, also for what no worker can apply."""
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in value.split(","))):
        name, equals, profile = part.partition("=")
        if not equals:
            name, profile = "", part
        check(profile, ENVIRONMENT)
        found[name.strip()] = profile.strip()
    return found


def check(profile: str, where: str) -> None:
    """Raises ValueError for a profile that no worker can apply. `where` it stands begins the error."""
    if CONTEXT_PARALLEL in names(profile, where):
        raise ValueError(
            f"{where} names {CONTEXT_PARALLEL}, which needs several processes, and a worker is one:"
            " only a program with a process group of its own can load a pipeline with it"
        )


def names(profile: str, where: str = ENVIRONMENT) -> tuple[str, ...]:
    """Returns the speed-ups of a profile, with those that are added to it, in the order of their application.
    Raises ValueError, which begins with `where` the profile stands."""
    base, *more = (part.strip() for part in profile.split("+"))
    if base not in PROFILES:
        raise ValueError(
            f"{where} names the profile {base!r}; there are {', '.join(PROFILES)}, each of which may be"
            " followed by +NAME of a speed-up"
        )
    if unknown := [name for name in more if name not in SPEED_UPS]:
        raise ValueError(f"{where} names the speed-up {unknown[0]!r}; there are {', '.join(SPEED_UPS)}")
    wanted = {*PROFILES[base], *more}
    return tuple(name for name in SPEED_UPS if name in wanted)


def chosen(entry: PipelineEntry, value: str | None = None) -> str:
    """Returns the profile that a pipeline runs with: what STOKER_PROFILE says of this pipeline, else of all,
    else the pipeline's own. Raises ValueError."""
    found = parse(os.environ.get(ENVIRONMENT, "") if value is None else value)
    return found.get(entry.name) or found.get("") or entry.profile


def gpu_memory_bytes(needs: PipelineNeeds, profile: str) -> int:
    """Returns the bytes that each GPU must have with this profile; 0 if any will do."""
    return (needs.saving_gb if profile.startswith(LOW_MEMORY) else needs.gpu_memory_gb) * 10**9


def makes_alone(applied: Iterable[str]) -> str:
    """Returns the first of these speed-ups with which images are made alone; empty if there is none."""
    return next((name for name in applied if name in SPEED_UPS and SPEED_UPS[name].alone), "")


@dataclass(frozen=True, slots=True)
class Applied:
    """The speed-ups of a profile on this machine: those that were applied, with how, and those that were
    `left_out`, with why."""

    done: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def without(left_out: Mapping[str, str]) -> str:
    """Returns what was left out, and why, as the end of a sentence; empty if nothing was."""
    names = [f"{name} ({shorten(why, WHY_MAX)})" for name, why in left_out.items()]
    return f", without {', '.join(names)}" if names else ""


def apply(wanted: Sequence[str], loaded: Loaded) -> Applied:
    """Applies the speed-ups of these names in turn. On a CPU, those that are made for a GPU do not count as
    left out."""
    done, left_out = dict[str, str](), dict[str, str]()
    for name in wanted:
        one = SPEED_UPS[name]
        if one.gpu_only and not loaded.on_gpu:
            continue
        try:
            done[name] = one.apply(loaded)
            log.info("speed-up %s: %s", name, done[name])
        except NotHere as reason:
            left_out[name] = str(reason)
            log.info("speed-up %s is left out: %s", name, reason)
        if loaded.on_gpu and name in ATTENTION and (why := attention.no_xformers()):
            left_out[attention.XFORMERS] = why
    return Applied(done, left_out)


def lacking(profile: str) -> dict[str, str]:
    """Returns why speed-ups of the profile cannot run on a GPU of this machine, as far as that is known
    without a model: by the speed-up's name, or that of the library that `attention` goes without. Raises
    ValueError."""
    wanted = names(profile)
    found = {attention.XFORMERS if name in ATTENTION else name: _lacks(name) for name in wanted}
    return {name: why for name, why in found.items() if why}


def _lacks(name: str) -> str:
    if name == "block-compile":
        return block_compile.no_compiler()
    if name in ATTENTION:
        return attention.no_xformers()
    if name == "float8-products" and find_spec("torchao") is None:
        return "torchao is not installed; it is in the extra gpu"
    return ""
