"""The weights of `talk-mini`, which are part of this package, in `trained`.

visemes.safetensors          made by `training.visemes.train`
face_detector.safetensors    MediaPipe's BlazeFace for short range and its face mesh, as published by Google
face_mesh.safetensors        under Apache-2.0; made by `training.landmarks` from the published files
"""

from __future__ import annotations

from pathlib import Path


def build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (Path(__file__).parent / "trained").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
