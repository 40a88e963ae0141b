"""The official OpenAI client, used as its users use it: only the base URL and the key are ours."""

import contextlib
import os
from typing import Any

import conversation

conversation.stay_on_loopback()

import openai  # noqa: E402

MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]


def models(endpoint: str, key: str) -> list[str]:
    return [model.id for model in _client(endpoint, key).models.list()]


def chat(endpoint: str, key: str, model: str) -> str | None:
    answer = _client(endpoint, key).chat.completions.create(model=model, messages=MESSAGES)
    return answer.choices[0].message.content


def chat_stream(endpoint: str, key: str, model: str) -> list[str | None]:
    events = _client(endpoint, key).chat.completions.create(model=model, messages=MESSAGES, stream=True)
    return [event.choices[0].delta.content for event in events]


def image(endpoint: str, key: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    return [one.to_dict() for one in _client(endpoint, key).images.generate(**given).data or []]


def image_stream(endpoint: str, key: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    return [event.to_dict() for event in _client(endpoint, key).images.generate(stream=True, **given)]


def edit(endpoint: str, key: str, images: list[str], given: dict[str, Any]) -> list[dict[str, Any]]:
    with contextlib.ExitStack() as opened:
        files: Any = [opened.enter_context(open(path, "rb")) for path in images]
        image = files if len(files) > 1 else files[0]
        if "mask" in given:
            given = given | {"mask": opened.enter_context(open(given["mask"], "rb"))}
        made: Any = _client(endpoint, key).images.edit(image=image, **given)
        return [one.to_dict() for one in (made if given.get("stream") else made.data)]


def transcription(endpoint: str, key: str, file: str, given: dict[str, Any]) -> Any:
    with open(file, "rb") as opened:
        made: Any = _client(endpoint, key).audio.transcriptions.create(file=opened, **given)
    return made if isinstance(made, str) else made.to_dict()


def file(endpoint: str, key: str, file: str) -> str:
    with open(file, "rb") as opened:
        return _client(endpoint, key).files.create(file=opened, purpose="user_data").filename


def videos(endpoint: str, key: str, limit: int) -> list[str]:
    """The ids of all videos, in as many pages as there are."""
    return [one.id for one in _client(endpoint, key).videos.list(limit=limit)]


def delete_video(endpoint: str, key: str, video: str) -> bool:
    return _client(endpoint, key).videos.delete(video).deleted


def video(endpoint: str, key: str, image: str, given: dict[str, Any], to: str) -> dict[str, Any]:
    """Makes a video of an image's file, as the client's users do, and saves it."""
    client = _client(endpoint, key)
    with open(image, "rb") as file:
        made = client.videos.create_and_poll(input_reference=file, poll_interval_ms=200, **given)
    if made.status == "completed":
        client.videos.download_content(made.id).write_to_file(to)
    return made.to_dict()


def _client(endpoint: str, key: str) -> openai.OpenAI:
    """Without an endpoint, at the base URL of all of them."""
    base = os.environ["RUNPOD_ENDPOINT_BASE_URL"]
    url = f"{base}/{endpoint}" if endpoint else base.removesuffix("/v2")
    return openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key, timeout=60)


if __name__ == "__main__":
    told = (
        models,
        chat,
        chat_stream,
        image,
        image_stream,
        edit,
        transcription,
        file,
        video,
        videos,
        delete_video,
    )
    conversation.converse({scenario.__name__: scenario for scenario in told})
