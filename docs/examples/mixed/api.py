"""The API beside the model: answers at once what needs no GPU."""

from features import numbers

from stoker.client import endpoint

api = endpoint(name="score-api", cpu=True, workers=(0, 1))


@api.post("/features")
def features(text: str) -> dict:
    """Describes a text by numbers."""
    return {"features": numbers(text)}


@api.get("/about")
def about() -> dict:
    """Tells what this is."""
    return {"model": "a linear layer"}
