"""One job as an operator sees it, end to end: in a scrape, a trace, its attempts and a line of the log.

It has a prompt, a file, and a webhook whose receiver refuses it; nothing shows the prompt or a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker import __version__
from tests.servers.collector import Collector, Received, collector
from tests.system.stack import START_S, Stack, queue_endpoint, running, until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PROMPT = "a swordfish at dusk"
SECRET = "hf_opensesame"
PRIVATE_TOO = "allow_private_addresses = true\n"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stack, Collector]]:
    with collector() as to:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("STOKER_LOG_FORMAT", "json")
        section = queue_endpoint("echo", "files/tells_its_traceparent.py")
        section += f'env = {{ TOKEN = "{SECRET}" }}\n'
        with running(tmp_path, PRIVATE_TOO + section) as stack:
            yield stack, to


def spans_of(to: Collector, job: str) -> list[Received]:
    """The spans of the caller's trace, once the job's own is there."""
    found: list[Received] = []
    while not any(span.attributes.get("stoker.job") == job and span.name == "job" for span in found):
        found += to.next()
    while "POST /v2/{endpoint_id}/run" not in [span.name for span in found]:
        found += to.next()
    return [span for span in found if span.trace == TRACE]


def scraped(stack: Stack) -> tuple[str, dict[str, float]]:
    answer = stack.http.get(f"{stack.facts['http']}/metrics")
    assert answer.status_code == 200, answer.text
    families = text_string_to_metric_families(answer.text)
    found = {
        one.name: one.value
        for family in families
        for one in family.samples
        if one.labels.get("endpoint") == "echo" or one.labels.get("result") == "failed"
    }
    return answer.text, found


def lines_of(stack: Stack, job: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stack.log("control").splitlines()]
    return [line for line in found if line.get("job") == job]


def test_one_job_in_a_scrape_a_trace_its_attempts_and_a_line(seen: tuple[Stack, Collector]) -> None:
    stack, to = seen
    accepted = stack.http.post(
        "/echo/run",
        json={"input": {"prompt": PROMPT}, "webhook": f"{to.url}/hook"},
        headers={"traceparent": f"00-{TRACE}-{CALLER}-01", "X-Request-Id": "mine-7"},
    )
    job = accepted.json()["id"]
    ended = stack.end_of("echo", job)
    assert ended["status"] == "COMPLETED", ended

    spans = spans_of(to, job)
    names = {span.span: span.name for span in spans} | {CALLER: "the caller"}
    request = "POST /v2/{endpoint_id}/run"
    assert sorted((span.name, names[span.parent]) for span in spans) == [
        (request, "the caller"),
        ("assign", "attempt"),
        ("attempt", "job"),
        ("execute", "attempt"),
        ("job", request),
        ("queue", "job"),
        ("store", request),
        ("upload", "attempt"),
    ]
    by_name = {span.name: span for span in spans}
    assert ended["output"]["traceparent"] == f"00-{TRACE}-{by_name['execute'].span}-01"
    assert by_name[request].attributes["stoker.request"] == "mine-7"
    assert by_name["attempt"].attributes["stoker.worker"] == ended["workerId"]

    told = stack.http.get(f"/echo/attempts/{job}").json()
    (attempt,) = told["attempts"]
    assert (attempt["attempt"], attempt["worker"], attempt["end"]) == (1, ended["workerId"], "completed")
    assert attempt["node"] == by_name["attempt"].attributes["stoker.node"]
    moments = ("assignedAt", "startedAt", "uploadingAt", "endedAt")
    reached = [told["createdAt"], *(attempt[name] for name in moments), told["endedAt"]]
    assert reached == sorted(reached)

    until(lambda: bool(lines_of(stack, job)), START_S, "a line on the webhook that was refused")
    line = lines_of(stack, job)[0]
    assert (line["level"], line["logger"]) == ("warning", "stoker.control.jobs.webhooks")
    assert line["webhook"]

    logged = [json.loads(one)["message"] for one in stack.log("control").splitlines()]
    (start,) = [one for one in logged if one.startswith(f"stoker {__version__};")]
    data = stack.folder / "data"
    assert f"; database {data / 'stoker.db'}, object store http://127.0.0.1:" in start
    assert start.endswith(f", data folder {data}")

    of_agent = [json.loads(one) for one in stack.log("agent").splitlines()]
    assert {one.get("node") for one in of_agent} == {attempt["node"]}

    text, found = scraped(stack)
    assert found["stoker_jobs_ended_total"] == found["stoker_job_execution_seconds_count"] == 1
    assert found["stoker_webhook_tries_total"] >= 1
    shown = [text, *(body.decode("latin-1") for body in to.bodies), stack.log("control"), stack.log("agent")]
    for hidden in (PROMPT, SECRET, stack.key, stack.join):
        assert [hidden in one for one in shown] == [False] * len(shown), hidden
