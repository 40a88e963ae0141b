"""Names and shapes of talk-tiny's parameters, read from the classes. With a path, writes them there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from stoker.models.talking_video.tiny.tiny import CONFIGS


def shapes() -> dict[str, dict[str, list[int]]]:
    """What the files must hold, by folder: parameters and saved buffers, in the order of their names."""
    return {part: _shapes_of(_module(part, config)) for part, config in CONFIGS.items()}


def _module(part: str, config: Any) -> Any:
    import diffusers
    import torch
    import transformers

    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel

    known = {name: value for name, value in config.items() if not name.startswith("_")}
    with torch.device("meta"):
        match part:
            case "transformer":
                return TalkingTransformer3DModel(**known)
            case "vae":
                return diffusers.AutoencoderKLWan(**known)
            case "text_encoder":
                return transformers.UMT5EncoderModel(transformers.UMT5Config(**known))
            case "image_encoder":
                return transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**known))
            case _:
                return transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**known))


def _shapes_of(module: Any) -> dict[str, list[int]]:
    shared = set(getattr(module, "_tied_weights_keys", None) or ())
    found = {name: list(value.shape) for name, value in module.state_dict().items() if name not in shared}
    return dict(sorted(found.items()))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(shapes(), indent=0, separators=(",", ":")) + "\n")
