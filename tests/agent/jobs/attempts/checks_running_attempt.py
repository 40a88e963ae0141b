"""What must hold of costs. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stoker.agent.jobs.attempts.events import COMPLETED, Verdict
from stoker.wire.messages import Assign, AttemptKey, Price, Span

PIXEL = Price("pixel", 20)


def billed(m: Any, prices: tuple[Price, ...], ms: int, devices: int, verdict: Verdict = COMPLETED) -> Any:
    """The spans of an attempt that ran for so long on so many devices, and measured 3 pixels."""
    worker = SimpleNamespace(spec=SimpleNamespace(devices=("gpu",) * devices))
    assign = Assign("j", 1, "w", prices=prices)
    attempt = m.RunningAttempt(AttemptKey("j", 1), assign, worker, 0.0, None, None, "")
    attempt.spans, _ = m.output_cost(prices, {"pixel": 3})
    attempt.started, attempt.ended = 1.0, 1.0 + ms / 1000
    return attempt.outcome(verdict).spans


def a_megapixel_costs_what_the_rule_says(m: Any) -> None:
    spans, nano = m.output_cost((PIXEL,), {"pixel": 1024 * 1024})
    assert spans == (Span("output", "pixel", 1048576, 20971520),)
    assert m.in_usd(nano) == 0.02097152
    assert repr(m.in_usd(nano)) == "0.02097152"


def every_size_costs_the_exact_amount(m: Any) -> None:
    for width in range(256, 1537, 64):
        for height in range(256, 1537, 64):
            _, nano = m.output_cost((PIXEL,), {"pixel": width * height})
            assert m.in_usd(nano) == float(f"{width * height * 2}e-8")


def what_was_not_measured_is_absent(m: Any) -> None:
    assert m.output_cost((PIXEL,), {}) == ((), 0)
    assert m.output_cost((PIXEL,), {"second": 3}) == ((), 0)
    assert m.output_cost((PIXEL,), {"pixel": 0})[0] == (Span("output", "pixel", 0, 0),)
    assert billed(m, (), 0, 1) == ()
    assert billed(m, (), 100, 0) == ()


def device_time_is_no_output(m: Any) -> None:
    prices = (PIXEL, Price("device_ms", 7))
    spans, nano = m.output_cost(prices, {"pixel": 2, "device_ms": 1000})
    assert (spans, nano) == ((Span("output", "pixel", 2, 40),), 40)
    output = Span("output", "pixel", 3, 60)
    assert billed(m, prices, 1500, 2) == (Span("execution", "device_ms", 3000, 21000), output)
    assert billed(m, (PIXEL,), 1500, 1) == (Span("execution", "device_ms", 1500, 0), output)
    assert not m.has_output_price((Price("device_ms", 7),))
    assert m.has_output_price(prices)


def only_a_completed_attempt_sells_its_output(m: Any) -> None:
    for end, sold in (("failed", ()), ("cancelled", ()), ("completed", (Span("output", "pixel", 3, 60),))):
        assert billed(m, (PIXEL,), 10, 1, Verdict(end)) == (Span("execution", "device_ms", 10, 0), *sold)


def several_outputs_are_billed_apart_and_summed(m: Any) -> None:
    spans, nano = m.output_cost((PIXEL, Price("frame", 5)), {"pixel": 3, "frame": 4})
    assert [span.kind for span in spans] == ["output:pixel", "output:frame"]
    assert nano == 80


MUTANTS = [
    ("a float too early", "return nano_usd / NANO", "return nano_usd * 1e-9"),
    ("one device is enough", "execution_ms * len(self.worker.spec.devices)", "execution_ms"),
    ("a failure is sold", "self.spans if completed else ()", "self.spans"),
    (
        "unknown is 0",
        "(quantity := metrics.get(price.metric)) is not None",
        "(quantity := metrics.get(price.metric, 0)) is not None",
    ),
    ("one bill for two outputs", "if len(priced) == 1 else", "if priced else"),
    ("device time is an output", "[price for price in prices if price.metric != DEVICE_MS]", "list(prices)"),
]
