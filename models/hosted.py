"""The hosted models by id. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from stoker.models.declaration import ModelDeclaration
from stoker.models.talking_video.declaration import DECLARATION as TALKING_VIDEO
from stoker.models.text_to_image.declaration import DECLARATION as TEXT_TO_IMAGE

MODELS: Final[Mapping[str, ModelDeclaration]] = MappingProxyType(
    {model.id: model for model in (TEXT_TO_IMAGE, TALKING_VIDEO)}
)
