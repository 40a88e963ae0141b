"""Whatever an agent sends is read, or refused in one of two ways; and the others are served."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import EndpointVersion
from stoker.wire import codec
from stoker.wire.codec import Decoder, WireError
from stoker.wire.messages import FromAgent, LogLines
from stoker.wire.streams import StreamEnded
from tests.control.plane_world import endpoint, one, world
from tests.profiles import examples
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.virtual_loop import run as run_story
from tests.wire.vocabulary import instances

TWO = EndpointVersion("/h/echo.py:handler", concurrency=2)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message of which some bytes are others, or missing."""
    data = bytearray(codec.WRITERS[FromAgent](draw(instances(FromAgent))).SerializeToString())
    for _ in range(draw(st.integers(0, 4))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@settings(max_examples=examples(40))
@given(st.lists(st.binary(max_size=300) | damaged(), max_size=3))
def test_bytes_are_a_message_or_break_the_stream(chunks: list[bytes]) -> None:
    session, logs = Decoder(FromAgent), Decoder(LogLines)
    with suppress(WireError):
        for chunk in chunks:
            whole = session.join(chunk)
            if whole is not None:
                assert isinstance(session.read(whole), FromAgent)
    for chunk in chunks:
        with suppress(WireError):
            assert isinstance(logs.read(chunk), LogLines)


def about(message: Any, own: dict[str, Any]) -> Any:
    """The same message about the node's own things, with all its other values."""
    if isinstance(message, tuple):
        return tuple(about(item, own) for item in message)
    if not isinstance(message, Struct):
        return message
    values = {name: about(value, own) for name, value in structs.asdict(message).items()}
    known = {name: value for name, value in own.items() if name in values}
    return structs.replace(message, **(values | known))


class Faults(logging.Handler):
    """What control could not deal with."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


async def _receive(messages: list[FromAgent], own: bool) -> None:
    async with world(endpoint(run=TWO, workers_min=1)) as (w, tasks):
        honest, other = w.agent(node="honest"), w.agent(node="other")
        await honest.connect(tasks)
        (worker,) = await honest.ready_workers()
        await other.connect(tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await honest.assigned()
        things = {"job": assign.job, "attempt": 1, "worker": worker, "endpoint": "echo", "owner": worker}
        speaker = honest if own else other
        for message in messages:
            reported = structs.replace(about(message, things), hello=None, draining=False)
            with suppress(StreamEnded):
                await speaker.stream.send(reported)
        await speaker.listen(5)
        if not own:
            job = await w.plane.commands.submit(w.echo, one(), sync=False)
            await honest.completes(await honest.assigned())
            assert (await w.plane.queries.wait(w.echo, job.id, 30)).state is JobState.COMPLETED


@settings(max_examples=examples(30))
@given(st.lists(instances(FromAgent), min_size=1, max_size=6), st.booleans())
def test_messages_of_hostile_values_change_nothing_of_others_and_break_nothing(
    messages: list[FromAgent], own: bool
) -> None:
    """About its own job and worker, or another's."""
    faults, log = Faults(), logging.getLogger("stoker.control")
    log.addHandler(faults)
    try:
        run_story(VirtualLoop(1), _receive(messages, own))
    finally:
        log.removeHandler(faults)
    assert faults.lines == []
