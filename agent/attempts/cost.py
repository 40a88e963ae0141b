"""What an attempt costs, in integers: billionths of a US dollar, never a rounded float.

Pure. Two kinds of spans: `execution` (device milliseconds, for however it ended) and `output` (what the
handler measured, only when the attempt completed). `output.cost` is shown for prices of an output alone.

    1024 x 1024 pixels at 20 nano-USD = 20,971,520 nano-USD = 0.02097152 USD
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.wire.messages import Price, Span

DEVICE_MS = "device_ms"
NANO = 1_000_000_000


def execution_span(prices: Sequence[Price], execution_ms: int, devices: int) -> tuple[Span, ...]:
    """The device time of an attempt; none when it never ran or had no device."""
    quantity = execution_ms * devices
    if quantity <= 0:
        return ()
    price = sum(price.nano_usd for price in prices if price.metric == DEVICE_MS)
    return (Span("execution", DEVICE_MS, quantity, quantity * price),)


def output_cost(prices: Sequence[Price], metrics: Mapping[str, int]) -> tuple[tuple[Span, ...], int]:
    """A span for each priced metric, and their sum in nano-USD. What was not measured is absent, not 0.

    A bill knows an attempt's spans by their kind: with several output prices the metric is part of it.
    """
    priced = [price for price in prices if price.metric != DEVICE_MS]
    spans = tuple(
        Span(_kind(price, priced), price.metric, quantity, quantity * price.nano_usd)
        for price in priced
        if (quantity := metrics.get(price.metric)) is not None
    )
    return spans, sum(span.nano_usd for span in spans)


def _kind(price: Price, priced: Sequence[Price]) -> str:
    return "output" if len(priced) == 1 else f"output:{price.metric}"


def has_output_price(prices: Sequence[Price]) -> bool:
    return any(price.metric != DEVICE_MS for price in prices)


def in_usd(nano_usd: int) -> float:
    """The float nearest to the exact amount: one division, correctly rounded."""
    return nano_usd / NANO
