"""A load-balanced endpoint: requests go straight to a worker. What a module keeps is lost with its worker."""

from stoker.client import endpoint

api = endpoint(name="shop", cpu=True, workers=(0, 1), max_concurrency=8)
stock: dict[str, int] = {}


@api.get("/items/{name}")
def look(name: str) -> dict:
    """Tells how many there are."""
    return {"name": name, "count": stock.get(name, 0)}


@api.post("/items")
def deliver(name: str, count: int = 1) -> dict:
    """Adds to the stock."""
    stock[name] = stock.get(name, 0) + count
    return {"name": name, "count": stock[name]}
