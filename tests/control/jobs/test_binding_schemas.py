"""An endpoint's schema binds: its defaults are in the job, and what it does not know is refused at once."""

from __future__ import annotations

import json

import pytest

from stoker.control.errors import BadRequest
from stoker.control.rules.inputs.narrowing import narrowed
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import EndpointVersion
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import schema_for
from tests.control.plane_world import endpoint, story, work_beside_the_loop, world

SMALL = {"maximum": 512}
NARROWED = narrowed(
    schema_for(PIPELINES["flux-tiny"]),
    {"properties": {"width": SMALL, "height": SMALL, "num_images": {"maximum": 4}}},
)


def sent(**job_input: object) -> Submission:
    return Submission(input=json.dumps(job_input).encode())


@story
async def test_a_prompt_alone_gets_the_files_bounds() -> None:
    run = EndpointVersion("/h/ours.py:Ours", schema=NARROWED)
    async with world(endpoint("ours", run=run, workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        ours = w.plane.endpoints.find("default", "ours")
        await w.plane.commands.submit(ours, sent(prompt="a fox", seed=7), sync=True)
        assign = await agent.assigned()
        job_input = json.loads(assign.input or b"")
        assert (job_input["width"], job_input["height"], job_input["seed"]) == (512, 512, 7)
        assert (job_input["num_inference_steps"], job_input["guidance"]) == (28, 7.5)
        await agent.completes(assign)
        whole = job_input | {"prompt": "another"}
        await w.plane.commands.submit(ours, sent(**whole), sync=True)
        assert json.loads((await agent.assigned()).input or b"") == whole


@story
async def test_a_large_input_is_checked_beside_the_loop() -> None:
    run = EndpointVersion("m:h", schema={"properties": {"steps": {"type": "integer", "default": 28}}})
    with work_beside_the_loop() as named:
        async with world(endpoint("ours", run=run, workers_min=1)) as (w, tasks):
            agent = await w.working_agent(tasks)
            ours = w.plane.endpoints.find("default", "ours")
            for text, expected in (("short", []), ("x" * 300_000, ["check an input"])):
                await w.plane.commands.submit(ours, sent(text=text), sync=True)
                assert named == expected
                await agent.completes(await agent.assigned())


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"width": 1024}, "width must be at most 512, got 1024; allowed: 256 to 512 in steps of 64"),
    ({"num_images": 10}, "num_images must be at most 4, got 10; allowed: integers 1 to 4"),
    ({"sede": 7}, "sede is not a known field, got 7; allowed: prompt, negative_prompt, width"),
    ({"strength": 0.5}, "strength needs image, got 0.5 alone"),
]


@story
async def test_what_the_schema_does_not_take_is_refused_before_it_is_stored() -> None:
    run = EndpointVersion("/h/ours.py:Ours", schema=NARROWED)
    async with world(endpoint("ours", run=run)) as (w, _):
        ours = w.plane.endpoints.find("default", "ours")
        for job_input, message in REFUSED:
            with pytest.raises(BadRequest) as refused:
                await w.plane.commands.submit(ours, sent(prompt="a fox", **job_input), sync=False)
            assert message in str(refused.value)
        assert (await w.plane.queries.health(ours)).in_queue == 0


@story
async def test_a_hosted_models_defaults_are_left_to_the_pipeline_that_runs() -> None:
    run = EndpointVersion("m:h", schema={"properties": {"steps": {"type": "integer", "default": 28}}})
    async with world(endpoint("model", hosted=True, run=run, workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await w.plane.commands.submit(w.plane.endpoints.find("default", "model"), sent(), sync=True)
        assert (await agent.assigned()).input == b"{}"
