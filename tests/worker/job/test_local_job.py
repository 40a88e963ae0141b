"""LocalJob runs every kind of handler with no platform, and shows all that the platform would see."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker import worker
from stoker.worker import Cancelled, Device, File, HandlerError, Job, RegistrationError, RetryableError
from stoker.worker.errors import OutputError
from stoker.worker.frames import BODY_MAX, Frame
from stoker.worker.testing import LocalJob


def echo(job: Job) -> Any:
    return job.input


async def async_echo(job: Job) -> Any:
    await asyncio.sleep(0)
    return job.input


def counts(job: Job) -> Iterator[int]:
    yield from range(job.input["count"])


async def async_counts(job: Job) -> AsyncIterator[int]:
    for n in range(job.input["count"]):
        yield n


class Model:
    def setup(self, device: Device) -> None:
        self.device = device

    def run(self, job: Job) -> Any:
        return [self.device.uuid, self.device.torch_device, job.input]


class AsyncModel:
    async def setup(self, device: Device) -> None:
        await asyncio.sleep(0)
        self.device = device

    async def run(self, job: Job) -> Any:
        return self.device.kind


@pytest.mark.parametrize(
    ("handler", "chunks", "output"),
    [
        (echo, [], {"count": 2}),
        (async_echo, [], {"count": 2}),
        (counts, [0, 1], []),
        (async_counts, [0, 1], []),
        (worker.handler(aggregate=True)(lambda job: (yield 5)), [5], [5]),
        (Model, [], ["cpu", "cpu", {"count": 2}]),
        (AsyncModel, [], "cpu"),
    ],
)
def test_every_kind_of_handler_runs(handler: Any, chunks: list[Any], output: Any) -> None:
    local = LocalJob(handler, {"count": 2}).run()
    assert (local.chunks, local.output, local.error) == (chunks, output, None)
    assert local.finished
    assert local.result() == output


async def test_an_async_handler_runs_on_the_loop_that_is_there() -> None:
    local = await LocalJob(async_echo, 1).run_async()
    assert local.output == 1
    with pytest.raises(TypeError, match="echo is not asynchronous; use run"):
        await LocalJob(echo).run_async()


def test_a_loaded_model_serves_many_jobs() -> None:
    model = Model()
    model.setup(Device("GPU-1", "gpu", "a GPU", 3))
    assert [LocalJob(model.run, n).run().output for n in (1, 2)] == [
        ["GPU-1", "cuda", 1],
        ["GPU-1", "cuda", 2],
    ]


def test_progress_chunks_files_and_metrics_are_collected(tmp_path: Path) -> None:
    def handler(job: Job) -> Any:
        assert (job.id, job.attempt, job.scratch) == ("local", 1, tmp_path)
        job.progress({"step": 1})
        (job.scratch / "a.png").write_bytes(b"picture")
        job.emit({"preview": "a.png"})
        job.measure("pixels", 2)
        job.measure("pixels", 3)
        return {"image": File(job.scratch / "a.png", name="final.png"), "list": [None]}

    local = LocalJob(handler, scratch=tmp_path).run()
    assert local.error is None
    assert local.progress == [{"step": 1}]
    assert local.chunks == [{"preview": "a.png"}]
    assert local.output == {"image": local.files[0], "list": [None]}
    assert local.output["image"].read_bytes() == b"picture"
    assert [(file.name, file.media_type) for file in local.files] == [("final.png", "image/png")]
    assert local.metrics == {"pixels": 5}


def test_its_own_scratch_goes_with_it() -> None:
    local = LocalJob(lambda job: str(job.scratch)).run()
    folder = Path(local.output)
    assert folder.is_dir()
    del local
    gc.collect()
    assert not folder.exists()


def test_a_handler_that_asks_for_no_folder_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    local = LocalJob(lambda job: 1).run()
    assert (local.output, os.listdir(tmp_path)) == (1, [])
    (local.scratch / "asked").touch()
    del local
    gc.collect()
    assert os.listdir(tmp_path) == []


def raises(error: BaseException) -> Any:
    def handler(job: Job) -> None:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "text", "retryable"),
    [
        (ValueError("no"), "ValueError: no", False),
        (HandlerError("in words"), "in words", False),
        (RetryableError("busy"), "busy", True),
        (SystemExit(2), "SystemExit: the handler called sys.exit(2)", False),
        (KeyboardInterrupt(), "KeyboardInterrupt: ", False),
        (Cancelled("by itself"), "cancelled: by itself", False),
    ],
)
def test_a_failure_is_kept_as_the_platform_would_see_it(
    error: BaseException, text: str, retryable: bool
) -> None:
    local = LocalJob(raises(error)).run()
    assert local.error is not None
    assert local.error.splitlines()[0].strip() == text.strip()
    assert local.retryable == retryable
    with pytest.raises(HandlerError, match=text.split(":", maxsplit=1)[0]) as caught:
        local.result()
    assert caught.value.retryable == retryable


def test_output_raises_what_the_handler_raised_where_it_did() -> None:
    def handler(job: Job) -> None:
        def deep() -> None:
            raise KeyError("text")

        deep()

    local = LocalJob(handler).run()
    for _ in range(2):
        with pytest.raises(KeyError, match="text") as caught:
            _ = local.output
        assert [frame.name for frame in caught.traceback][-2:] == ["handler", "deep"]
        assert len(caught.traceback) < 8, "it does not grow with each look"


async def test_output_of_an_asynchronous_handler_raises_too() -> None:
    async def handler(job: Job) -> None:
        raise ZeroDivisionError("seven")

    with pytest.raises(ZeroDivisionError, match="seven"):
        _ = (await LocalJob(handler).run_async()).output


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), Cancelled("by itself")])
def test_what_would_end_the_program_is_raised_as_an_error(error: BaseException) -> None:
    with pytest.raises(HandlerError) as caught:
        _ = LocalJob(raises(error)).run().output
    assert caught.value.__cause__ is error


def test_an_output_that_cannot_be_sent_raises() -> None:
    with pytest.raises(OutputError, match="JSON cannot hold"):
        _ = LocalJob(lambda job: {"x": object()}).run().output


def test_what_a_device_has_is_documented() -> None:
    reported = {name for name in dir(Device) if not name.startswith("_")}
    page = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text()
    for name in reported:
        assert f"`{name}`" in (Device.__doc__ or ""), name
        assert f"`{name}`" in page, name


def test_what_is_wrong_with_the_handler_comes_out_as_it_is() -> None:
    class Broken:
        def setup(self, device: Device) -> None:
            raise RuntimeError("the weights are not there")

        def run(self, job: Job) -> None: ...

    with pytest.raises(RegistrationError):
        LocalJob(lambda: None)
    with pytest.raises(RuntimeError, match="weights"):
        LocalJob(Broken).run()


def test_a_cancel_before_the_run_keeps_the_handler_from_running() -> None:
    for handler in (echo, async_echo):
        local = LocalJob(handler)
        local.cancel("too late")
        assert local.run().error == "cancelled: too late"


def test_a_cancel_at_an_exact_step() -> None:
    def handler(job: Job) -> None:
        for step in range(10):
            job.progress(step)
            job.raise_if_cancelled()

    local = LocalJob(handler, on_progress=lambda step: local.cancel() if step == 3 else None)
    assert local.run().error == "cancelled: cancelled by the test"
    assert local.progress == [0, 1, 2, 3]


def test_a_cancel_ends_a_generator_at_its_next_yield_and_runs_its_finally() -> None:
    ended = []

    def handler(job: Job) -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            ended.append(True)

    local = LocalJob(handler, on_chunk=lambda n: local.cancel() if n == 2 else None)
    assert local.run().error == "cancelled: cancelled by the test"
    assert (local.chunks, ended) == ([0, 1, 2], [True])


def test_a_cancel_ends_an_async_generator_and_runs_its_finally() -> None:
    ended = []

    async def handler(job: Job) -> AsyncIterator[int]:
        try:
            for n in range(10):
                yield n
        finally:
            ended.append(True)

    local = LocalJob(handler, on_chunk=lambda n: local.cancel() if n == 2 else None)
    assert local.run().error == "cancelled: cancelled by the test"
    assert (local.chunks, ended) == ([0, 1, 2], [True])


def test_a_cancel_from_another_thread_reaches_an_async_handler_that_waits() -> None:
    async def handler(job: Job) -> None:
        job.progress("waiting")
        await asyncio.get_running_loop().create_future()

    waiting = threading.Event()
    local = LocalJob(handler, on_progress=lambda _: waiting.set())

    def cancel() -> None:
        waiting.wait(20)
        local.cancel()
        local.cancel("again")

    thread = threading.Thread(target=cancel)
    thread.start()
    local.run()
    thread.join()
    assert local.error == "cancelled: cancelled by the test"


def test_a_handler_that_was_not_cancelled_but_cancels_itself_failed() -> None:
    async def handler(job: Job) -> None:
        raise asyncio.CancelledError

    assert (LocalJob(handler).run().error or "").startswith("CancelledError")


def test_a_handler_may_return_what_it_has_when_it_is_cancelled() -> None:
    async def handler(job: Job) -> Any:
        job.progress(1)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return {"so far": 1, "cancelled": job.cancelled}

    local = LocalJob(handler, on_progress=lambda _: local.cancel())
    assert local.run().output == {"so far": 1, "cancelled": True}


def test_an_output_that_no_frame_can_hold_arrives_all_the_same() -> None:
    local = LocalJob(lambda job: "x" * BODY_MAX).run()
    assert (local.error, len(local.output), local.files) == (None, BODY_MAX, [])


def test_alongside_files_an_output_has_the_limit_of_a_frame() -> None:
    def handler(job: Job) -> Any:
        (job.scratch / "a.txt").write_text("a")
        return [File(job.scratch / "a.txt"), "x" * BODY_MAX]

    assert "over the limit of 67108864; return a File" in (LocalJob(handler).run().error or "")


@pytest.mark.parametrize(
    ("metric", "quantity", "message"),
    [
        ("", 1, "a metric's name must be text of 1 to 100 characters, not ''"),
        (5, 1, "a metric's name must be text of 1 to 100 characters, not 5"),
        ("pixels", -1, "the quantity of pixels must be a whole number from 0, not -1"),
        ("pixels", 1.5, "the quantity of pixels must be a whole number from 0, not 1.5"),
        ("pixels", True, "the quantity of pixels must be a whole number from 0, not True"),
    ],
)
def test_a_wrong_measure_is_refused_with_a_message(metric: Any, quantity: Any, message: str) -> None:
    assert LocalJob(lambda job: job.measure(metric, quantity)).run().error == message


def test_too_many_metrics_are_refused() -> None:
    def handler(job: Job) -> None:
        for n in range(101):
            job.measure(f"m{n}", 1)

    assert LocalJob(handler).run().error == "a job may measure at most 100 metrics"


def test_nothing_can_be_sent_once_the_job_is_over() -> None:
    kept: list[Job] = []
    local = LocalJob(kept.append).run()
    for send in (kept[0].progress, kept[0].emit):
        with pytest.raises(HandlerError, match="the job local is over; no"):
            send(1)
    assert (local.progress, local.chunks, kept[0].cancelled) == ([], [], False)


@pytest.mark.parametrize("in_generator", [False, True])
def test_a_file_in_a_chunk_is_refused_as_by_the_platform(tmp_path: Path, in_generator: bool) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")

    def emitting(job: Job) -> None:
        job.emit({"preview": File(job.scratch / "a.png")})

    def yielding(job: Job) -> Iterator[Any]:
        yield {"preview": File(job.scratch / "a.png")}

    local = LocalJob(yielding if in_generator else emitting, scratch=tmp_path).run()
    assert (local.chunks, local.files, local.retryable) == ([], [], False)
    assert local.error == "chunk.preview is a File; put it in the final output instead"


class NumberedJob(LocalJob):
    """A job that notes the numbers of its chunks."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler)
        self.numbers: list[int] = []

    def send(self, frame: Frame) -> None:
        if frame.kind == "chunk":
            self.numbers.append(frame.fields["n"])
        super().send(frame)


def test_a_handler_may_send_from_threads_and_its_chunks_stay_numbered() -> None:
    def handler(job: Job) -> None:
        def emit(name: str) -> None:
            for n in range(20):
                job.emit(f"{name}-{n}")

        threads = [threading.Thread(target=emit, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    local = NumberedJob(handler)
    local.run()
    assert local.numbers == list(range(60))
    assert sorted(local.chunks) == sorted(f"{name}-{n}" for name in "abc" for n in range(20))


def test_a_refused_file_fails_the_job_with_a_message(tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.write_text("x")
    scratch = tmp_path / "scratch"
    os.mkdir(scratch)
    local = LocalJob(lambda job: [File(outside)], scratch=scratch).run()
    assert local.error == f"{outside.name} lies outside the job's scratch folder; write it below job.scratch"


def test_a_bucket_to_try_a_handler_with() -> None:
    bucket = {"accessId": "a", "accessSecret": "s", "bucketName": "b", "endpointUrl": "https://s3.example"}
    assert LocalJob(lambda job: job.s3_config, s3_config=bucket).run().output == bucket
    assert LocalJob(lambda job: [job.s3_config]).run().output == [None]
