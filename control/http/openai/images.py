"""`POST /openai/v1/images/generations` at the hosted image model, as jobs and back. Pure.

    prompt                          the same
    size "1024x768", "auto"         width, height
    n                               as many jobs; with a seed, each has the next one
    output_format png, jpeg         image_format
    response_format url, b64_json   how each image is answered

`seed`, `negative_prompt`, `num_inference_steps` and `guidance` may be sent, too (`extra_body` of the official
client). What else the OpenAI API names has no effect here: `model`, `quality`, `style`, `user`, `background`,
`moderation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.control.errors import BadRequest

ROUTE, EDITS = "/v1/images/generations", "/v1/images/edits"
MOST = 10

_SAME = ("prompt", "seed", "negative_prompt", "num_inference_steps", "guidance")
_NO_EFFECT = ("model", "quality", "style", "user", "background", "moderation")
_OWN = ("size", "n", "output_format", "response_format")
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})", re.ASCII)
_SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class ImagesRequest:
    """`inputs`: one for each image."""

    inputs: Sequence[Mapping[str, Any]]
    as_base64: bool


def parse_images(body: Mapping[str, Any]) -> ImagesRequest:
    """Raises BadRequest, which names the field. The values of the jobs' inputs are checked with the jobs."""
    for name in body:
        if name not in (*_SAME, *_NO_EFFECT, *_OWN):
            raise BadRequest(f"{name} is not known here; allowed: {', '.join((*_SAME, *_OWN, *_NO_EFFECT))}")
    one = {name: body[name] for name in _SAME if body.get(name) is not None}
    one |= _sides(body.get("size"))
    if body.get("output_format") is not None:
        one["image_format"] = _one_of(body, "output_format", ("png", "jpeg"))
    as_base64 = _one_of(body, "response_format", ("url", "b64_json"), "url") == "b64_json"
    count = body.get("n")
    count = 1 if count is None else count
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise BadRequest(f"n must be a whole number from 1 to {MOST}; got {count!r:.100}")
    return ImagesRequest([_with_seed(one, number) for number in range(count)], as_base64)


def _with_seed(one: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Returns the input of the image with this number: each further image has the next seed, and -1 draws a
    seed for each image."""
    seed = one.get("seed")
    if number and isinstance(seed, int) and seed >= 0:
        return {**one, "seed": (seed + number) % _SEEDS}
    return one


def _sides(size: Any) -> dict[str, int]:
    if size is None or size == "auto":
        return {}
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise BadRequest(f'size must be "auto" or WIDTHxHEIGHT in pixels, as "1024x768"; got {size!r:.100}')
    return {"width": int(found[1]), "height": int(found[2])}


def _one_of(body: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str = "") -> str:
    value = default if body.get(name) is None else body[name]
    if value not in allowed:
        raise BadRequest(f"{name} must be one of {', '.join(allowed)}; got {value!r:.100}")
    return str(value)
