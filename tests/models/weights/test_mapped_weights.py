"""Weights of a CPU's pipeline: each begins at a boundary of 64 bytes. Those that lie at one in their file are
mapped from the page cache: loading copies nothing, and the workers of a host share them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.models.weights import alignment

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
@pytest.mark.parametrize("offset", [0, 8])
def test_loading_copies_only_weights_that_lie_at_no_boundary(
    folder: Path, tmp_path: Path, offset: int
) -> None:
    import diffusers

    from stoker.models.text_to_image.families.flux import Flux

    pipe = Flux(folder, "cpu").pipe
    wide = {**pipe.transformer.config, "num_attention_heads": 64}
    pipe.transformer = diffusers.FluxTransformer2DModel.from_config(wide)
    large = tmp_path / "large"
    pipe.save_pretrained(large)
    file = large / "transformer" / "diffusion_pytorch_model.safetensors"
    begin_at(file, offset)
    size = file.stat().st_size
    assert size > 100 << 20
    command = [sys.executable, "-P", "-c", _LOAD, str(folder), str(large)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    loaded, read = json.loads(printed.stdout.splitlines()[-1])
    print(f"{size >> 20} MiB of weights: {loaded >> 20} MiB of its own after loading, {read >> 20} once read")
    if offset == 0:
        assert loaded < size / 5
        assert read < size / 5
    else:
        assert size * 4 / 5 < loaded < size * 6 / 5


def begin_at(file: Path, offset: int) -> None:
    """Lets the numbers of a file of safetensors begin so many bytes after a boundary; spaces may follow a
    header."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip()
    header += b" " * ((offset - 8 - len(header)) % alignment.BOUNDARY)
    file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


def test_weights_that_the_library_mapped_lie_at_boundaries(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    before = {"a": torch.arange(7.0), "b": torch.arange(16.0).reshape(4, 4), "c": torch.zeros(0)}
    save_file(before, tmp_path / "some.safetensors")
    begin_at(tmp_path / "some.safetensors", 24)
    module = torch.nn.ParameterDict(load_file(tmp_path / "some.safetensors"))
    module.register_buffer("view", torch.arange(9.0)[1:])
    module.tied = module["b"]
    assert not alignment.is_aligned(module["a"])
    alignment.align(module)
    assert all(alignment.is_aligned(one) for one in (*module.parameters(), *module.buffers()))
    assert all(torch.equal(module[name], tensor) for name, tensor in before.items())
    assert torch.equal(module.view, torch.arange(1.0, 9.0))
    assert module.tied is module["b"]


def test_weights_at_boundaries_and_on_other_devices_stay_where_they_are() -> None:
    import torch

    module = torch.nn.Linear(8, 8)
    elsewhere = torch.nn.Linear(8, 8, device="meta")
    before = [one.data_ptr() for one in module.parameters()]
    for one in (module, elsewhere):
        alignment.align(one)
    assert [one.data_ptr() for one in module.parameters()] == before
    assert elsewhere.weight.device.type == "meta"
