"""The log of a container: parsed as engines write it, read again while somebody follows it, and followed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.logs.engine_log import AGAIN_S, EngineLog, FollowedLog, parse
from stoker.agent.host.logs.tail import Line
from stoker.agent.jobs.attempts.log_follow import LogFollow
from stoker.wire.messages import LogLines, log_of_worker
from tests.simulation.virtual_loop import VirtualLoop, run

NANO = 1_000_000_000
texts = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


def stamp(at_ns: int) -> str:
    whole = datetime.fromtimestamp(at_ns // NANO, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{at_ns % NANO:09}Z"


@given(st.lists(st.tuples(st.integers(1, 2**33 * NANO), texts)), st.integers(0, 2**33 * NANO))
def test_what_came_after_a_time_is_read_with_its_time(lines: list[tuple[int, str]], after: int) -> None:
    output = "".join(f"{stamp(at_ns)} {text}\n" for at_ns, text in lines).encode()
    assert [tuple(one) for one in parse(output, after)] == [one for one in lines if one[0] > after]


def test_both_engines_times_are_read() -> None:
    docker = b"2025-11-28T01:14:34.018000001Z from docker\n"
    podman = b"2025-11-28T03:14:34.5+02:00 from podman\n2025-11-28T01:14:35Z whole\nno time\n"
    at_ns = 1_764_292_474 * NANO
    assert parse(docker + podman, 0) == [
        (at_ns + 18_000_001, "from docker"),
        (at_ns + NANO // 2, "from podman"),
        (at_ns + NANO, "whole"),
    ]


def test_of_a_line_that_was_overwritten_the_last_version_counts() -> None:
    output = "2025-11-28T01:14:34Z 10%\r20%\r30%\n2025-11-28T01:14:35Z a\x0bb\u2028c\n".encode()
    assert [one.text for one in parse(output, 0)] == ["30%", "a\x0bb\u2028c"]


class Engine:
    """An engine whose container has printed `output`."""

    def __init__(self, output: bytes = b"") -> None:
        self.output = output
        self.asked: list[int | None] = []
        self.down = False

    async def read(self, since: int | None) -> bytes:
        self.asked.append(since)
        if self.down:
            raise RuntimeError("the engine is away")
        return self.output


def test_a_log_is_read_only_while_it_is_followed_and_each_line_once() -> None:
    async def story() -> None:
        engine, told = Engine(f"{stamp(5 * NANO)} one\n".encode()), 0
        printed = EngineLog(engine.read)

        def on_lines() -> None:
            nonlocal told
            told += 1

        await asyncio.sleep(5)
        assert engine.asked == []
        stop = printed.watch(on_lines)
        await asyncio.sleep(AGAIN_S / 2)
        assert printed.after(0) == (0, (Line(5000, "one"),))
        engine.output += f"{stamp(5 * NANO + 1_000_000)} two\n".encode()
        await asyncio.sleep(AGAIN_S)
        engine.down = True
        await asyncio.sleep(AGAIN_S)
        engine.down = False
        await asyncio.sleep(AGAIN_S)
        assert printed.after(0) == (0, (Line(5000, "one"), Line(5001, "two")))
        assert printed.after(1) == (1, (Line(5001, "two"),))
        assert printed.after(2) == (2, ())
        assert (told, engine.asked) == (2, [None, 5, 5, 5])
        stop()
        await asyncio.sleep(5)
        assert len(engine.asked) == 4

    run(VirtualLoop(1), story())


def test_control_gets_a_pods_lines_without_its_secrets() -> None:
    async def story() -> None:
        engine = Engine()
        key, sent = log_of_worker("pod1"), []
        logs = LogFollow({}, {})
        logs.pods = lambda pod: (
            FollowedLog(EngineLog(engine.read), ("hunter2-hunter2",)) if pod == "pod1" else None
        )
        logs.request([key, log_of_worker("pod2")])
        assert logs.take() is None, "what it has printed is not read yet"
        await asyncio.sleep(0.1)
        assert logs.take() == LogLines(None, "pod1", 0, 0, ()), "nothing, and control knows that"
        engine.output = f"{stamp(5 * NANO)} the key is hunter2-hunter2\n".encode()
        await asyncio.sleep(AGAIN_S)
        while (lines := logs.take()) is not None:
            sent.append(lines)
        (one,) = sent
        assert (one.first, one.at_ms) == (0, (5000,))
        assert "hunter2" not in one.lines[0]
        assert one.lines[0].startswith("the key is ")
        logs.request(())
        await asyncio.sleep(0)

    run(VirtualLoop(1), story())
