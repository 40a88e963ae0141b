# ruff: noqa: ASYNC240  # it looks at small folders
"""Everything that handlers do to the host, to the runtime and to themselves; and how each ends.

One row for each handler: the end of its worker's start or of its job, words that whoever reads the record
finds, and whether its worker lives on. In every case the next job on that node completes, on the same worker
where it lives, and once the worker is gone nothing of it is left. No test needs another one before it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stoker.wire.messages import Chunk, WorkerLimits
from tests.zoo.zoo_cases import MIB, Case, completes, dies, fails, name, of_a_job

pytestmark = pytest.mark.asyncio(loop_scope="module")

LITTLE = WorkerLimits(memory_bytes=96 * MIB)

NEVER_READY = [
    Case("starting/exits_at_import.py", "starting", "the handler called sys.exit(3)"),
    Case("starting/dies_at_import.py", "starting", "before it was ready: exited with code 3"),
    Case("starting/raises_in_setup.py", "starting", "the weights are not there", attribute="Handler"),
    Case("starting/does_not_parse.py", "starting", "SyntaxError"),
    Case("starting/not_a_handler.py", "starting", "not a function or a class"),
    Case("starting/takes_no_job.py", "starting", "must take the job"),
    Case("starting/never_ready.py", "starting", "was not ready within 0.5 s"),
    Case("starting/starves_at_import.py", "starting", "was not ready within 0.5 s"),
    Case("starting/daemonises_at_import.py", "starting", "before it was ready: exited with code 0"),
]

LIVES = [
    # what it returns
    fails("outputs/unserialisable.py", "items[3].x is a set, which JSON cannot hold"),
    fails("outputs/nan.py", "nan, which JSON cannot hold"),
    fails("outputs/returns_a_coroutine.py", "must be async"),
    fails("outputs/returns_itself.py", "nested too deeply, or holds itself"),
    fails("outputs/returns_surrogates.py", "lone surrogate"),
    completes("outputs/returns_a_generator.py"),
    completes("outputs/large_output.py", job_input={"size": 70 * MIB}),
    fails("files/file_outside.py", "outside the job's scratch folder"),
    fails("files/file_pipe.py", "is a named pipe"),
    completes("files/many_files.py", job_input={"files": 1000}),
    fails("files/many_files.py", "at most 1000 files", job_input={"files": 1001}),
    fails("files/sparse_file.py", "a partial output of 1099511627776 bytes is over the limit"),
    fails("files/sparse_file.py", "at most 256 GiB together", job_input={"as": "output"}),
    # how it ends
    fails("failing/raises.py", "the handler called sys.exit(7)", job_input={"kind": "exit"}),
    fails("failing/raises_interrupt.py", "KeyboardInterrupt"),
    fails("failing/raises_a_broken_error.py", "its message cannot be shown"),
    fails("failing/raises_much.py", "no no no"),
    fails("failing/recurses.py", "RecursionError"),
    fails("failing/hooks_exceptions.py", "caught by the runtime"),
    # what it prints and reads
    completes("printing/prints_binary.py"),
    completes("printing/prints_a_long_line.py", job_input={"size": 100 * MIB}),
    completes("printing/closes_stdout.py"),
    completes("printing/replaces_stdout.py"),
    fails("interfering/reads_stdin.py", "EOFError"),
    # what it leaves behind
    completes("leaving_behind/leaks_threads.py"),
    completes("leaving_behind/leaks_descriptors.py"),
    completes("leaving_behind/leaves_daemons.py"),
    completes("streams/emits_after_the_end.py"),
    completes("cancelling/hangs_at_exit.py"),
    completes("leaving_behind/leaves_tasks.py"),
    completes("files/changes_folder.py"),
    completes("files/makes_a_deep_folder.py"),
    completes("files/locks_its_scratch.py"),
    # what it does to its process
    completes("interfering/replaces_signals.py"),
    completes("interfering/patches_the_library.py"),
    completes("interfering/patches_sockets.py"),
    completes("starting/own_models_package/handler.py"),
    fails("leaving_behind/leaves_its_session.py", "PermissionError"),
    fails("interfering/runs_a_loop.py", "cannot be called from a running event loop"),
]

DIES = [
    dies("failing/crashes.py", "segmentation fault"),
    dies("failing/overflows_the_stack.py", "segmentation fault"),
    dies("failing/kills_itself.py", "killed"),
    dies("failing/kills_its_group.py", "killed"),
    dies("failing/leaves_at_once.py", "exited with code 0"),
    dies("interfering/forks_a_helper.py", "segmentation fault"),
    dies("interfering/closes_descriptors.py", "the worker died: exited with code 3"),
    dies("interfering/writes_to_the_socket.py", "broke the worker protocol"),
    dies("interfering/forges_frames.py", "it spoke of job another, which is not its own"),
    dies("failing/uses_all_memory.py", "memory", limits=WorkerLimits(memory_bytes=256 * MIB)),
    *(
        dies(
            "leaving_behind/keeps_in_memory.py",
            "out of memory (limit 96 MiB)",
            job_input=job_input,
            limits=LITTLE,
        )
        for job_input in (
            {"where": where, "size": 160 * MIB, "wait": True} for where in ("memfd", "shm, open", "map")
        )
    ),
    Case("interfering/stops_the_loop.py", "failed", "CancelledError"),
    # what no cancel reaches
    Case("cancelling/ignores_cancel.py", "cancelled", does="is cancelled"),
    Case("cancelling/ignores_sigterm_in_c.py", "cancelled", does="is cancelled"),
    Case("leaving_behind/leaves_a_child.py", "cancelled", does="is cancelled"),
    Case("cancelling/sleeps_in_finally.py", "cancelled", does="is cancelled"),
    Case("cancelling/swallows_cancel.py", "cancelled", does="is cancelled"),
    Case("cancelling/swallows_cancelled_error.py", "cancelled", does="is cancelled"),
    Case("cancelling/blocks_the_loop.py", "timed_out", "executionTimeout", does="times out"),
    Case("cancelling/stops_itself.py", "timed_out", "executionTimeout", does="times out"),
]

LARGE = [
    completes("printing/floods_stdout.py", job_input={"size": 1024 * MIB}),
    completes("outputs/large_output.py", job_input={"size": 500 * MIB}),
]


@pytest.mark.parametrize("case", NEVER_READY, ids=name)
async def test_workers_that_never_are_ready(zoo: Any, case: Case) -> None:
    waits = "not ready within" in case.message
    spec = await zoo.cage(case, start_timeout_s=0.5 if waits else 30.0)
    reported = await zoo.reported(spec)
    assert reported.state == case.end
    assert case.message in reported.reason
    await zoo.next_job()
    await zoo.free(spec)
    zoo.nothing_is_left()


@pytest.mark.parametrize("case", LIVES, ids=name)
async def test_workers_that_live_on(zoo: Any, case: Case) -> None:
    await of_a_job(zoo, case)


@pytest.mark.parametrize("case", DIES, ids=name)
async def test_workers_that_are_replaced(zoo: Any, case: Case) -> None:
    await of_a_job(zoo, case)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", LARGE, ids=name)
async def test_very_much_of_it(zoo: Any, case: Case) -> None:
    await of_a_job(zoo, case)


async def test_what_is_emitted_after_the_end_is_nobodys(zoo: Any) -> None:
    spec = await zoo.cage(Case("streams/emits_after_the_end.py", "completed"))
    await zoo.reported(spec)
    job = await zoo.begin(spec, {})
    assert (await zoo.end_of(job)).output == b'"over"'
    assert "is over; no chunk can be sent" in (await zoo.output(spec, "late"))[0]
    assert zoo.control.about(Chunk, job) == []
    await zoo.free(spec)


@pytest.mark.parametrize(
    "file", ["leaving_behind/leaves_settings.py", "leaving_behind/leaves_settings_async.py"]
)
@pytest.mark.parametrize("how", ["change", "change and fail"])
async def test_what_a_job_changes_of_its_process_is_put_back_before_the_next(
    zoo: Any, file: str, how: str
) -> None:
    spec = await zoo.cage(Case(file, "completed"))
    await zoo.reported(spec)
    before, pid = await zoo.output(spec, "look"), await zoo.output(spec, "pid")
    await zoo.end_of(await zoo.begin(spec, how))
    assert await zoo.output(spec, "look") == before
    assert await zoo.output(spec, "pid") == pid
    await zoo.free(spec)


async def test_an_alarm_that_rings_on_and_on_ends_with_its_job(zoo: Any) -> None:
    spec = await zoo.cage(Case("leaving_behind/leaves_settings.py", "completed"))
    await zoo.reported(spec)
    for _ in range(20):
        assert (await zoo.end_of(await zoo.begin(spec, "ring at the end"))).end in ("completed", "failed")
        assert (await zoo.output(spec, "look"))["timer"] == 0
    assert zoo.lived_on(spec)
    await zoo.free(spec)


async def test_what_it_writes_elsewhere_goes_with_it_or_stays_as_it_was(zoo: Any, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    spec = await zoo.cage(Case("files/writes_outside.py", "completed"))
    await zoo.reported(spec)
    output = await zoo.output(spec, {"others": str(tmp_path), "tries": []})
    home = output["home"]
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(home) == ["left"]
    await zoo.free(spec)
    assert not os.path.exists(home)
    zoo.nothing_is_left()
