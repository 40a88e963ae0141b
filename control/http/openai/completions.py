"""Chunks of a stream as one completion, for callers that did not ask for a stream. Pure.

chat.completion.chunk, …   one chat.completion: contents and arguments joined, the last usage
text_completion, …         one text_completion: texts joined
anything else              one value is itself, several are their list
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

CHAT, TEXT = "chat.completion.chunk", "text_completion"
_DONE = "[DONE]"


def joined(chunks: Sequence[Any]) -> Any:
    """Returns what a generator yielded as one answer."""
    values = list(_values(chunks))
    whole = completion(values)
    if whole is not None:
        return whole
    return values[0] if len(values) == 1 else values


def completion(chunks: Sequence[Any]) -> dict[str, Any] | None:
    """Returns the completion that chunks are the parts of; None if they are something else."""
    values = list(_values(chunks))
    if values and all(_is_chat(value) for value in values):
        return {**_whole(values, _message), "object": "chat.completion"}
    if len(values) > 1 and all(_is(TEXT, value) for value in values):
        return _whole(values, _text)
    return None


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") == kind


def _is_chat(value: Any) -> bool:
    """Returns whether it is a chunk of a chat, as it says, or as its choices have a `delta`."""
    if not isinstance(value, dict) or "object" in value:
        return _is(CHAT, value)
    return any("delta" in choice for choice in _dicts(value.get("choices")))


def _values(chunks: Sequence[Any]) -> Iterator[Any]:
    """Yields the values of chunks: batches come as lists, and events as texts with `data:` lines."""
    for chunk in chunks:
        if isinstance(chunk, list):
            yield from _values(chunk)
        elif isinstance(chunk, str) and chunk.startswith("data:"):
            yield from map(_parsed, _data(chunk))
        else:
            yield chunk


def _data(events: str) -> Iterator[str]:
    for line in events.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != _DONE:
            yield data


def _parsed(data: str) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return data


def _whole(values: Sequence[Mapping[str, Any]], add: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    choices: dict[Any, dict[str, Any]] = {}
    for value in values:
        whole |= {name: one for name, one in value.items() if one is not None and name != "choices"}
        for choice in _dicts(value.get("choices")):
            index = choice.get("index", 0)
            index = index if isinstance(index, int) else 0
            add(choices.setdefault(index, {"index": index, "finish_reason": None}), choice)
    return {**whole, "choices": [choices[index] for index in sorted(choices)]}


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []


def _text(whole: dict[str, Any], choice: Mapping[str, Any]) -> None:
    whole["text"] = whole.get("text", "") + _string(choice.get("text"))
    whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]


def _message(whole: dict[str, Any], choice: Mapping[str, Any]) -> None:
    message = whole.setdefault("message", {"role": "assistant", "content": None})
    whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
    delta = choice.get("delta")
    for name, value in delta.items() if isinstance(delta, dict) else ():
        if name == "tool_calls":
            _add_calls(message.setdefault(name, []), _dicts(value))
        elif isinstance(value, str) and name != "role" and isinstance(message.get(name), str):
            message[name] += value
        elif value is not None:
            message[name] = value


def _add_calls(calls: list[dict[str, Any]], deltas: Sequence[Mapping[str, Any]]) -> None:
    """Adds the parts of tool calls: the first part of a call has its name, and each has more arguments."""
    for delta in deltas:
        index = delta.get("index", 0)
        if not isinstance(index, int) or index < 0 or index >= len(calls):
            calls.append({"id": None, "type": "function", "function": {"name": None, "arguments": ""}})
            index = len(calls) - 1
        call, function = calls[index], delta.get("function")
        call["id"] = delta.get("id") or call["id"]
        if isinstance(function, dict):
            call["function"]["name"] = function.get("name") or call["function"]["name"]
            call["function"]["arguments"] += _string(function.get("arguments"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
