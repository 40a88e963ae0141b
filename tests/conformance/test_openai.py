"""The official OpenAI clients against a language model that the stock worker SDK runs, by real processes."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.conformance.stock_client import Raised, StockClient
from tests.system.stack import Stack


def test_models_are_listed(openai: StockClient, stack: Stack) -> None:
    assert openai.ask("models", endpoint="llm", key=stack.key) == ["tiny"]


def test_a_chat_is_answered_at_once_or_word_by_word(openai: StockClient, stack: Stack) -> None:
    request = {"endpoint": "llm", "key": stack.key, "model": "tiny"}
    assert openai.ask("chat", **request) == "HELLO"
    assert openai.ask("chat_stream", **request) == ["Good", "morning"]


def test_one_base_url_is_of_all_endpoints(openai: StockClient, stack: Stack) -> None:
    assert {"echo", "llm"} <= set(openai.ask("models", endpoint="", key=stack.key))
    request = {"endpoint": "", "key": stack.key, "model": "llm/tiny"}
    assert openai.ask("chat", **request) == "HELLO"
    assert openai.ask("chat_stream", **request) == ["Good", "morning"]
    with pytest.raises(Raised, match="no endpoint 'gpt-7'") as raised:
        openai.ask("chat", **request | {"model": "gpt-7"})
    assert (raised.value.kind, raised.value.status) == ("NotFoundError", 404)


def test_a_generator_that_does_not_aggregate_answers_one_completion(
    openai: StockClient, stack: Stack
) -> None:
    request = {"endpoint": "", "key": stack.key, "model": "words"}
    assert openai.ask("chat", **request) == "Good morning"
    assert openai.ask("chat_stream", **request) == ["Good ", "morning"]


def test_a_handler_of_ones_own_transcribes(openai: StockClient, stack: Stack, tmp_path: Path) -> None:
    audio = tmp_path / "said.wav"
    audio.write_text("good day")
    request = {"endpoint": "", "key": stack.key, "file": str(audio)}
    given = {"model": "hears", "language": "en"}
    assert openai.ask("transcription", **request, given=given) == {"text": "good day, en"}
    assert openai.ask("transcription", **request, given=given | {"response_format": "text"}) == "good day, en"


def test_a_handler_of_ones_own_gets_several_images_and_files(
    openai: StockClient, stack: Stack, tmp_path: Path
) -> None:
    images = [tmp_path / name for name in ("one.png", "two.png")]
    for image in images:
        image.write_text(image.stem)
    to = {"endpoint": "hears", "key": stack.key}
    given = {"model": "any", "prompt": "together"}
    [made] = openai.ask("edit", **to, images=[str(image) for image in images], given=given)
    assert base64.b64decode(made["b64_json"]) == b"one and two"
    assert openai.ask("file", **to, file=str(images[0])) == "one.png"


@pytest.mark.parametrize("how", ["chat", "chat_stream"])
def test_a_handlers_error_arrives_with_its_message_and_is_not_sent_again(
    how: str, openai: StockClient, stack: Stack
) -> None:
    before = stack.http.get("/llm/health").json()["jobs"]["failed"]
    with pytest.raises(Raised, match="The model large does not exist") as raised:
        openai.ask(how, endpoint="llm", key=stack.key, model="large")
    assert (raised.value.kind, raised.value.status) == ("InternalServerError", 500)
    assert stack.http.get("/llm/health").json()["jobs"]["failed"] == before + 1


def test_a_wrong_key_and_an_unknown_endpoint_are_the_clients_own_errors(
    openai: StockClient, stack: Stack
) -> None:
    with pytest.raises(Raised, match="invalid api key") as raised:
        openai.ask("models", endpoint="llm", key="wrong")
    assert (raised.value.kind, raised.value.status) == ("AuthenticationError", 401)
    with pytest.raises(Raised, match="none") as raised:
        openai.ask("models", endpoint="none", key=stack.key)
    assert (raised.value.kind, raised.value.status) == ("NotFoundError", 404)
