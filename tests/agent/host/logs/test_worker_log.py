"""A worker's lines, through its processes: numbered from its first, and the last ones kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.logs.tail import KEPT, LogTail
from stoker.agent.host.logs.worker_log import WorkerLog

PROCESSES = st.lists(st.integers(0, 2 * KEPT), min_size=1, max_size=6)


def texts(log: WorkerLog, position: int) -> tuple[int, list[str]]:
    first, lines = log.after(position, whole=False)
    return first, [line.text for line in lines]


def run_to_end(log: WorkerLog, printed: list[str]) -> None:
    tail = LogTail()
    log.begin(tail)
    tail.feed("".join(f"{line}\n" for line in printed).encode())
    log.end()


def numbered(processes: list[int]) -> list[list[str]]:
    """By process: its lines, each the number that it is to have."""
    ends = [sum(processes[: n + 1]) for n in range(len(processes))]
    return [[str(n) for n in range(end - count, end)] for end, count in zip(ends, processes, strict=True)]


@given(PROCESSES, st.booleans(), st.data())
def test_a_line_keeps_its_number_and_no_line_is_missing_between_two(
    processes: list[int], last_runs: bool, data: st.DataObject
) -> None:
    log, total = WorkerLog(), sum(processes)
    *ended, last = numbered(processes)
    for printed in ended:
        run_to_end(log, printed)
    if last_runs:
        tail = LogTail()
        log.begin(tail)
        tail.feed("".join(f"{line}\n" for line in last).encode())
    else:
        run_to_end(log, last)
    position = data.draw(st.integers(0, total))
    first, lines = texts(log, position)
    assert lines == [str(n) for n in range(first, total)]
    assert position <= first
    assert len(lines) >= min(total - position, KEPT)


@given(PROCESSES)
def test_a_watcher_that_reads_whenever_it_is_called_misses_nothing(processes: list[int]) -> None:
    log, seen, positions = WorkerLog(), [], [0]

    def read() -> None:
        first, lines = log.after(positions[0])
        assert first == positions[0]
        positions[0] += len(lines)
        seen.extend(line.text for line in lines)

    stop = log.watch(read)
    for printed in numbered(processes):
        run_to_end(log, printed)
    assert seen == [str(n) for n in range(sum(processes))]
    stop()
    run_to_end(log, ["unwatched"])
    assert len(seen) == sum(processes)


def test_the_last_line_of_a_process_needs_no_end() -> None:
    log, tail = WorkerLog(), LogTail()
    log.begin(tail)
    tail.feed(b"Traceback")
    assert texts(log, 0) == (0, ["Traceback"])
    assert log.after(0) == (0, ())
    log.end()
    run_to_end(log, ["again"])
    assert texts(log, 0) == (0, ["Traceback", "again"])
    assert texts(log, 2) == (2, [])


def test_a_worker_without_a_process_has_printed_nothing() -> None:
    log = WorkerLog()
    log.end()
    assert log.after(0) == (0, ())
    log.watch(lambda: None)()
