"""The shape of the field's language model workers: a program in `src`, two engines behind one async
generator, errors that are yielded, as many jobs at once as the engine bears."""

import runpod
from engine import Engine, JobInput, OpenAIEngine

engine, openai_engine = Engine(), OpenAIEngine()


async def handler(job):
    try:
        given = JobInput(job["input"])
        chosen = openai_engine if given.openai_route else engine
        async for batch in chosen.generate(given):
            yield batch
    except Exception as error:
        yield {"error": {"message": str(error), "type": "BadRequestError", "code": 400}}


if __name__ == "__main__":
    runpod.serverless.start(
        {
            "handler": handler,
            "concurrency_modifier": lambda current: engine.max_concurrency,
            "return_aggregate_stream": True,
        }
    )
