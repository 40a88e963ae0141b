"""Functions that run on the platform's workers, and here as ordinary functions."""

from stoker.client import endpoint
from stoker.worker.functions import progress


@endpoint(name="shout", cpu=True)
def shout(text: str, times: int = 1) -> str:
    """Returns the text in capitals, with as many exclamation marks."""
    progress({"characters": len(text)})
    return text.upper() + "!" * times


@endpoint(name="notes", cpu=True)
class Notes:
    """Notes that a worker keeps as long as it lives."""

    def __init__(self):
        self.kept = []

    def add(self, note: str) -> int:
        self.kept.append(note)
        return len(self.kept)

    def matching(self, word: str):
        yield from (note for note in self.kept if word in note)
