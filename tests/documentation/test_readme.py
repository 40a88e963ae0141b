"""The README's table beside other projects: each line of it has tests that would fail if it were untrue."""

from __future__ import annotations

import ast

import pytest

from tests.documentation.command_lines import ROOT

SHOWN_BY = {
    "runs on your own hosts": ["system/test_joining.py::test_a_node_that_is_seen_connected_stays_so"],
    "accepted jobs outlive a `kill -9` of the server": [
        "system/faults/test_kills.py::test_a_queued_job_survives_the_death_of_everything",
        "system/test_postgres.py::test_a_killed_control_finds_its_jobs_again",
    ],
    "a worker that dies: its job runs again": [
        "system/faults/test_kills.py::test_a_killed_handler_is_replaced_and_its_job_tried_again",
    ],
    "a time limit ends native code that hangs": [
        "system/faults/test_stopping.py::"
        "test_a_handler_stuck_in_native_code_ends_timed_out_and_the_next_job_completes",
    ],
    "a cancel ends native code that hangs": [
        "system/faults/test_stopping.py::test_a_cancel_ends_native_code_and_the_next_job_completes",
    ],
    "a GPU that fails while it runs takes no more jobs": [
        "system/faults/test_gpu_off_the_bus.py::test_a_gpu_that_falls_off_the_bus_loses_its_job_to_another",
        "agent/host/devices/test_workers_of_unhealthy_devices.py::"
        "test_nothing_is_started_on_an_unhealthy_device",
    ],
    "from zero workers, requests wait for the first": [
        "control/scheduling/test_worker_scaling.py::test_from_zero_to_three_and_back",
    ],
    "partial output that a reader resumes after a cut": [
        "client/test_events.py::test_a_broken_connection_is_resumed_where_it_broke",
        "cli/jobs/test_job_commands.py::test_stream_gives_chunks_only_and_goes_on_from_an_event",
    ],
    "webhooks with a signature": [
        "system/test_webhooks.py::test_a_receiver_gets_the_record_and_can_check_who_sent_it",
    ],
    "the same submission twice makes one job": [
        "control/http/calls/test_operations.py::test_an_idempotency_key_makes_one_job",
    ],
    "cost of each job, bills by endpoint and GPU": [
        "system/test_bills.py::test_bills_add_up_after_a_thousand_jobs_with_kills",
    ],
    "a page, and metrics for Prometheus": [
        "system/page/test_playground.py::test_the_link_signs_in_once_and_a_prompt_becomes_a_picture",
        "system/test_prometheus.py::test_it_scrapes_evaluates_and_rings",
    ],
}


def lines_of_the_table() -> list[str]:
    _, _, after = (ROOT / "README.md").read_text().partition("## What you get\n\n")
    table = after.partition("\n\n")[0].splitlines()
    return [line.split("|")[1].strip() for line in table[2:]]


def test_each_line_is_shown_by_a_test() -> None:
    assert lines_of_the_table() == list(SHOWN_BY)


@pytest.mark.parametrize("test", [test for tests in SHOWN_BY.values() for test in tests])
def test_the_tests_exist(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert name in {each.name for each in functions}
