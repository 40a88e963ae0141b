"""Returns something that JSON cannot hold, three levels down."""


def handler(job):
    return {"items": [1, 2, 3, {"x": {1, 2}}]}
