"""Chunks that a save covers come back to the node that holds the next attempt, and to no other."""

from __future__ import annotations

import json
from typing import Any

from stoker.control import store
from stoker.control.rules.nodes.kept_pages import PAGE_BYTES
from stoker.wire.messages import Chunk, KeptAsk, KeptPage, Ref, Save
from tests.control.store.conftest import Bench


def chunk(claimed: Any, n: int, size: int = 1, ref: Ref | None = None) -> Chunk:
    value = b"" if ref else json.dumps(f"{n} of {claimed.attempt} " + "x" * size).encode()
    return Chunk(claimed.job, claimed.attempt, n, value, ref)


def save(claimed: Any, n: int, upto: int) -> Save:
    return Save(claimed.job, claimed.attempt, n, upto, b"state %d" % upto)


def again(bench: Bench, at: float, claimed: Any) -> Any:
    bench.report(at, bench.lost(claimed))
    (following,) = bench.claim(at + 100, bench.slot())
    return following


def page(
    bench: Bench, claimed: Any, first: int, upto: int, *, node: str = "n1", attempt: int = 0
) -> KeptPage:
    ask = KeptAsk(7, claimed.job, attempt or claimed.attempt, first, upto)
    found = store.kept_page(bench.store.writer, node, ask)
    assert found.number == 7
    return found


def texts(found: KeptPage) -> list[str]:
    assert found.refusal == ""
    return [json.loads(value).split(" x")[0] for value in found.values]


def test_they_come_back_from_all_attempts_that_went_on_from_one_another(bench: Bench) -> None:
    first = bench.running(10.0)
    bench.report(11.0, chunk(first, 0), chunk(first, 1), save(first, 0, 2), chunk(first, 2))
    second = again(bench, 12.0, first)
    assert texts(page(bench, second, 0, 2)) == ["0 of 1", "1 of 1"]
    assert texts(page(bench, second, 1, 2)) == ["1 of 1"]
    bench.report(130.0, chunk(second, 2), save(second, 0, 3))
    third = again(bench, 131.0, second)
    assert texts(page(bench, third, 0, 3)) == ["0 of 1", "1 of 1", "2 of 2"]
    assert texts(page(bench, third, 0, 1)) == ["0 of 1"]


def test_a_page_has_no_more_than_a_message_takes(bench: Bench) -> None:
    first = bench.running(10.0)
    bench.report(11.0, *(chunk(first, n, 900_000) for n in range(6)), save(first, 0, 6))
    second = again(bench, 12.0, first)
    found = page(bench, second, 0, 6)
    assert texts(found) == [f"{n} of 1" for n in range(4)]
    assert sum(map(len, found.values)) <= PAGE_BYTES
    assert texts(page(bench, second, 4, 6)) == ["4 of 1", "5 of 1"]


def test_a_large_chunk_comes_back_as_its_object_alone(bench: Bench) -> None:
    first = bench.running(10.0)
    ref = Ref(f"echo/{first.job}/1/chunk-1", 2_000_000, "ab")
    late = Ref(f"echo/{first.job}/1/chunk-3", 2_000_000, "cd")
    bench.report(11.0, chunk(first, 0), chunk(first, 1, ref=ref), chunk(first, 2), save(first, 0, 3))
    bench.report(11.5, chunk(first, 3, ref=late))
    assert store.is_kept(bench.store.writer, first.job, ref.key)
    assert not store.is_kept(bench.store.writer, first.job, late.key), "the save does not cover it"
    assert not store.is_kept(bench.store.writer, "another", ref.key)
    second = again(bench, 12.0, first)
    assert texts(page(bench, second, 0, 3)) == ["0 of 1"]
    assert page(bench, second, 1, 3) == KeptPage(7, ref=ref)
    assert texts(page(bench, second, 2, 3)) == ["2 of 1"]


def test_nobody_else_gets_them_nor_what_the_save_does_not_cover(bench: Bench) -> None:
    bench.node("n2", 9.0)
    first = bench.running(10.0)
    nothing = f"this node holds no attempt 1 of job {first.job} that goes on from a save"
    bench.report(11.0, chunk(first, 0))
    assert page(bench, first, 0, 1).refusal == nothing
    bench.report(11.5, save(first, 0, 1), chunk(first, 1))
    second = again(bench, 12.0, first)
    for wrong in ({"node": "n2"}, {"attempt": 1}, {"attempt": 3}):
        refused = page(bench, second, 0, 1, **wrong)
        assert (refused.values, refused.ref, refused.retryable) == ((), None, False)
        assert refused.refusal.startswith("this node holds no attempt")
    assert page(bench, second, 0, 2).refusal == "the save covers 1 chunks; chunks 0 to 1 are not among them"
    assert page(bench, second, 2**63, 2**64 - 1).refusal.startswith("the save covers 1 chunks")
    bench.report(130.0, bench.done(second))
    assert page(bench, second, 0, 1).refusal.startswith("this node holds no attempt 2")
