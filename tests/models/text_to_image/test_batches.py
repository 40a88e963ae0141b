"""Images of several jobs in batches: each job's own end, whatever becomes of the others of its batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stoker.models.interface import ImageDefaults, ImageParameters, PipelineEntry, Step
from stoker.models.text_to_image.batching import measured, rules
from stoker.models.text_to_image.batching.batches import Batches
from stoker.models.text_to_image.batching.gain import Batching
from stoker.worker import Cancelled

IMAGE = ImageParameters("a", 256, 256, steps=3, seed=1)
FOURS = Batching("for this test", {1 << 20: 4})


@dataclass
class Pipeline:
    """Makes text of a prompt; `before_step` is called before each step of a batch, with its prompts."""

    before_step: Callable[[list[str], int], None] = lambda _, __: None
    batches: list[list[str]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def generate(self, parameters: ImageParameters, on_step: Callable[[Step], None]) -> Any:
        [made] = self.generate_batch([parameters], lambda _, step: on_step(step))
        return made

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Any]:
        prompts = [one.prompt for one in batch]
        self.batches.append(prompts)
        for number in range(1, batch[0].steps + 1):
            self.before_step(prompts, number)
            self.steps.append(number)
            for place in range(len(batch)):
                on_step(place, Step(number, batch[0].steps, lambda: None))  # type: ignore[arg-type, return-value]
        return [f"{one.prompt}{one.seed}" for one in batch]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts jobs at once, and returns a future of each; a batch waits until it is full."""
    monkeypatch.setattr(rules, "WAIT_S", 1e6)
    with ThreadPoolExecutor(8) as pool:

        def start(batches: Batches, *images: ImageParameters, **more: Any) -> list[Future[Any]]:
            return [pool.submit(make, batches, image, **more) for image in images]

        yield start


def make(
    batches: Batches,
    image: ImageParameters,
    on_step: Callable[[Step], None] = lambda _: None,
    cancelled: threading.Event | None = None,
    *,
    alone: bool = False,
) -> tuple[Any, int]:
    def raise_if_cancelled() -> None:
        if cancelled is not None and cancelled.is_set():
            raise Cancelled("asked")

    return batches.make(image, on_step, raise_if_cancelled, alone=alone)


def named(*prompts: str) -> list[ImageParameters]:
    return [replace(IMAGE, prompt=prompt) for prompt in prompts]


def test_a_full_batch_is_made_together(at_once: Any) -> None:
    pipeline = Pipeline()
    batches = Batches(pipeline, FOURS)
    made = at_once(batches, *named("a", "b", "c", "d"))
    assert [one.result() for one in made] == [("a1", 4), ("b1", 4), ("c1", 4), ("d1", 4)]
    assert len(pipeline.batches) == 1
    assert batches.slots() == 4


def test_alone_is_alone(at_once: Any) -> None:
    pipeline = Pipeline()
    batches = Batches(pipeline, FOURS)
    made = at_once(batches, *named("a", "b", "c", "d"), alone=True)
    assert {one.result()[1] for one in made} == {1}
    assert [len(batch) for batch in pipeline.batches] == [1] * 4


def test_a_lone_image_does_not_wait_for_long() -> None:
    assert make(Batches(Pipeline(), FOURS), IMAGE) == ("a1", 1)


def test_each_job_sees_all_its_steps_and_a_failing_neighbour_leaves(at_once: Any) -> None:
    pipeline = Pipeline()
    batches = Batches(pipeline, FOURS)
    seen: dict[str, list[int]] = {name: [] for name in "abcd"}

    def on_step(name: str) -> Callable[[Step], None]:
        def take(step: Step) -> None:
            seen[name].append(step.number)
            if name == "b" and step.number == 2:
                raise Cancelled("asked")

        return take

    made = [at_once(batches, image, on_step=on_step(image.prompt))[0] for image in named("a", "b", "c", "d")]
    assert [made[place].result() for place in (0, 2, 3)] == [("a1", 4), ("c1", 4), ("d1", 4)]
    with pytest.raises(Cancelled):
        made[1].result()
    assert seen == {"a": [1, 2, 3], "b": [1, 2], "c": [1, 2, 3], "d": [1, 2, 3]}
    assert len(pipeline.batches) == 1


def test_a_cancelled_job_leaves_while_its_batch_computes(at_once: Any) -> None:
    left, cancelled = threading.Event(), threading.Event()

    def before_step(_: list[str], number: int) -> None:
        if number == 2:
            cancelled.set()
            assert left.wait(100)

    batches = Batches(Pipeline(before_step), FOURS)
    others = at_once(batches, *named("a", "b", "c"))
    [mine] = at_once(batches, *named("d"), cancelled=cancelled)
    with pytest.raises(Cancelled):
        mine.result()
    left.set()
    assert [one.result()[0] for one in others] == ["a1", "b1", "c1"]


