"""The program of a worker, as a digest: a save of one worker is good for another of the same program. Pure.

It is what may change the bytes of a save or their meaning: the handler and its command, the image, the
variables (a model's pipeline and profile are among them) and the contents of the weights. Prices, limits,
needs and the number of workers do not belong to it, so a job goes on after these were changed.
"""

from __future__ import annotations

import hashlib
import json

from stoker.control.rules.types import EndpointVersion

PINNED = "@sha256:"


def program(run: EndpointVersion, version: int) -> str:
    """Returns the digest of the program. An image without a digest of its own may be another one in each
    `version`, so the version is part of its program."""
    parts = [
        run.kind,
        run.handler,
        run.command,
        run.entrypoint,
        run.image,
        sorted(run.env.items()),
        [weights.key for weights in run.weights],
        version if run.image and PINNED not in run.image else 0,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
