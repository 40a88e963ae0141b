"""What leaves a worker unfit for its next job: how errors are judged, and what a real worker says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.worker.between_jobs import device_errors
from stoker.worker.between_jobs.refresh_key import REFRESH
from stoker.worker.errors import HandlerError
from stoker.worker.testing import LocalJob
from tests.mutants import mutant
from tests.profiles import examples


def error_of(module: str, name: str, text: str, base: type[BaseException] = RuntimeError) -> BaseException:
    return type(name, (base,), {"__module__": module})(text)


MEMORY = [
    error_of("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has …"),
    error_of("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 8 bytes"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 MiB"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    error_of("numba.cuda", "CudaAPIError", "[2] cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", Exception),
]
BY_THE_HANDLER = [
    RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: misaligned address"),
    RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    error_of("torch", "AcceleratorError", "CUDA error: an illegal instruction was encountered"),
    error_of("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorAssert: device-side assert"),
    error_of("numba.cuda", "CudaAPIError", "[700] cuMemcpyDtoH: CUDA_ERROR_ILLEGAL_ADDRESS", Exception),
    error_of("pycuda._driver", "LogicError", "cuMemcpyDtoH failed: an illegal memory access", Exception),
]
BY_THE_DEVICE = [
    RuntimeError("CUDA error: uncorrectable ECC error encountered"),
    RuntimeError("CUDA error: unspecified launch failure"),
    RuntimeError("CUDA error: unknown error"),
    error_of("jaxlib", "XlaRuntimeError", "INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error"),
]
NOTHING = [
    RuntimeError("CUDA error: invalid argument"),
    RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    RuntimeError("an illegal memory access by a human"),
    ValueError("no such voice: CUDA out of memory"),
    KeyError("CUDA error: device-side assert triggered"),
    HandlerError("the prompt 'CUDA out of memory' is not allowed"),
    MemoryError("a large array"),
    SystemExit("CUDA out of memory"),
]


def judged(m: Any, error: BaseException) -> str:
    trouble = m.fault_of(error)
    if trouble is None:
        return "nothing"
    if not trouble.lost:
        assert not trouble.retryable, "the same job needs as much again"
        return "memory"
    return "device" if trouble.retryable else "handler"


def each_kind(m: Any) -> None:
    for errors, kind in ((MEMORY, "memory"), (BY_THE_HANDLER, "handler"), (BY_THE_DEVICE, "device")):
        for error in errors:
            assert judged(m, error) == kind, error
    for error in NOTHING:
        assert judged(m, error) == "nothing", error


def raised(outer: BaseException, inner: BaseException, how: str) -> BaseException:
    """`outer` as it is caught when it was raised while `inner` was handled."""
    try:
        try:
            raise inner
        except BaseException:
            if how == "context":
                raise outer  # noqa: B904  # that is the point
            raise outer from (inner if how == "cause" else None)
    except BaseException as caught:
        return caught


def behind_others(m: Any) -> None:
    for how in ("context", "cause", "none"):
        last = RuntimeError("CUDA out of memory")
        reported = raised(HandlerError("too many pixels"), raised(ValueError("size"), last, how), how)
        assert judged(m, reported) == "memory"
    assert judged(
        m, ExceptionGroup("two", [ValueError("a"), RuntimeError("CUDA error: misaligned address")])
    ) == ("handler")


def the_worst_counts(m: Any) -> None:
    first = RuntimeError("CUDA error: uncorrectable ECC error encountered")
    assert judged(m, raised(RuntimeError("CUDA out of memory"), first, "context")) == "device"


def errors_that_are_broken(m: Any) -> None:
    class Broken(RuntimeError):
        exceptions = ("no error",)

        def __str__(self) -> str:
            raise ValueError("no words")

    assert judged(m, Broken()) == "nothing"
    ring = [RuntimeError("a"), RuntimeError("b")]
    ring[0].__cause__, ring[1].__cause__ = ring[1], ring[0]
    assert judged(m, ring[0]) == "nothing"
    assert judged(m, RuntimeError("CUDA " + "x" * 10**7)) == "nothing"


CHECKS = [each_kind, behind_others, the_worst_counts, errors_that_are_broken]

MUTANTS = [
    (
        "only the error itself",
        "waiting += [other for other in (one.__cause__",
        "[other for other in (one.__cause__",
    ),
    ("groups are not opened", "if isinstance(members, tuple):", "if False:"),
    ("handlers' own words", "isinstance(error, HandlerError) or (kind.__module__", "(kind.__module__"),
    ("everybody's own words", 'kind.__module__ == "builtins" and', "False and"),
    ("not of a device", "if not _OF_A_DEVICE.search(text):", "if False:"),
    ("the first counts", "next(iter(lost or found), None)", "next(iter(found), None)"),
    ("all is tried again", 'context is lost: {_line(error)}", lost=True)', 'context is lost", True, True)'),
    ("the device is never to blame", "lost=True, retryable=True", "lost=True, retryable=False"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_judgement(check: Any) -> None:
    check(device_errors)


@pytest.mark.parametrize(("old", "new"), [pair[1:] for pair in MUTANTS], ids=[pair[0] for pair in MUTANTS])
def test_a_mutant_is_noticed(old: str, new: str) -> None:
    broken = mutant(device_errors, old, new)
    for check in CHECKS:
        try:
            check(broken)
        except Exception:
            return
    pytest.fail("nobody noticed")


KINDS = {"memory": MEMORY, "handler": BY_THE_HANDLER, "device": BY_THE_DEVICE, "nothing": NOTHING[:-1]}


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from([(kind, n) for kind, errors in KINDS.items() for n in range(len(errors))]),
    st.lists(st.tuples(st.sampled_from(["context", "cause", "none", "group"]), st.text()), max_size=6),
)
def test_it_is_found_behind_whatever_came_later(which: tuple[str, int], later: list[tuple[str, str]]) -> None:
    kind, n = which
    error = KINDS[kind][n]
    error.__context__ = error.__cause__ = None
    for how, text in later:
        if how == "group" and isinstance(error, Exception):
            error = ExceptionGroup("several", [ValueError(text), error])
        else:
            error = raised(HandlerError(text), error, how)
    assert judged(device_errors, error) == kind


HANDLER = """
import asyncio
from stoker.worker import HandlerError

