"""flux-tiny is made the same everywhere, is small, and fits FLUX's own classes without a rest."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.models.text_to_image import tiny, tiny_weights
from stoker.models.weights import read_lock, verify


def test_making_it_again_gives_what_is_locked(folder: Path) -> None:
    verify(read_lock().entry("flux-tiny"), folder)


def test_it_is_under_a_megabyte() -> None:
    assert sum(len(data) for data in tiny.files().values()) < 1_000_000


def test_every_number_is_exact_in_bfloat16() -> None:
    """So a GPU in bfloat16 and a CPU in float32 hold the same weights."""
    for make in (
        tiny_weights.transformer(),
        tiny_weights.autoencoder(),
        tiny_weights.clip(514),
        tiny_weights.t5(98),
    ):
        for name, array in make.items():
            low = array.view(np.uint32) & 0xFFFF
            assert not low.any(), name


def test_a_scale_that_would_round_is_refused() -> None:
    with pytest.raises(ValueError, match="not a power of two"):
        tiny_weights.draw("x", 2, scale=0.3)


def test_drawing_depends_on_the_name_alone() -> None:
    drawn = tiny_weights.draw("x", 2, 3, scale=0.5)
    assert drawn.tobytes() == tiny_weights.draw("x", 2, 3, scale=0.5).tobytes()
    assert drawn.tobytes() != tiny_weights.draw("y", 2, 3, scale=0.5).tobytes()
    first = int.from_bytes(hashlib.shake_256(b"stoker flux-tiny 1/x").digest(1), signed=True)
    assert drawn[0, 0] == first / 256


def test_the_safetensors_library_reads_what_is_written_here() -> None:
    from safetensors.numpy import load

    weights = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(1, np.float32)}
    data = tiny.safetensors_bytes(weights)
    assert struct.unpack("<Q", data[:8])[0] % 8 == 0
    back = load(data)
    assert {name: array.tolist() for name, array in back.items()} == {"a": [1.0], "b": [[0, 1, 2], [3, 4, 5]]}


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("transformer", "diffusion_pytorch_model"),
        ("vae", "diffusion_pytorch_model"),
        ("text_encoder", "model"),
        ("text_encoder_2", "model"),
    ],
)
def test_every_parameter_of_the_class_is_there_and_no_other(
    model: Any, part: str, name: str, weights_dir: Path
) -> None:
    data = (weights_dir / "flux-tiny" / part / f"{name}.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    header.pop("__metadata__")
    written = {key.removeprefix("text_model."): value["shape"] for key, value in header.items()}
    held = {
        key.removeprefix("text_model."): list(value.shape)
        for key, value in getattr(model.pipeline.pipe, part).state_dict().items()
    }
    held.pop("encoder.embed_tokens.weight", None)  # T5 holds its one table of tokens under two names
    assert written == held


def test_the_tokenizers_take_any_text(model: Any) -> None:
    for text in ("a fox", "FOX! 12", "żółw 🐢 走", "\x00\n\t", " "):
        for tokenizer in (model.pipeline.pipe.tokenizer, model.pipeline.pipe.tokenizer_2):
            ids = tokenizer(text).input_ids
            assert max(ids) < len(tokenizer)
    unknown = model.pipeline.pipe.tokenizer_2.unk_token_id
    assert unknown not in model.pipeline.pipe.tokenizer_2("A fox, 12!").input_ids
    assert (
        model.pipeline.pipe.tokenizer("a fox").input_ids != model.pipeline.pipe.tokenizer("a cat").input_ids
    )
