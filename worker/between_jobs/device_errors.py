"""The errors of a job after which its worker must be replaced, since they are of the device.

    memory   the device's memory ran out. What is free is fragmented now; in a fresh process it is not
    context  an error that the CUDA driver never forgets: every later call of this process fails with it

Only type names and messages are looked at, along causes, contexts and groups: nothing is imported here, and
torch, cupy, triton, numba and JAX all pass on the driver's message. The message of a HandlerError, or of a
built-in type other than RuntimeError, is the handler's own and may quote a caller; it is not looked at.

The cause decides whether the job is retried. Memory, an assert in a kernel, a wild or misaligned address: the
same input fails again, so it is the handler's error. What a device does by itself (an ECC error, a lost bus)
and the "unspecified" launch failure, which the device may have caused, are retried elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.worker.errors import HandlerError, describe, is_retryable

LINE_MAX = 300
MESSAGE_MAX = 4000
CHAIN_MAX = 100

_OF_A_DEVICE = re.compile(r"cuda|cublas|cudnn|\bhip\b", re.IGNORECASE)

_MEMORY = re.compile(
    r"\.OutOfMemoryError: |(?:CUDA|HIP)(?: error:)? out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED",
)

_BY_THE_DEVICE = re.compile(
    r"uncorrectable (?:ECC|NVLink)|ECC_UNCORRECTABLE|ECCUncorrectable|unspecified launch failure"
    r"|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure|GPU is lost|fallen off the bus|CUDA_ERROR_UNKNOWN"
    r"|cudaErrorUnknown|error: unknown error",
    re.IGNORECASE,
)

_BY_THE_HANDLER = re.compile(
    r"illegal memory access|illegal address|ILLEGAL_ADDRESS|misaligned address|MISALIGNED_ADDRESS"
    r"|device-side assert|CUDA_ERROR_ASSERT|cudaErrorAssert|illegal instruction|ILLEGAL_INSTRUCTION"
    r"|invalid program counter|INVALID_PC|hardware stack error|HARDWARE_STACK_ERROR"
    r"|launch timed out|LAUNCH_TIMEOUT"
    r"|CU(?:BLAS|DNN)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """The reason why the worker must be replaced. `lost`: its device's context is lost, and with it all that
    runs there now. `prefix`: the text that callers see before the error itself."""

    reason: str
    lost: bool = False
    retryable: bool = False
    prefix: str = ""


def fault_of(error: BaseException) -> WorkerFault | None:
    """Returns what this error means for the process that it happened in; None if nothing. Never raises."""
    found = [fault for one in _chain(error) if (fault := _fault_of_one(one)) is not None]
    lost = [fault for fault in found if fault.lost]
    return next(iter(lost or found), None)


def error_text(error: BaseException, fault: WorkerFault | None) -> str:
    """Returns the text of the `failed` frame. A HandlerError's own message has no prefix."""
    text = describe(error)
    if fault is None or not fault.prefix or isinstance(error, HandlerError):
        return text
    return f"{fault.prefix}: {text}"


def is_job_retryable(error: BaseException, fault: WorkerFault | None) -> bool:
    return is_retryable(error) or (fault is not None and fault.retryable)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, its causes and contexts, those hidden by `from None` too."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < CHAIN_MAX:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        members = getattr(one, "exceptions", ())
        if isinstance(members, tuple):
            waiting += [other for other in members if isinstance(other, BaseException)]


def _fault_of_one(error: BaseException) -> WorkerFault | None:
    kind = type(error)
    if isinstance(error, HandlerError) or (kind.__module__ == "builtins" and kind is not RuntimeError):
        return None
    text = f"{kind.__module__}.{kind.__qualname__}: {_message(error)}"
    if _MEMORY.search(text):
        return WorkerFault("a job ran out of the device's memory", prefix="the job ran out of GPU memory")
    if not _OF_A_DEVICE.search(text):
        return None
    if _BY_THE_DEVICE.search(text):
        why = f"the device failed: {_line(error)}"
        return WorkerFault(why, lost=True, retryable=True, prefix="the GPU failed while the job ran")
    if _BY_THE_HANDLER.search(text):
        return WorkerFault(f"its CUDA context is lost: {_line(error)}", lost=True)
    return None


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MESSAGE_MAX]
    except Exception:  # a handler's exception class may be broken in any way
        return ""


def _line(error: BaseException) -> str:
    return _message(error).strip().partition("\n")[0][:LINE_MAX]
