"""Weights are mapped from the page cache: loading copies nothing, and the workers of a host share them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="the models' libraries are not installed")

_LOAD = """
import json, sys
from pathlib import Path
from stoker.models.text_to_image.families.flux import Flux

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

small, large = map(Path, sys.argv[1:])
Flux(small, "cpu")  # imports, and what the first load keeps
before = own()
pipe = Flux(large, "cpu").pipe
loaded = own()
total = sum(float(values.sum()) for values in pipe.transformer.parameters())
print(json.dumps([loaded - before, own() - before]))
"""


@pytest.mark.slow
def test_loading_copies_no_weight(folder: Path, tmp_path: Path) -> None:
    import diffusers

    from stoker.models.text_to_image.families.flux import Flux

    pipe = Flux(folder, "cpu").pipe
    wide = {**pipe.transformer.config, "num_attention_heads": 64}
    pipe.transformer = diffusers.FluxTransformer2DModel.from_config(wide)
    large = tmp_path / "large"
    pipe.save_pretrained(large)
    size = (large / "transformer" / "diffusion_pytorch_model.safetensors").stat().st_size
    assert size > 100 << 20
    command = [sys.executable, "-P", "-c", _LOAD, str(folder), str(large)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    loaded, read = json.loads(printed.stdout.splitlines()[-1])
    print(f"{size >> 20} MiB of weights: {loaded >> 20} MiB of its own after loading, {read >> 20} once read")
    assert loaded < size / 5
    assert read < size / 5
