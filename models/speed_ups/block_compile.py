"""Compilation of a network's blocks, for the sizes that are warmed up; the compiled code is kept on disk.

    warmed up      each example runs once: torch compiles the block once for each size
    other sizes    run as they are, not compiled (`settled`): a job never waits for a compiler
    kept           the code, with its digest, by all that it depends on; a miss costs the compile

Only the blocks are compiled, since a network repeats one block many times. diffusers'
`compile_repeated_blocks` would compile the hooks of the step caches with them, which fails; here each
block's `forward` is compiled before hooks are put around it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from stoker.models import weights
from stoker.models.cold_start import stage
from stoker.models.speed_ups.layers import repeated_blocks
from stoker.models.speed_ups.speed_up import Loaded, NotHere

log = logging.getLogger(__name__)

ENVIRONMENT: Final = "STOKER_COMPILE_CACHE"

COMPILERS: Final = ("cc", "gcc", "clang")

BACKEND: Final = "inductor"
"""torch's compiler. The tests that are not about its speed use one that compiles nothing."""


def block_compile(loaded: Loaded) -> str:
    """Compiles the network's blocks, each size of the examples once."""
    import torch

    if not loaded.examples:
        raise NotHere("there is no example to compile for")
    if BACKEND == "inductor" and (why := no_compiler()):
        raise NotHere(why)
    blocks = _blocks(loaded.network)
    if any(hasattr(module, "_diffusers_hook") for block in blocks for module in block.modules()):
        raise NotHere("its blocks are moved or cast by hooks, which cannot be compiled")
    torch._dynamo.config.recompile_limit = max(64, 8 * len(loaded.examples))
    key = key_of(loaded)
    restored = loaded.cache is not None and restore(loaded.cache, key)
    before = [block.__dict__.get("forward") for block in blocks]
    begun = time.perf_counter()
    try:
        for block in blocks:
            block.forward = torch.compile(block.forward, fullgraph=True, dynamic=False, backend=BACKEND)
        with stage("compile"):
            for example in loaded.examples.values():
                example()
    except Exception as error:
        for block, forward in zip(blocks, before, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward
        cause = getattr(error, "inner_exception", error)
        raise NotHere(f"{type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}") from error
    source = "with kept code" if restored else "anew"
    log.info("%d blocks were compiled %s in %.1f s", len(blocks), source, time.perf_counter() - begun)
    if loaded.cache is not None and not restored:
        keep(loaded.cache, key)
    return f"{len(blocks)} blocks for {', '.join(loaded.examples)}"


def _blocks(network: Any) -> list[Any]:
    kinds = repeated_blocks(network)
    found = [module for module in network.modules() if type(module).__name__ in kinds]
    if not found:
        raise NotHere(f"the repeated blocks of {type(network).__name__} are not known")
    return found


def no_compiler() -> str:
    """Returns why torch cannot compile here: it builds the GPU's launchers with a C compiler, which
    CC names. Empty if it can."""
    named = os.environ.get("CC")
    if any(map(shutil.which, [named] if named else COMPILERS)):
        return ""
    return f"there is no C compiler ({named or ' or '.join(COMPILERS)})"


def cache_folder() -> Path:
    """Returns where compiled code is kept: STOKER_COMPILE_CACHE, by default a folder next to the weights."""
    return Path(os.environ.get(ENVIRONMENT) or weights.weights_folder() / ".compiled")


@contextlib.contextmanager
def settled(*, compiled: bool) -> Iterator[None]:
    """Prevents compilation inside the context: code that was compiled runs where it fits, and the rest runs
    uncompiled."""
    if not compiled:
        yield
        return
    import torch

    with torch.compiler.set_stance("eager_on_recompile"):
        yield


def key_of(loaded: Loaded) -> str:
    """Returns the digest of all that compiled code depends on: the network, its attention, the sizes, the
    device and the libraries."""
    import torch
    from diffusers.models.attention_dispatch import _AttentionBackendRegistry

    network = loaded.network
    on = torch.cuda.get_device_properties(loaded.device) if loaded.on_gpu else None
    about = {
        "network": type(network).__name__,
        "config": {name: str(value) for name, value in sorted(dict(network.config).items())},
        "layers": sorted({type(module).__name__ for module in network.modules()}),
        "fused": any(getattr(module, "fused_projections", False) for module in network.modules()),
        "dtype": str(network.dtype),
        "attention": str(_AttentionBackendRegistry.get_active_backend()[0]),
        "sizes": list(loaded.examples),
        "device": "cpu" if on is None else [on.name, on.major, on.minor],
        "libraries": [torch.__version__, torch.version.cuda],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def restore(folder: Path, key: str) -> bool:
    """Gives torch the kept code. False, with a line in the log, if there is none that can be trusted: the
    code is run as it is, so no other user may write it, and it must have the digest that was kept with it."""
    import torch

    code, lock = folder / f"{key}.code", folder / f"{key}.json"
    if not (code.exists() and lock.exists()):
        return False
    try:
        for path in (folder, code, lock):
            _check_owner(path)
        data = code.read_bytes()
        if hashlib.sha256(data).hexdigest() != json.loads(lock.read_text())["sha256"]:
            raise ValueError("its digest is not the one that was kept")
        return torch.compiler.load_cache_artifacts(data) is not None
    except (OSError, ValueError, KeyError) as error:
        log.warning("the compiled code in %s is not used: %s", code, error)
        return False


def _check_owner(path: Path) -> None:
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError(f"others may write {path}")


def keep(folder: Path, key: str) -> None:
    """Writes the code that torch compiled in this process. A folder that cannot be written is a line in the
    log."""
    import torch

    if (made := torch.compiler.save_cache_artifacts()) is None:
        return
    data, _ = made
    about = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "torch": torch.__version__}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / f"{key}.code", data)
        _write(folder / f"{key}.json", json.dumps(about).encode())
    except OSError as error:
        log.warning("the compiled code is not kept: %s", error)


def _write(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: workers may start at the same time."""
    number, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(number, "wb") as file:
        file.write(data)
    os.replace(name, path)