class OutOfMemoryError(RuntimeError):
    __module__ = "torch"

ERRORS = {
    "memory": OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    "explained": HandlerError("4096 pixels are too many"),
    "address": RuntimeError("CUDA error: an illegal memory access was encountered\\nmore"),
    "ecc": RuntimeError("CUDA error: uncorrectable ECC error encountered"),
}

def handler(job):
    if job.input.get("refresh"):
        job.refresh_worker()
    if "raise" in job.input:
        error = ERRORS[job.input["raise"]]
        raise error from (ERRORS["memory"] if job.input["raise"] == "explained" else None)
    return job.input.get("output")

async def async_handler(job):
    await asyncio.sleep(0)
    return handler(job)

def generator(job):
    job.refresh_worker()
    yield 1
"""


@pytest.fixture
def agent(start_worker: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    (tmp_path / "troubled.py").write_text(HANDLER)
    started = start_worker(f"{tmp_path}/troubled.py:{getattr(request, 'param', 'handler')}")
    assert started.setup().kind == "ready"
    return started


def both(agent: Any, job_input: dict[str, Any]) -> tuple[Any, Any]:
    agent.run(json.dumps(job_input).encode())
    return agent.next(), agent.next()


@pytest.mark.parametrize("agent", ["handler", "async_handler"], indirect=True)
def test_a_worker_says_that_it_goes_before_its_job_ends(agent: Any) -> None:
    retire, failed = both(agent, {"raise": "memory"})
    assert (retire.kind, retire.fields["reason"]) == ("retire", "a job ran out of the device's memory")
    assert "lost" not in retire.fields
    assert failed.fields["error"].startswith(
        "the job ran out of GPU memory: OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n"
    )
    assert failed.fields["retryable"] is False

    retire, failed = both(agent, {"raise": "address"})
    assert (retire.job, retire.attempt, retire.fields["lost"]) == ("j", 1, True)
    assert retire.fields["reason"] == (
        "its CUDA context is lost: CUDA error: an illegal memory access was encountered"
    )
    assert failed.fields["retryable"] is False

    retire, failed = both(agent, {"raise": "ecc"})
    assert retire.fields["lost"] is True
    assert failed.fields["error"].startswith("the GPU failed while the job ran: RuntimeError: CUDA error")
    assert failed.fields["retryable"] is True

    retire, failed = both(agent, {"raise": "explained"})
    assert (retire.kind, failed.fields["error"]) == ("retire", "4096 pixels are too many")


@pytest.mark.parametrize("agent", ["handler", "async_handler"], indirect=True)
def test_a_handler_asks_for_a_fresh_worker(agent: Any) -> None:
    retire, done = both(agent, {"output": {"refresh_worker": True, "y": 2}})
    assert (retire.kind, retire.fields["reason"]) == ("retire", REFRESH)
    assert (done.kind, json.loads(done.body)) == ("done", {"y": 2})
    retire, done = both(agent, {"refresh": True, "output": 5})
    assert (retire.kind, done.kind, json.loads(done.body)) == ("retire", "done", 5)
    agent.run(b'{"output": {"refresh_worker": false}}')
    assert json.loads(agent.next().body) == {}, "it did not ask"


@pytest.mark.parametrize("agent", ["generator"], indirect=True)
def test_a_generator_asks_for_a_fresh_worker(agent: Any) -> None:
    agent.run()
    assert [frame.kind for frame in agent.until_end()] == ["chunk", "retire", "done"]


def test_a_local_job_reports_whether_its_worker_would_go() -> None:
    def handler(job: Any) -> dict[str, Any]:
        return {"refresh_worker": bool(job.input), "y": 2}

    assert (LocalJob(handler, 1).run().retired, LocalJob(handler, 0).run().retired) == (
        REFRESH,
        None,
    )
    assert LocalJob(handler, 1).run().output == {"y": 2}
