"""The record in an image file of how it was made: in a tEXt chunk of a PNG, in the EXIF UserComment of a
JPEG.

The text is enough to make the image again, except for the prompt and the image that it started from. These
are private, and images are passed on. The text has no time, so equal requests give equal bytes.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

from PIL import ExifTags, Image, PngImagePlugin

MEDIA_TYPES: Final = {"png": "image/png", "jpeg": "image/jpeg"}

_KEY = "stoker"
_ASCII = b"ASCII\0\0\0"
"""The EXIF prefix of a UserComment in ASCII."""
_QUALITY = 95


def encode(image: Image.Image, image_format: str, made: dict[str, Any]) -> bytes:
    """Encodes the image as a file of this format, with `made` in it."""
    text = json.dumps(made, sort_keys=True, separators=(",", ":"))
    file = io.BytesIO()
    if image_format == "png":
        info = PngImagePlugin.PngInfo()
        info.add_text(_KEY, text)
        image.save(file, "PNG", pnginfo=info)
    else:
        exif = Image.Exif()
        exif[ExifTags.Base.Software] = f"stoker {made.get('versions', {}).get('stoker', '')}".strip()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = _ASCII + text.encode("ascii")
        image.save(file, "JPEG", quality=_QUALITY, subsampling=0, exif=exif)
    return file.getvalue()


def read(path: Path) -> dict[str, Any] | None:
    """Returns what `encode` stored in the file; None if there is nothing of the kind."""
    with Image.open(path) as image:
        text = image.info.get(_KEY)
        if text is None:
            comment = image.getexif().get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment)
            if not isinstance(comment, bytes) or not comment.startswith(_ASCII):
                return None
            text = comment.removeprefix(_ASCII).decode("ascii", "replace")
    try:
        made = json.loads(text)
    except ValueError:
        return None
    return made if isinstance(made, dict) else None
