"""The states of a job, and the moves between them. Pure data.

                  claim, resume
      IN_QUEUE --------------------> IN_PROGRESS
        ^  ^   retry, refuse, lose, drop   |
        |  +-------------------------------+
        |
        |   either ----- end -------> COMPLETED, FAILED, TIMED_OUT, CANCELLED
        |   either ----- give_up ---> FAILED
        |   either ----- cancel ----> CANCELLED
        |   either ----- wait_over -> TIMED_OUT
        |   IN_QUEUE --- purge -----> CANCELLED
        +-- reopen ----- FAILED, TIMED_OUT
            any -------- expire ----> deleted

- Only a claim raises `attempt`, and nothing lowers it.
- An attempt is *open* while a node may still end it: from its claim until its end, refusal or drop, also in
  the queue after the node was lost. Messages about any other attempt, or from another node, change nothing.
- The first end wins. A terminal state is final, except that it expires, and that the caller may retry the
  job. A retry resets all counts but `attempt`, and does not lengthen the ttl.
- A job that lies ahead of a worker (`control.rules.queueing.ahead`) is IN_PROGRESS here, and in the queue to
  its caller: a purge cancels it, too.
- `lost` ends, lost nodes and errors that were raised as retryable count towards `max_attempts`, a handler's
  other errors towards `handler_retries`; refusals, attempts that their node does not hold, and attempts that
  were not sent, towards neither. A lost node counts when the job is claimed again: until then the node may
  come back and resume. It does not count for a job that lay ahead of a worker there, as far as this process
  knew.

The store makes the moves as SQL statements, whose guards are generated from `MOVES`; `control.rules.retries`
decides what is tried again. A model in the tests makes the same moves in memory, and the store is compared
with it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

PURGED = "purged"
"""The reason of a job that was cancelled by a purge."""


class JobState(StrEnum):
    IN_QUEUE = "IN_QUEUE"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED})


class Move(Struct, frozen=True):
    """A move of a job from some states to others. `open`: the message must be about the current attempt, and
    from the node that holds it."""

    sources: frozenset[JobState]
    targets: frozenset[JobState]
    open: bool = False


_Q, _P = JobState.IN_QUEUE, JobState.IN_PROGRESS

MOVES: dict[str, Move] = {
    "claim": Move(frozenset({_Q}), frozenset({_P})),
    "resume": Move(frozenset({_Q}), frozenset({_P}), open=True),
    "end": Move(frozenset({_P, _Q}), TERMINAL, open=True),
    "retry": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "refuse": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "lose": Move(frozenset({_P}), frozenset({_Q}), open=True),
    "drop": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "give_up": Move(frozenset({_P, _Q}), frozenset({JobState.FAILED}), open=True),
    "cancel": Move(frozenset({_P, _Q}), frozenset({JobState.CANCELLED})),
    "wait_over": Move(frozenset({_P, _Q}), frozenset({JobState.TIMED_OUT})),
    "purge": Move(frozenset({_Q}), frozenset({JobState.CANCELLED})),
    "reopen": Move(frozenset({JobState.FAILED, JobState.TIMED_OUT}), frozenset({_Q})),
    "expire": Move(frozenset(JobState), frozenset()),
}
