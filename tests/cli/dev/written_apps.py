"""Apps for the tests, as folders."""

from __future__ import annotations

from pathlib import Path

ONE = '''
from stoker.client import endpoint

@endpoint(name="caption", cpu=True, workers=(0, 1))
def caption(text: str, times: int = 1) -> str:
    """Says it louder.

    The rest is not shown.
    """
    return text.upper() * times
'''
SEVERAL = '''
from stoker.client import endpoint

@endpoint(name="first", cpu=True)
def first() -> int:
    """The first."""
    return 1

@endpoint(name="model", gpu="NVIDIA L4")
class Model:
    """A model."""
    def embed(self, text: str) -> list[float]:
        """Embeds."""
        return [0.5]
    def first(self): ...
'''
BALANCED = '''
from stoker.client import endpoint

api = endpoint(name="shop", cpu=True)

@api.get("/items/{id}")
def item(id: int, language: str = "en") -> dict:
    """One item."""
    return {"id": id}

@api.post("/items")
def add(name: str, price: float | None = None) -> dict:
    return {"name": name}
'''


def app(folder: Path, **files: str) -> Path:
    """Writes `name="source"` as name.py, with two underscores for a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
