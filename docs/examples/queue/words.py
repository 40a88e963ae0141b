"""A queue endpoint with two functions. A generator's values are partial output, shown as they come."""

from collections.abc import Iterator

from stoker.client import endpoint
from stoker.worker.functions import progress


@endpoint(name="count-words", cpu=True, workers=(0, 2))
def count(text: str) -> dict:
    """Counts the words of a text."""
    words = text.split()
    print(f"{len(words)} words")
    progress({"counted": len(words)})
    return {"words": len(words), "longest": max(words, key=len, default="")}


@endpoint(name="split-words", cpu=True, workers=(0, 1))
def split(text: str) -> Iterator[str]:
    """Splits a text into its words."""
    yield from text.split()
