"""`stoker bill` against a scripted service: what it asks for, and the table to the billionth of a dollar."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stoker.cli.main import main
from stoker.cli.manage.bill import usd
from tests.cli.jobs.job_service import Service

RECORDS = [
    {
        "amount": 0.000000001,
        "diskSpaceBilledGb": 0,
        "endpointId": "sing",
        "time": "2026-03-30T00:00:00Z",
        "timeBilledMs": 9_000_000,
    },
    {
        "amount": 123456.123456788,
        "diskSpaceBilledGb": 0,
        "time": "2026-03-31T00:00:00Z",
        "timeBilledMs": 1_800_000,
    },
]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    with Service() as service:
        monkeypatch.setenv("STOKER_URL", service.url)
        service.says("endpoints", RECORDS)
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        yield service
        service.shutdown()
        thread.join()


def bill(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bill", *arguments])
    assert ended.value.code == code


def last_query(service: Service) -> tuple[str, dict[str, str]]:
    output = service.requests[-1][0]
    path = urlsplit(output.split(" ")[1])
    return path.path, {name: values[0] for name, values in parse_qs(path.query).items()}


def test_a_table_adds_up_to_the_last_digit(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    bill()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["from", "endpointId", "hours", "disk", "GB", "USD"],
        ["2026-03-30T00:00:00Z", "sing", "2.5000", "0", "0.000000001"],
        ["2026-03-31T00:00:00Z", "-", "0.5000", "0", "123456.123456788"],
        ["in", "all", "3.0000", "123456.123456789"],
    ]
    assert last_query(service) == ("/v1/billing/endpoints", {"bucketSize": "day", "grouping": "endpointId"})


def test_a_pipe_gets_lines_and_json_the_records(service: Service, capsys: Capture) -> None:
    bill("--by", "gpu")
    assert capsys.readouterr().out.splitlines()[0] == "2026-03-30T00:00:00Z\t-\t2.5000\t0\t0.000000001"
    bill("--json")
    assert json.loads(capsys.readouterr().out) == RECORDS


def test_the_options_reach_the_service(service: Service, capsys: Capture) -> None:
    service.says("pods", [])
    service.says("/v1/pods", [{"id": "p1x7"}, {"id": "p2"}])
    times = ("--since", "2026-01-01", "--until", "2026-02-01T12:00:00+01:00")
    bill("pod", "--by", "gpu", "--bucket", "month", "--id", "p1", *times)
    assert last_query(service) == (
        "/v1/billing/pods",
        {
            "bucketSize": "month",
            "grouping": "gpuTypeId",
            "podId": "p1x7",
            "startTime": "2026-01-01T00:00:00+00:00",
            "endTime": "2026-02-01T12:00:00+01:00",
        },
    )


def test_volumes_are_one_sum(service: Service, capsys: Capture) -> None:
    record = {"amount": 1.5, "diskSpaceBilledGb": 100, "time": "2026-01-01T00:00:00Z"}
    service.says("networkvolumes", [record])
    bill("volume", "--bucket", "year")
    assert capsys.readouterr().out == "2026-01-01T00:00:00Z\t100\t1.50\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("pod", "--by", "worker"),
            "--by worker is not possible for bills of pods; allowed: pod, gpu",
        ),
        (("volume", "--by", "gpu"), "allowed: none: all volumes are billed together"),
        (("volume", "--id", "v1"), "leave --id out"),
        (("--since", "yesterday"), "--since must be a date or a time, such as"),
    ],
)
def test_what_makes_no_sense_is_printed(
    service: Service, capsys: Capture, arguments: tuple[str, ...], message: str
) -> None:
    bill(*arguments, code=1)
    assert message in capsys.readouterr().err
    assert service.requests == []


def test_every_digit_and_cents_at_least() -> None:
    shown: dict[Any, str] = {
        "0": "0.00",
        "1.5": "1.50",
        "1E-9": "0.000000001",
        "1200": "1200.00",
        "0.1234": "0.1234",
    }
    assert {amount: usd(Decimal(amount)) for amount in shown} == shown
