"""Errors that callers receive when there is no response of a worker, and their HTTP statuses.

GatewayError
 ├─ NoWorkers 503        no worker was ready in time
 ├─ WorkerGone 404       the only worker that the request allows does not exist any more
 ├─ WorkerTimeout 400    the only worker that the request allows was not ready in time
 └─ UpstreamFailed 502   the worker's connection failed, or what it sent was no response
     ├─ Unanswered           a connection that was kept ended without a byte: the worker may have got nothing
     └─ UpstreamTimeout 504  the worker had not responded in time

No text has words of a worker or of a parser: a worker's bytes may be another caller's.
"""

from __future__ import annotations

from stoker.control.http.calls.answers import Answer, error_body, json_answer


class GatewayError(Exception):
    """The error of a request that no worker has answered. `code` is the `error` of the response's body, where
    the field has a word for it. `worker`: which one failed, if any was chosen."""

    worker = ""
    status = 502
    code = ""
    retry_after_s: int | None = None

    def answer(self) -> Answer:
        body = error_body(self.status, str(self))
        answer = json_answer(body | ({"error": self.code} if self.code else {}), self.status)
        if self.retry_after_s is None:
            return answer
        return Answer(answer.body, self.status, ((b"retry-after", b"%d" % self.retry_after_s),))


class NoWorkers(GatewayError):
    status = 503
    code = "no workers available"
    retry_after_s = 2


class WorkerGone(GatewayError):
    status = 404
    code = "affinity_worker_gone"


class WorkerTimeout(GatewayError):
    status = 400
    code = "worker_timeout"


class UpstreamFailed(GatewayError):
    status = 502

    def __init__(self, worker: str, message: str) -> None:
        super().__init__(f"worker {worker} {message}")
        self.worker = worker


class Unanswered(UpstreamFailed):
    """The request may be sent once more: it changes nothing at the worker, and has no body."""


class UpstreamTimeout(UpstreamFailed):
    status = 504
