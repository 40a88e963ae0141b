"""Yields a chat word by word; its output is empty."""


def handler(job):
    for word in ("Good ", "morning"):
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        yield {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
