"""`stoker model list` and `stoker model show`. Loads no model library."""

from __future__ import annotations

import json
from typing import Any

from stoker.cli import tables
from stoker.cli.errors import CliError
from stoker.models import weights
from stoker.models.hosted import MODELS
from stoker.models.interface import PipelineEntry, PipelineNeeds
from stoker.models.registry import UnknownPipeline, known_pipelines, pipeline
from stoker.models.speed_ups import profiles

COLUMNS = ("name", "model", "weights", "licence", "about")


def known(name: str) -> PipelineEntry:
    """Returns the pipeline of this name. Raises CliError."""
    try:
        return pipeline(name)
    except UnknownPipeline as error:
        raise CliError(str(error)) from None


def show_all(*, as_json: bool) -> None:
    records = [_summary(entry) for entry in known_pipelines()]
    tables.show(COLUMNS, [[record[name] for name in COLUMNS] for record in records], records, as_json=as_json)


def show_one(name: str, *, as_json: bool) -> None:
    entry = known(name)
    record = _record(entry)
    told = {
        **record,
        "gpu_count": None,
        "gpu_memory": _memory_in_words(entry.needs),
        "inputs": {field: _bounds(rule) for field, rule in record["inputs"].items()},
        "prices": {metric: f"{price:.9f} USD" for metric, price in record["prices"].items()},
    }
    rows = [[field.replace("_", " "), line] for field, value in told.items() for line in _lines(value)]
    tables.show((), rows, record, as_json=as_json)


def _lines(value: Any) -> list[str]:
    """Returns the lines of a value: one for each name in it; none where there is nothing to show."""
    if isinstance(value, dict):
        return [f"{name}: {one}" for name, one in value.items()]
    if isinstance(value, bool):
        return ["used" if value else "not used"]
    return [] if value is None else [str(value)]


def _summary(entry: PipelineEntry) -> dict[str, str]:
    try:
        locked = weights.read_lock(entry.lock).entry(entry.weights)
    except weights.WeightsError as error:
        return _texts(entry, str(error), "")
    if locked.is_built:
        return _texts(entry, "made when they are needed", locked.licence)
    lacking = weights.lacking(locked, weights.folder_of(locked, weights.weights_folder()))
    return _texts(entry, lacking or "here", locked.licence)


def _texts(entry: PipelineEntry, state: str, licence: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (entry.name, entry.model, state, licence, entry.about), strict=True))


def _record(entry: PipelineEntry) -> dict[str, Any]:
    """Returns what programs read: bounds and defaults of inputs as JSON Schema, prices of a unit in USD."""
    model = MODELS[entry.model]
    schema = model.schema if model.schema_for is None else model.schema_for(entry)
    image = model.schema_for is not None
    has_profiles = entry.load is None or getattr(entry.load, "has_profiles", False)
    return {
        **_summary(entry),
        "steps": entry.defaults.steps if image else None,
        "guidance": entry.defaults.guidance if image else None,
        "negative_prompt": entry.defaults.negative_prompt if image else None,
        "profile": entry.profile if has_profiles else None,
        "left_out_here": _left_out(entry) if has_profiles else {},
        "gpu_count": entry.needs.gpu_count,
        "gpu_memory": _gpu_memory(entry.needs),
        "inputs": schema["properties"],
        "prices": {price["metric"]: price["nano_usd"] / 1e9 for price in model.prices},
    }


def _left_out(entry: PipelineEntry) -> dict[str, str]:
    """Returns the speed-ups of the pipeline's profile that a GPU of this machine would go without, as far as
    that is known before the model is loaded. Raises CliError."""
    try:
        return profiles.lacking(profiles.chosen(entry))
    except ValueError as error:
        raise CliError(str(error)) from None


def _gpu_memory(needs: PipelineNeeds) -> dict[str, int]:
    """Returns the bytes that each GPU must have, by profile; nothing where any GPU will do."""
    found = {profile: profiles.gpu_memory_bytes(needs, profile) for profile in profiles.PROFILES}
    return {profile: size for profile, size in found.items() if size}


def _memory_in_words(needs: PipelineNeeds) -> str | None:
    if not needs.gpu_memory_gb:
        return None
    gpus = f"{needs.gpu_count} GPUs with each " if needs.gpu_count > 1 else ""
    saving = f", or {needs.saving_gb} GB with the profile low-memory"
    return f"{gpus}{needs.gpu_memory_gb} GB{saving if 0 < needs.saving_gb < needs.gpu_memory_gb else ''}"


def _bounds(rule: dict[str, Any]) -> str:
    """Returns a field's type with the allowed values, as in "integer 256 to 1536, divisible by 64; 1024 by
    default"."""
    text: str = rule["type"]
    if "enum" in rule:
        text = " or ".join(rule["enum"])
    if rule["type"] == "array":
        fields = rule["items"]["properties"].items()
        text = (
            f"up to {rule['maxItems']}, each {'; '.join(f'{name}: {_bounds(one)}' for name, one in fields)}"
        )
    if "minimum" in rule and "maximum" in rule:
        text += f" {rule['minimum']} to {rule['maximum']}"
    if "multipleOf" in rule:
        text += f", divisible by {rule['multipleOf']}"
    if "default" in rule:
        text += f"; {json.dumps(rule['default'])} by default"
    return text
