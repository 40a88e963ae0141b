"""What the dispatch benchmark makes of wrk's words and of handlers' times."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from dispatch_load import Turn, Turns, idle_gaps_ms, milliseconds, refusals


def answer(pid: int, began: float, ended: float) -> str:
    return json.dumps({"status": "COMPLETED", "output": {"pid": pid, "began": began, "ended": ended}})


def test_a_gap_lies_between_two_jobs_of_one_worker(tmp_path: Path) -> None:
    """Answers come in any order."""
    answers = tmp_path / "answers"
    output = [answer(2, 0.5, 0.6), answer(1, 1.25, 1.5), answer(1, 0.0, 1.0), answer(2, 0.601, 0.7)]
    answers.write_text("\n".join(output) + "\n")
    assert idle_gaps_ms(answers) == pytest.approx([1.0, 250.0])


def test_workers_that_ran_one_job_each_have_no_gaps(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text(answer(1, 0.0, 1.0) + "\n" + answer(2, 0.0, 1.0) + "\n")
    with pytest.raises(SystemExit, match="no worker ran two jobs"):
        idle_gaps_ms(answers)


def test_refusals_are_counted_as_wrk_writes_them() -> None:
    assert (
        refusals(
            "  3008 requests in 2.00s, 645.75KB read\n  Non-2xx or 3xx responses: 5\nRequests/sec: 1502\n"
        )
        == 5
    )
    assert refusals("  3008 requests in 2.00s, 645.75KB read\nRequests/sec: 1502\n") == 0


@pytest.mark.parametrize(("text", "ms"), [("630.00us", 0.63), ("2.08ms", 2.08), ("1.01s", 1010.0)])
def test_durations_as_wrk_writes_them(text: str, ms: float) -> None:
    assert milliseconds(text) == pytest.approx(ms)


def test_figures_are_medians_of_turns() -> None:
    turns = Turns("x", 1, [Turn(n, n, 10 * n, 1, {"a": n, "b": 1.0}) for n in (1.0, 9.0, 2.0)])
    assert (turns.p50, turns.per_second, turns.cpu_us) == (2.0, 20.0, 3.0)
    assert turns.cpu_by_process == {"a": 2.0, "b": 1.0}