def test_the_batch_stops_once_nobody_is_left(at_once: Any) -> None:
    pipeline = Pipeline()

    def stop(step: Step) -> None:
        raise Cancelled("asked")

    batches = Batches(pipeline, FOURS)
    for one in at_once(batches, *named("a", "b", "c", "d"), on_step=stop):
        assert isinstance(one.exception(), Cancelled)
    assert make(batches, IMAGE, alone=True) == ("a1", 1)
    assert pipeline.steps == [1, 1, 2, 3]


def test_a_batch_that_fails_is_made_one_by_one_and_only_the_culprit_fails(at_once: Any) -> None:
    def before_step(prompts: list[str], number: int) -> None:
        if "bad" in prompts and number == 2:
            raise RuntimeError("a bad one")

    pipeline = Pipeline(before_step)
    made = at_once(Batches(pipeline, FOURS), *named("a", "bad", "c", "d"))
    assert [made[place].result() for place in (0, 2, 3)] == [("a1", 1), ("c1", 1), ("d1", 1)]
    with pytest.raises(RuntimeError, match="a bad one"):
        made[1].result()
    assert [len(batch) for batch in pipeline.batches] == [4, 1, 1, 1, 1]


def test_images_that_do_not_fit_together_hold_further_jobs_back(at_once: Any) -> None:
    release, began = threading.Event(), threading.Event()

    def before_step(_: list[str], __: int) -> None:
        began.set()
        assert release.wait(100)

    batches = Batches(Pipeline(before_step), FOURS)
    first = at_once(batches, IMAGE, alone=True)
    assert began.wait(100)
    assert batches.slots() == 1
    second = at_once(batches, replace(IMAGE, width=512), alone=True)
    while batches.slots() == 1:
        pass
    assert batches.slots() == 2
    release.set()
    assert [one.result()[1] for one in first + second] == [1, 1]
    assert batches.slots() == 4


ENTRY = PipelineEntry("test", "text-to-image", "test", defaults=ImageDefaults(steps=28))


def test_a_pipeline_without_batches_is_not_measured() -> None:
    assert measured.measure(object(), ENTRY) == Batching("the pipeline makes one image at a time")


def test_a_batch_that_fails_at_set_up_leaves_images_alone() -> None:
    class Fails:
        def generate_batch(self, *_: Any) -> Any:
            raise TypeError("no lists here")

    found = measured.measure(Fails(), ENTRY)
    assert found == Batching("a batch of 256 x 256 fails: TypeError: no lists here")


class Timed:
    """Its clock goes on by `step_s(side, count)` for each step; more than `fit` pixels are out of memory."""

    def __init__(self, step_s: Callable[[int, int], float], fit: int = 1 << 30, differ: int = 0) -> None:
        self.now_s, self.step_s, self.fit, self.differ = 0.0, step_s, fit, differ
        self.sizes: set[int] = set()

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Any]:
        import numpy as np
        import torch

        side = batch[0].width
        self.sizes.add(side)
        if len(batch) * side * side > self.fit:
            raise torch.OutOfMemoryError("too much")
        for number in range(1, batch[0].steps + 1):
            self.now_s += self.step_s(side, len(batch))
            for place in range(len(batch)):
                on_step(place, Step(number, batch[0].steps, lambda: torch.zeros(1)))
        return [np.full((2, 2, 3), one.seed + (len(batch) > 1) * self.differ) for one in batch]

    def measured(self) -> Batching:
        return measured.measure(self, ENTRY, clock=lambda: self.now_s)


def test_the_measurement_finds_where_batches_pay() -> None:
    """Below 512 x 512 a step takes the same for up to four images; from there on it grows with the pixels."""
    timed = Timed(lambda side, count: 1.0 if side < 512 and count <= 4 else count * side**2 / 2**18)
    found = timed.measured()
    assert dict(found.most) == {256 * 256: 4}
    assert timed.sizes == {256, 512}, "larger ones cannot pay"
    assert "4 at 256 x 256: 28 s, against 28 s for one" in found.reason


def test_what_does_not_fit_into_memory_is_no_batch() -> None:
    found = Timed(lambda _, __: 1.0, fit=2 * 512 * 512).measured()
    assert dict(found.most) == {256 * 256: 8, 512 * 512: 2}


def test_a_device_whose_batches_differ_makes_images_alone() -> None:
    assert dict(Timed(lambda _, __: 1.0, differ=2).measured().most) == {
        256**2: 8,
        512**2: 8,
        768**2: 8,
        1024**2: 8,
    }
    assert dict(Timed(lambda _, __: 1.0, differ=3).measured().most) == {}
