"""The matrix of flux-mini's previews, fitted to pictures that it draws, as JSON.

python -m training.flux_mini.previews FOLDER-OF-WEIGHTS > models/text_to_image/mini/trained/preview.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stoker.models.registry import PIPELINES
from stoker.models.text_to_image import previews
from stoker.models.text_to_image.families.flux_mini import FluxMini


def main() -> None:
    fitted = previews.fit(FluxMini(Path(sys.argv[1]), "cpu"), PIPELINES["flux-mini"])
    print(json.dumps([[round(value, 6) for value in row] for row in fitted.weights.tolist()]))


if __name__ == "__main__":
    main()
