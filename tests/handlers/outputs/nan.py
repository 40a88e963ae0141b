"""Returns a number that JSON has no word for."""


def handler(job):
    return {"loss": float("nan")}
