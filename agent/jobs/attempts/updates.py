"""Updates that a handler sends while its job runs: progress, chunks of output, files, saves, and requests for
inputs and for chunks that were kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from stoker.agent import worker_frames
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.attempts.attempt_context import AttemptContext
from stoker.agent.jobs.attempts.chunk_stream import ChunkStream, Piece, StreamContext
from stoker.agent.jobs.attempts.paced_saves import PacedSaves
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.attempts.worker_events import (
    check_save,
    checked_chunk,
    checked_file,
    discard,
    is_large,
    taken_frame,
)
from stoker.agent.jobs.inputs.fetches import Fetches
from stoker.agent.jobs.inputs.kept_pages import KeptPages
from stoker.wire.messages import CASE_MAX, Chunk, Progress
from stoker.worker.frames import CHUNK_INLINE_MAX

log = logging.getLogger(__name__)


class Updates:
    """The receiver of updates. `step` passes an event to the attempt's machine."""

    def __init__(self, context: AttemptContext, step: Callable[[RunningAttempt, ev.Event], None]) -> None:
        self._reports, self._objects, self._scratch = context.reports, context.objects, context.scratch
        self._inputs, self._kept, self._spawn = context.inputs, context.kept, context.spawn
        self._step = step

    def take(self, attempt: RunningAttempt, message: worker_frames.JobMessage) -> None:
        """Raises HandlerViolation, BadOutput or BrokenProtocol; no descriptor of the message is open then."""
        match message:
            case worker_frames.Progress(body=body) if len(body) > CHUNK_INLINE_MAX:
                log.warning("a progress value of %d bytes is left out; the limit is 1 MB", len(body))
            case worker_frames.Progress(body=body):
                self._reports.add(Progress(attempt.key.job, attempt.key.attempt, body))
            case worker_frames.Case(body=body):
                attempt.case = body if attempt.assign.keeps_case and len(body) <= CASE_MAX else b""
            case worker_frames.Chunk():
                self._chunk(attempt, message)
            case worker_frames.Save():
                self._save(attempt, message)
            case worker_frames.File():
                files = attempt.payload.files
                try:
                    files[message.n] = checked_file(message, files, partial(self._scratch.check, attempt.key))
                except BaseException:
                    discard(attempt.worker, message)
                    raise
            case worker_frames.Fetch():
                if attempt.fetches is None:
                    private, own = attempt.assign.private_inputs, attempt.assign.grant
                    send = attempt.worker.send
                    attempt.fetches = Fetches(
                        attempt.key, self._inputs, self._spawn, send, private=private, own=own
                    )
                attempt.fetches.begin(message)
            case worker_frames.Kept():
                self._give_back(attempt, message)

    def _give_back(self, attempt: RunningAttempt, message: worker_frames.Kept) -> None:
        """Raises BrokenProtocol for a chunk that no save covers."""
        if attempt.kept is None:
            saved, grant, send = attempt.assign.saved, attempt.assign.grant, attempt.worker.send
            upto = 0 if saved is None else saved.upto
            attempt.kept = KeptPages(attempt.key, upto, self._kept, self._objects, grant, self._spawn, send)
        attempt.kept.begin(message)

    def _chunk(self, attempt: RunningAttempt, chunk: worker_frames.Chunk) -> None:
        large, grant = is_large(chunk), attempt.assign.grant
        check = partial(self._scratch.check, attempt.key)
        try:
            body = checked_chunk(chunk, attempt.chunk_count, storable=grant is not None, check=check)
        except BaseException:
            discard(attempt.worker, chunk)
            raise
        attempt.chunk_count += 1
        if isinstance(body, bytes) and not large and attempt.stream is None:
            self._reports.add(Chunk(attempt.key.job, attempt.key.attempt, chunk.n, body))
        else:
            self._report(attempt, Piece(chunk.n, body), large=large)

    def _save(self, attempt: RunningAttempt, save: worker_frames.Save) -> None:
        covers = range(attempt.saved_upto, attempt.chunk_count + 1)
        try:
            check_save(save, attempt.save_count, covers, storable=attempt.assign.grant is not None)
        except BaseException:
            discard(attempt.worker, save)
            raise
        attempt.save_count, attempt.saved_upto = attempt.save_count + 1, save.upto
        if not self._reports.saves:
            discard(attempt.worker, save)
            return
        piece = Piece(save.n, save.body, save.upto, attempt.worker.content)
        if is_large(save):
            if attempt.paced is not None:
                attempt.paced.flush()  # until the large one is stored, it is the newest
            self._report(attempt, piece, large=True)
            return
        if attempt.paced is None:
            attempt.paced = PacedSaves(lambda one: self._report(attempt, one, large=False))
        attempt.paced.add(piece)

    def _report(self, attempt: RunningAttempt, piece: Piece, *, large: bool) -> None:
        """Reports a chunk or a save, in the order in which they came; a large one once it is uploaded."""
        if large and attempt.stream is None:
            assert attempt.assign.grant is not None
            context = StreamContext(
                objects=self._objects,
                spawn=self._spawn,
                report=self._reports.add,
                on_taken=lambda one: attempt.worker.send(taken_frame(attempt.key, one.n, save=one.is_save)),
                hold=lambda paused: attempt.worker.hold(attempt.key, paused=paused),
                on_event=lambda event: self._step(attempt, event),
            )
            attempt.stream = ChunkStream(attempt.key, attempt.assign.grant, context)
        if attempt.stream is not None:
            attempt.stream.add(piece, large=large)
        else:
            self._reports.add(piece.report(attempt.key))
