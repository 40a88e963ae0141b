"""Contents of workers' programs, named by digest: no program goes on from the save of another. Pure.

    local:echo.py:handler    "source 5d41…"   the files of its folder, however it came to this node
    example.com/echo:1       "image 9e10…"    what the name meant here when the worker started
    example.com/echo@sha256  ""               its name says so already
    package.module:handler   ""               not known

A content that is not known, as of an agent of an earlier version, does not differ from any.
"""

from __future__ import annotations

from stoker.wire.messages import WorkerSpec

SHOWN = 12
"""Digits of a digest that a person reads."""


def content_of(spec: WorkerSpec, image_id: str) -> str:
    """Returns the content that a worker runs; "" where it is not known. `image_id` is that of its
    container."""
    if spec.source is not None and spec.source.digest:
        return f"source {spec.source.digest}"
    if image_id and "@" not in spec.image:
        return f"image {image_id.removeprefix('sha256:')}"
    return ""


def why_anew(made_by: str, worker: str, runs: str) -> str | None:
    """Returns why a job begins anew at the worker, as a part of a sentence; None where it goes on. `made_by`
    is the content that made its save, `runs` that of the worker."""
    if not made_by or not runs or made_by == runs:
        return None
    return f"its save was made by {_shown(made_by)}, and worker {worker} runs {_shown(runs)}"


def _shown(content: str) -> str:
    kind, _, digest = content.partition(" ")
    return f"{kind} {digest[:SHOWN]}"
