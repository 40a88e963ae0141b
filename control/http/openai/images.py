"""`/openai/v1/images/generations` and `/edits` at an image model, as jobs and back. Pure.

    prompt                          the same
    size "1024x768", "auto"         width, height
    n                               as many jobs; with a seed, each has the next one
    output_format png, jpeg         image_format
    response_format url, b64_json   how each image is answered
    stream, partial_images          events instead: `image_events`
    image, image[], images          of an edit, the image to start from: a file, a URL or a data URL; several
                                    are looked at, where the pipeline can
    mask                            mask_image: what is transparent in it is made anew, the same three ways

`seed`, `negative_prompt`, `num_inference_steps`, `guidance`, `scheduler` and of an edit `strength` may be
sent, too (`extra_body` of the official client). What else the OpenAI API names has no effect here: `quality`,
`style`, `user` and others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.errors import BadRequest
from stoker.control.http.openai.files import file_field
from stoker.control.http.openai.requests import SentFile

ROUTE, EDITS = "/v1/images/generations", "/v1/images/edits"
MOST, MOST_PARTIAL = 10, 3

_NUMBERS = ("seed", "num_inference_steps", "guidance", "strength", "n", "partial_images")
_SAME = ("prompt", "seed", "negative_prompt", "num_inference_steps", "guidance", "scheduler")
_NO_EFFECT = ("model", "quality", "style", "user", "background", "moderation")
_OWN = ("size", "n", "output_format", "response_format", "stream", "partial_images")
_OF_EDITS = ("image", "images", "mask", "strength", "input_fidelity")
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?", re.ASCII)
_SEEDS = 2**63
_NO_MASK = "a mask is a file, a URL or a data URL"
_MISSING = "an edit starts from an image, which is a file, a URL or a data URL"
TAKE_SEVERAL = ("flux-2-klein-4b",)
"""The hosted pipelines that take several images; control does not import them."""


class ImagesRequest(Struct, frozen=True):
    """A request for images. `inputs`: one for each image. `sent`: the images that all of them start from, or
    look at. `mask`: the part that is made anew; None for all of it. `partial`: how many partial images a
    stream has; None if no stream is wanted."""

    inputs: Sequence[Mapping[str, Any]]
    as_base64: bool
    sent: Sequence[str | SentFile] = ()
    mask: str | SentFile | None = None
    partial: int | None = None


def parse_images(body: Mapping[str, Any]) -> ImagesRequest:
    """Raises BadRequest, which names the field. The values of the jobs' inputs are checked with the jobs."""
    return _parse(body, _SAME, (*_SAME, *_OWN, *_NO_EFFECT))


def parse_edit(body: Mapping[str, Any]) -> ImagesRequest:
    """Raises BadRequest, which names the field. Forms have numbers as texts."""
    fields = {name: _number(value) if name in _NUMBERS else value for name, value in body.items()}
    sent, mask = _sent_images(fields), fields.get("mask")
    if mask is not None and len(sent) > 1:
        raise BadRequest(f"mask: a mask is for a single image; got {len(sent)}")
    parsed = _parse(fields, (*_SAME, "strength"), (*_SAME, *_OWN, *_OF_EDITS, *_NO_EFFECT))
    return replace(parsed, sent=sent, mask=None if mask is None else file_field("mask", mask, _NO_MASK))


def _parse(body: Mapping[str, Any], same: Sequence[str], allowed: Sequence[str]) -> ImagesRequest:
    for name in body:
        if name not in allowed:
            raise BadRequest(f"{name} is not known here; allowed: {', '.join(allowed)}")
    one = {name: body[name] for name in same if body.get(name) is not None}
    one |= _sides(body.get("size"))
    if body.get("output_format") is not None:
        one["image_format"] = _one_of(body, "output_format", ("png", "jpeg"))
    count, partial = _whole(body, "n", 1, MOST, 1), _partial(body)
    formats = ("url", "b64_json") if partial is None else ("b64_json",)
    as_base64 = _one_of(body, "response_format", formats, formats[0]) == "b64_json"
    if partial is not None and count > 1:
        raise BadRequest(f"n must be 1 with stream, whose events tell of one image; got {count}")
    return ImagesRequest([_with_seed(one, number) for number in range(count)], as_base64, partial=partial)


def _partial(body: Mapping[str, Any]) -> int | None:
    """Returns how many partial images are wanted; None if no stream is."""
    streams = body.get("stream")
    if not (streams is None or isinstance(streams, bool) or streams in ("true", "false")):
        raise BadRequest(f"stream must be true or false; got {streams!r:.100}")
    partial = _whole(body, "partial_images", 0, MOST_PARTIAL, 0)
    if streams and streams != "false":
        return partial
    if partial:
        raise BadRequest(f"partial_images: {partial} needs stream=true: they are sent as events of a stream")
    return None


def _sent_images(body: Mapping[str, Any]) -> Sequence[str | SentFile]:
    sent = body.get("image", body.get("images"))
    found = sent if isinstance(sent, list) and sent else [None if sent == [] else sent]
    return [file_field("image", one, _MISSING) for one in found]


def input_field(count: int, properties: Mapping[str, Any], endpoint: str) -> str:
    """Returns the input that takes so many images, of those that an endpoint's schema has: `image` or
    `images`. Raises BadRequest."""
    if count == 1 and "image" in properties:
        return "image"
    if "images" in properties:
        most = properties["images"].get("maxItems")
        if most is not None and count > most:
            raise BadRequest(f"image: the pipeline of {endpoint} takes at most {most} images; got {count}")
        return "images"
    if "image" in properties:
        able = " or ".join(TAKE_SEVERAL)
        raise BadRequest(
            f"image: the pipeline of {endpoint} starts from one image; got {count}: {able} takes several"
        )
    raise BadRequest(f"image: the pipeline of {endpoint} starts from no image")


def _number(value: Any) -> Any:
    """Returns the number that a text of a form is; another text is refused with the job."""
    if not isinstance(value, str) or (found := _NUMBER.fullmatch(value)) is None:
        return value
    return float(value) if found[1] else int(value)


def _whole(body: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = default if body.get(name) is None else body[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}; got {value!r:.100}")
    return value


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
