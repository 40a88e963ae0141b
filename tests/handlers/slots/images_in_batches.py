"""The image model with batches of up to four, without measuring whether they pay."""

from stoker.models.text_to_image.batching import measured, rules
from stoker.models.text_to_image.batching.gain import Batching
from stoker.models.text_to_image.handler import TextToImage

measured.measure = lambda *_: Batching("for a test", {1 << 20: 4})
rules.WAIT_S = 5.0  # until the batch is full, on however slow a machine


class Images(TextToImage):
    pass
