"""What the stock worker is known to do, row by row, and the test that runs into it; and the rows that have no
better place."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

STOCK, SERVER, TEXTS, OLDER = (
    "test_stock_worker.py",
    "test_server.py",
    "test_texts.py",
    "test_older_versions.py",
)
SYSTEM, HERE = "../../../system/workers/test_protocol_workers.py", "test_rows.py"

JOB_DONE = {
    "returns a dict, a text, a list, a bool, None": (STOCK, "test_what_a_handler_returns"),
    "returns {}": (STOCK, "test_what_a_handler_returns"),
    "returns an error beside a value": (STOCK, "test_errors_as_they_came"),
    "returns an error that is not text": (STOCK, "test_errors_as_they_came"),
    "raises": (STOCK, "test_errors_as_they_came"),
    "returns refresh_worker": (STOCK, "test_refresh_worker_by_what_is_returned_and_by_configuration"),
    "refresh_worker by configuration": (SYSTEM, "test_a_fresh_process_for_each_job_loses_none"),
    "a result that JSON cannot hold": (STOCK, "test_a_result_that_is_never_sent_is_noticed_at_the_next_take"),
    "a generator without aggregation": (STOCK, "test_a_generator_without_aggregation"),
    "a generator with it": (STOCK, "test_tokens_are_streamed_in_order_and_aggregated"),
    "a generator raises": (STOCK, "test_a_generator_that_raises"),
    "a generator yields an error": (STOCK, "test_a_generator_that_yields_an_error"),
    "progress, before the end and after it": (STOCK, "test_progress_comes_before_the_end_or_not_at_all"),
    "a job that was cancelled sends nothing": (
        STOCK,
        "test_an_async_handler_is_stopped_and_its_neighbours_go_on",
    ),
    "--rp_debugger": (HERE, "test_the_debuggers_report_is_part_of_the_output"),
    "every body, as bytes": (TEXTS, "test_every_row_of_job_done"),
}

DELIVERY = {
    "200: once": (SERVER, "test_a_result_twice_counts_once"),
    "400 and 404 lose a result: never given": (
        SERVER,
        "test_results_of_jobs_that_are_not_open_are_taken_and_ignored",
    ),
    "503 loses it at the third: never given, while control is away either": (
        SYSTEM,
        "test_a_result_outlives_an_outage_of_control",
    ),
    "a fast 204 is asked again at once: polls are held": (SERVER, "test_polls_end_with_204"),
    "a fast 4xx too: refused slowly": (SERVER, "test_a_wrong_key_is_refused_slowly"),
    "who hangs up loses what comes late": (SERVER, "test_who_hangs_up_gets_no_job"),
    "SIGTERM while a take is held: the job would be lost": (
        SERVER,
        "test_sigterm_comes_before_the_polls_return",
    ),
    "SIGTERM with nothing to do waits for its polls": (HERE, "test_an_idle_program_leaves_at_once"),
    "SIGTERM while a handler runs": (STOCK, "test_sigterm_while_a_handler_runs_lets_it_finish"),
    "SIGTERM during its imports": (HERE, "test_a_program_that_is_stopped_while_it_imports"),
    "SIGKILL leaves its pinger": (HERE, "test_the_pinger_of_a_program_that_was_killed_from_outside"),
    "a synchronous handler hears of no cancel": (
        STOCK,
        "test_what_waits_can_be_cancelled_and_what_blocks_cannot",
    ),
    "an asynchronous one does": (SYSTEM, "test_an_async_handler_is_cancelled_and_its_worker_lives"),
    "what blocks is stopped by force": (SYSTEM, "test_a_blocked_handler_is_stopped_by_force"),
    "a lost result is noticed": (STOCK, "test_a_result_that_is_never_sent_is_noticed_at_the_next_take"),
    "the process ends in a job": (SYSTEM, "test_a_killed_program_is_replaced_and_its_job_runs_again"),
}

WIRE = {
    "the variables and templates": (TEXTS, "test_the_environment_of_the_protocol"),
    "what is declared, but for the protocol": (
        TEXTS,
        "test_what_is_declared_wins_but_for_the_protocol_itself",
    ),
    "a clean home: no configuration wins over the key": (STOCK, "test_the_environment_of_a_worker"),
    "job-take": (SERVER, "test_a_take_is_held_until_a_job_comes"),
    "job-take-batch": (SERVER, "test_a_batch_is_a_list_within_its_size"),
    "job-stop": (SERVER, "test_a_stop_is_sent_at_once"),
    "job-stream": (SERVER, "test_a_large_chunk_is_answered_when_it_was_taken"),
    "job-done, whatever its headers say": (SERVER, "test_a_result_twice_counts_once"),
    "ping": (SERVER, "test_a_job_that_pings_no_longer_name_is_lost"),
    "ping: unhealthy": (SERVER, "test_an_unfit_program_reports_why"),
    "the key as it is, and with Bearer": (SERVER, "test_a_bearer_key_will_do"),
    "the job as it was sent": (STOCK, "test_the_job_as_the_handler_gets_it"),
    "versions that public workers pin": (OLDER, "test_jobs_of_one_worker_at_once"),
}


@pytest.mark.parametrize("row", [*JOB_DONE, *DELIVERY, *WIRE])
def test_every_row_has_its_test(row: str) -> None:
    file, name = {**JOB_DONE, **DELIVERY, **WIRE}[row]
    assert f"def {name}(" in (Path(__file__).parent / file).read_text()


# ---- rows without a better place


@pytest.mark.usefixtures("stock")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_debuggers_report_is_part_of_the_output(host: Any) -> None:
    program = host.start("mixed.py", arguments=("--rp_debugger",))
    await program.ready()
    output = await program.output({"do": "return", "value": {"a": 1}})
    assert (output["a"], set(output)) == (1, {"a", "rp_debugger"})
    program.process.kill()
    await program.exited()


@pytest.mark.usefixtures("stock")
@pytest.mark.asyncio(loop_scope="module")
async def test_an_idle_program_leaves_at_once(host: Any) -> None:
    """Its polls are answered: otherwise it would go when they are over, half a minute later."""
    program = host.start("mixed.py")
    await program.ready()
    assert await program.output({"do": "return", "value": 1}) == 1
    program.process.terminate()
    ended = await program.until(lambda: program.exit, within_s=20)
    assert ended.status == 0


@pytest.mark.usefixtures("stock")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_program_that_is_stopped_while_it_imports(host: Any) -> None:
    """Before it has a handler for signals: it dies of it, and there is nothing to lose."""
    program = host.start("mixed.py")
    program.process.terminate()
    ended = await program.exited()
    assert ended.reason == "stopped by the agent (SIGTERM)"
    assert program.frames == []


@pytest.mark.usefixtures("stock")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_pinger_of_a_program_that_was_killed_from_outside(host: Any) -> None:
    program = host.start("mixed.py")
    await program.ready()
    pid = json.loads((await program.end(program.run({"do": "pid"}))).body)
    family = psutil.Process(pid).children(recursive=True)
    assert family
    os.kill(pid, signal.SIGKILL)
    assert (await program.exited()).status == -signal.SIGKILL
    assert [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
