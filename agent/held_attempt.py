"""What the shell holds of one attempt (payloads, open files, times), and what it reports of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.agent import attempt_log, cost, outputs
from stoker.agent.alarm import Alarm
from stoker.agent.attempt import State
from stoker.agent.attempt_events import Tail, Verdict
from stoker.agent.handler_news import BrokenPromise, metrics_of
from stoker.agent.input_fetches import Fetches
from stoker.agent.piece_stream import PieceStream
from stoker.agent.seams import Listener
from stoker.agent.uploads import OUTPUT_MAX, Parcel
from stoker.agent.workers import Worker
from stoker.wire import names
from stoker.wire.messages import Assign, AttemptKey, Outcome, Span
from stoker.worker.frames import Frame


@dataclass(slots=True)
class Attempt:
    """Times are the loop's. `beside_error` is what the handler returned together with its error;
    `beside_others`: others ran on the worker when its device context was lost. `unclean` is what a stopped
    job left in its device's memory, in words; None until that is asked."""

    key: AttemptKey
    assign: Assign
    worker: Worker
    arrived: float
    state: State
    alarm: Alarm
    scratch: str
    started: float | None = None
    ended: float | None = None
    input: bytes | None = None
    parcel: Parcel = field(default_factory=Parcel)
    spans: tuple[Span, ...] = ()
    transfer: asyncio.Task[None] | None = None
    stream: PieceStream | None = None
    fetches: Fetches | None = None
    printed: Listener | None = None
    log: tuple[str, ...] = ()
    log_first: int = 0
    beside_error: bytes | None = None
    beside_others: bool = False
    unclean: str | None = None

    @property
    def execution_ms(self) -> int:
        if self.started is None:
            return 0
        return round(((self.ended or self.started) - self.started) * 1000)

    @property
    def wait_ms(self) -> int:
        return 0 if self.started is None else round((self.started - self.arrived) * 1000)

    @property
    def tail(self) -> Tail:
        return "" if self.stream is None else self.stream.tail

    @property
    def more(self) -> dict[str, object]:
        """What a protocol worker gets beside the input: the caller's bucket, where it uploads by itself."""
        own = self.assign.files_grant
        if own is None or self.worker.spec.kind != "protocol":
            return {}
        bucket = {
            "accessId": own.access_id,
            "accessSecret": own.access_secret,
            "bucketName": own.bucket,
            "endpointUrl": own.endpoint_url,
        }
        assign = self.assign
        attempts = names.attempt_prefix(self.worker.spec.endpoint, assign.job, assign.attempt)
        if folder := own.prefix.removesuffix(attempts).strip("/"):
            bucket["objectPath"] = folder
        return {"more": {"s3Config": bucket}}

    def begin(self, at: float) -> None:
        """It goes to its worker now."""
        self.started = at
        for grant in (self.assign.grant, self.assign.files_grant):
            if grant is not None:
                self.worker.secrets.add(grant.access_secret)
        self.printed = self.worker.listen()

    def leave(self, at: float) -> None:
        """It is no longer at its worker; what it printed there is kept. `ended` may be known already."""
        self.ended = self.ended or at
        if self.printed is not None:
            first, lines = self.printed.lines()
            self.log = attempt_log.shown(self.own(lines), self.worker.secrets)
            self.log_first = first + len(lines) - len(self.log)
        self.printed = None

    def own(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines but for those that a protocol worker marks as another job's."""
        if self.worker.spec.kind != "protocol":
            return lines
        return [line for line in lines if attempt_log.job_of(line) in (None, self.assign.job)]

    def close(self) -> None:
        """Whatever is still on its way is given up; open files go."""
        self.parcel.close()
        if self.stream is not None:
            self.stream.abandon()
        if self.fetches is not None:
            self.fetches.stop()

    def keep_beside_error(self, frame: Frame) -> None:
        """What a handler returned together with its error, as far as a record can hold it."""
        if frame.body and len(frame.body) <= OUTPUT_MAX:
            self.beside_error = frame.body

    def collect(self, frame: Frame) -> bool:
        """Puts together what the handler made; returns whether it has to go through the object store.

        Raises BrokenPromise or BadOutput when it cannot be delivered, ever.
        """
        parcel, prices = self.parcel, self.assign.prices
        parcel.output = frame.body if frame.fields.get("has_output", True) else None
        announced, handed = frame.number("files", 0), len(parcel.files)
        if announced != handed:
            raise BrokenPromise(f"the handler announced {announced} files and handed over {handed}")
        if frame.fields.get("in_file") is True:
            if handed != 1:
                raise ValueError(f"an output in a file, with {handed} files")
            parcel.output, (parcel.output_file,) = None, parcel.files.values()
            parcel.files.clear()
        if cost.has_output_price(prices):
            self.spans, nano_usd = cost.output_cost(prices, metrics_of(frame))
            parcel.cost_usd = cost.in_usd(nano_usd) if self.spans else None
        large = parcel.output_file is not None or len(parcel.output or b"") > OUTPUT_MAX
        upload = bool(parcel.files) or large
        if parcel.files:
            outputs.finished(parcel.output, dict.fromkeys(parcel.files, ""), None)
        elif not upload:
            parcel.output = outputs.finished(parcel.output, {}, parcel.cost_usd)
        if upload and self.assign.grant is None:
            raise BrokenPromise("the result needs an object store, and the job came with none")
        return upload

    def outcome(self, verdict: Verdict) -> Outcome:
        assign, parcel = self.assign, self.parcel
        completed = verdict.end == "completed"
        spans = cost.execution_span(assign.prices, self.execution_ms, len(self.worker.spec.devices))
        return Outcome(
            assign.job,
            assign.attempt,
            assign.worker,
            verdict.end,
            output=parcel.output if completed else self.beside_error,
            output_ref=parcel.output_ref if completed else None,
            error=verdict.error,
            retryable=verdict.retryable,
            wait_ms=self.wait_ms,
            execution_ms=self.execution_ms,
            spans=spans + self.spans if completed else spans,
            artifacts=parcel.artifacts if completed else (),
            log=self.log,
            log_first=self.log_first,
        )
