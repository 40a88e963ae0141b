"""The running attempt: what the agent holds of it (payloads, open files, times), its outcome, and its cost.

The cost is in integers: billionths of a US dollar, never a rounded float. Two kinds of spans: `execution`
(device milliseconds, for however it ended) and `output` (what the handler measured, only when the attempt
completed). `output.cost` is shown for prices of an output alone.

    1024 x 1024 pixels at 20 nano-USD = 20,971,520 nano-USD = 0.02097152 USD
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from stoker.agent.alarm import Alarm
from stoker.agent.host.logs import attempt_log
from stoker.agent.host.logs.tail import Line, TailListener
from stoker.agent.jobs.attempts.chunk_stream import ChunkStream
from stoker.agent.jobs.attempts.events import Verdict
from stoker.agent.jobs.attempts.paced_saves import PacedSaves
from stoker.agent.jobs.attempts.states import State, Waiting
from stoker.agent.jobs.attempts.worker_events import TEXT_MAX, HandlerViolation
from stoker.agent.jobs.inputs.fetches import Fetches
from stoker.agent.jobs.inputs.kept_pages import KeptPages
from stoker.agent.jobs.uploads import outputs
from stoker.agent.jobs.uploads.payloads import OUTPUT_MAX, Payload
from stoker.agent.worker_frames import BrokenProtocol, Done
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import Assign, AttemptKey, Grant, Outcome, Price, Span
from stoker.wire.object_keys import attempt_prefix
from stoker.worker.frames import Frame

DEVICE_MS = "device_ms"
NANO = 1_000_000_000


class RunningAttempt(Struct):
    """Times are in seconds of the loop's clock. `output_with_error` is what the handler returned together
    with its error. `ran_with_others`: others ran on the worker when its device's context was lost. `unclean`
    is what a stopped job left in its device's memory; None until that was measured. `chunk_count` is how
    many chunks of the job there are, `saved_upto` how many of them its last save covers, `save_count` how
    many saves it has sent. `saved` is the state that it goes on from; `gives_kept`: control gives back the
    chunks that it covers. `case` is what its worker noted for the case of the job. `asked_to_yield` is why it
    was asked to yield; None until then."""

    key: AttemptKey
    assign: Assign
    worker: Worker
    arrived: float
    state: State
    alarm: Alarm
    scratch: str = ""
    started: float | None = None
    ended: float | None = None
    input: bytes | None = None
    payload: Payload = field(default_factory=Payload)
    spans: tuple[Span, ...] = ()
    transfer: asyncio.Task[None] | None = None
    stream: ChunkStream | None = None
    paced: PacedSaves | None = None
    fetches: Fetches | None = None
    gives_kept: bool = False
    kept: KeptPages | None = None
    printed: TailListener | None = None
    log: tuple[Line, ...] = ()
    log_first: int = 0
    output_with_error: bytes | None = None
    ran_with_others: bool = False
    chunk_count: int = 0
    saved_upto: int = 0
    save_count: int = 0
    saved: bytes | None = None
    case: bytes = b""
    unclean: str | None = None
    asked_to_yield: str | None = None

    @property
    def sent_ahead(self) -> bool:
        """Returns whether the attempt waits, and its run is in the worker's socket, or the worker has begun
        it."""
        return isinstance(self.state, Waiting) and self.state.sent

    def run_frame(self, *, ahead: bool = False) -> Frame:
        """Returns the frame that runs the attempt. `ahead`: the frame is sent before its turn."""
        assign = self.assign
        fields: dict[str, object] = {"job": assign.job, "attempt": assign.attempt, "scratch": self.scratch}
        more = {} if assign.files_grant is None else self.bucket(assign.files_grant)
        if assign.traceparent:
            more["traceparent"] = assign.traceparent
        if assign.keeps_case:
            more["case"] = True
        if assign.stop_after:
            more["stop_after"] = assign.stop_after
        body = self.input or b"null"
        if assign.saved is not None:
            kept = {"kept": True} if self.gives_kept else {}
            more["saved"] = {"upto": assign.saved.upto, "input": len(body), **kept}
            body += assign.saved.state if self.saved is None else self.saved
        if more:
            fields["more"] = more
        if ahead:
            fields["ahead"] = True
        return Frame("run", fields, body)

    def bucket(self, own: Grant) -> dict[str, object]:
        """Returns the caller's own bucket, as the handler gets it."""
        bucket: dict[str, object] = {
            "accessId": own.access_id,
            "accessSecret": own.access_secret,
            "bucketName": own.bucket,
            "endpointUrl": own.endpoint_url,
        }
        assign = self.assign
        attempts = attempt_prefix(self.worker.spec.endpoint, assign.job, assign.attempt)
        if own.region:
            bucket["region"] = own.region
        if folder := own.prefix.removesuffix(attempts).strip("/"):
            bucket["objectPath"] = folder
        return {"s3Config": bucket}

    def keep_log(self, first: int, lines: Sequence[Line]) -> None:
        """Keeps what it printed, from the line `first` on, for its outcome."""
        own = self.own_lines(lines)
        last = attempt_log.last_lines([line.text for line in own], self.worker.secrets)
        times = [line.at_ms for line in own[len(own) - len(last) :]]
        self.log = tuple(map(Line, times, last))
        self.log_first = first + len(lines) - len(self.log)

    def own_lines(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Returns the lines without those that a protocol worker marks as another job's."""
        if self.worker.spec.kind != "protocol":
            return lines
        return [line for line in lines if attempt_log.job_of(line.text) in (None, self.assign.job)]

    def close(self) -> None:
        """Stops its transfers, and closes its files."""
        if self.payload.files or self.payload.output_file is not None:
            self.payload.close()
        if self.stream is not None:
            self.stream.abandon()
        if self.paced is not None:
            self.paced.drop()
        self.stop_requests()

    def stop_requests(self) -> None:
        """Stops what its handler asked for: no answer is sent any more."""
        if self.fetches is not None:
            self.fetches.stop()
        if self.kept is not None:
            self.kept.stop()

    def collect(self, done: Done) -> bool:
        """Puts the result together; returns whether it has to be uploaded.

        Raises HandlerViolation or BadOutput when it cannot be delivered, and BrokenProtocol for what no
        runtime sends.
        """
        payload, prices = self.payload, self.assign.prices
        received = len(payload.files)
        if done.files != received or (done.in_file and received != 1):
            raise BrokenProtocol(
                f"done announces {done.files} files of job {self.assign.job}, and {received} came"
            )
        payload.output = done.body if done.has_output else None
        if done.in_file:
            payload.output, (payload.output_file,) = None, payload.files.values()
            payload.files.clear()
            if payload.output_file.size > TEXT_MAX:
                size = payload.output_file.size
                raise HandlerViolation(
                    f"an output of {size} bytes is over the limit of {TEXT_MAX}; return a File"
                )
        if prices and has_output_price(prices):
            self.spans, nano_usd = output_cost(prices, done.metrics)
            payload.cost_usd = in_usd(nano_usd) if self.spans else None
        large = payload.output_file is not None or len(payload.output or b"") > OUTPUT_MAX
        upload = bool(payload.files) or large
        if payload.files:
            outputs.finished(payload.output, dict.fromkeys(payload.files, ""), None)
        elif not upload and payload.cost_usd is not None:
            payload.output = outputs.finished(payload.output, {}, payload.cost_usd)
        if upload and self.assign.grant is None:
            raise HandlerViolation("the result needs an object store, and the job came with none")
        return upload

    def outcome(self, verdict: Verdict) -> Outcome:
        assign, payload = self.assign, self.payload
        completed = verdict.end == "completed"
        wait_ms = execution_ms = 0
        if self.started is not None:
            wait_ms = round((self.started - self.arrived) * 1000)
            execution_ms = round(((self.ended or self.started) - self.started) * 1000)
        spans = self.spans if completed else ()
        device_ms = execution_ms * len(self.worker.spec.devices)
        if device_ms > 0:  # it ran, and on a device
            price = sum(price.nano_usd for price in assign.prices if price.metric == DEVICE_MS)
            spans = (Span("execution", DEVICE_MS, device_ms, device_ms * price), *spans)
        return Outcome(
            assign.job,
            assign.attempt,
            assign.worker,
            verdict.end,
            output=payload.output if completed else self.output_with_error,
            output_ref=payload.output_ref if completed else None,
            error=verdict.error,
            retryable=verdict.retryable,
            wait_ms=wait_ms,
            execution_ms=execution_ms,
            spans=spans,
            artifacts=tuple(payload.uploaded[n] for n in sorted(payload.uploaded)) if completed else (),
            log=tuple(line.text for line in self.log),
            log_first=self.log_first,
            log_at_ms=tuple(line.at_ms for line in self.log),
            save_gone=verdict.save_gone,
            case=b"" if completed else self.case,
        )


def output_cost(prices: Sequence[Price], metrics: Mapping[str, int]) -> tuple[tuple[Span, ...], int]:
    """Returns a span for each priced metric, and their sum in nano-USD. An unmeasured metric is absent, not
    0.

    A bill knows an attempt's spans by their kind: with several output prices the metric is part of it.
    """
    priced = [price for price in prices if price.metric != DEVICE_MS]
    spans = tuple(
        Span(_kind(price, priced), price.metric, quantity, quantity * price.nano_usd)
        for price in priced
        if (quantity := metrics.get(price.metric)) is not None
    )
    return spans, sum(span.nano_usd for span in spans)


def _kind(price: Price, priced: Sequence[Price]) -> str:
    return "output" if len(priced) == 1 else f"output:{price.metric}"


def has_output_price(prices: Sequence[Price]) -> bool:
    return any(price.metric != DEVICE_MS for price in prices)


def in_usd(nano_usd: int) -> float:
    """Returns the float nearest to the exact amount: one division, correctly rounded."""
    return nano_usd / NANO
