"""Draws rings around the middle of a picture: a stand-in for a model, with all that a real one needs."""

import base64
import io

from PIL import Image, ImageDraw

from stoker.worker import File


class Rings:
    def setup(self, device):
        """Loads the model: once in each worker, before its first job."""
        self.serves = f"rings, on {device.torch_device}"

    def run(self, job):
        side, rings = job.input.get("side", 256), job.input.get("rings", 8)
        image = Image.new("RGB", (side, side), "white")
        pen = ImageDraw.Draw(image)
        for ring in range(rings):
            job.raise_if_cancelled()
            inset = side * ring // (2 * rings)
            pen.ellipse((inset, inset, side - inset - 1, side - inset - 1), fill=_colour(ring, rings))
            job.progress({"step": ring + 1, "steps": rings})
            job.emit({"preview": _preview(image)})
        path = job.scratch / "rings.png"
        image.save(path)
        return {"image_url": File(path), "rings": rings}


def _colour(ring, rings):
    return (255 - 200 * ring // rings, 80, 40 + 200 * ring // rings)


def _preview(image):
    """Returns a small picture, as the page and the terminal show it while the job runs."""
    small = image.resize((64, 64))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG")
    return {"format": "jpeg", "width": 64, "height": 64, "data": base64.b64encode(buffer.getvalue()).decode()}
