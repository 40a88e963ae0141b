"""Sentences for what an output notes of its job's input: what was drawn otherwise, and what was not used.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.models.interface import PipelineEntry


def noted(entry: PipelineEntry, ignored: list[str], of_pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an output that note something, and `notes`: the same in sentences. `ignored`:
    inputs that the pipeline takes no notice of; `of_pipeline`: its own fields, and sentences of its own as
    `notes`."""
    fields = {**of_pipeline, **({"no_effect": ignored} if ignored else {})}
    instead = fields.get("drawn_instead") or {}
    sentences = [
        *_listed("Drawn instead", [f'{found} for "{word}"' for word, found in instead.items()]),
        *_listed("Not drawn", fields.get("not_drawn") or []),
        *fields.pop("notes", []),
        *_listed(f"Without effect with {entry.name}", ignored),
    ]
    return {**fields, **({"notes": sentences} if sentences else {})}


def _listed(what: str, names: list[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}."] if names else []
