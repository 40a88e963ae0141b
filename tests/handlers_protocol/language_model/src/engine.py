"""The engine of the language model: pretends to generate, as slowly as it is told."""

import asyncio
import json


class JobInput:
    """What the caller sent: a prompt, or a request in the shape of the OpenAI API with its route."""

    def __init__(self, given):
        self.openai_route = given.get("openai_route")
        self.openai_input = given.get("openai_input") or {}
        self.prompt = given.get("prompt")
        self.pause = given.get("pause", 0.0)
        self.together = given.get("together", 1)


class Engine:
    def __init__(self):
        self.max_concurrency = 8
        self.running = self.most = 0

    async def generate(self, given):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while self.most < given.together:  # a batch begins when it is full
                await asyncio.sleep(0.01)
            for token in given.prompt.split():
                await asyncio.sleep(given.pause)
                yield {"choices": [{"tokens": [token]}], "at_once": self.most}
        finally:
            self.running -= 1


class OpenAIEngine:
    async def generate(self, given):
        if given.openai_route == "/v1/models":
            yield {"object": "list", "data": [{"id": "tiny", "object": "model"}]}
        elif given.openai_input.get("model") != "tiny":
            raise ValueError(f"The model {given.openai_input.get('model')} does not exist.")
        elif given.openai_input.get("stream"):
            for word in ("Good", "morning"):
                delta = {"choices": [{"delta": {"content": word}, "index": 0}]}
                yield f"data: {json.dumps(delta)}\n\n"
            yield "data: [DONE]\n\n"
        else:
            said = given.openai_input["messages"][-1]["content"]
            yield {"object": "chat.completion", "choices": [{"message": {"content": said.upper()}}]}
