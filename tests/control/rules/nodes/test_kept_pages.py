"""Pages of kept chunks are never empty, never too large, and leave no chunk out."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from stoker.control.rules.nodes.kept_pages import PAGE_BYTES, PAGE_CHUNKS, KeptChunk, page, refusal
from stoker.wire.messages import KeptAsk

MB = 1_000_000

sizes = st.lists(st.one_of(st.integers(0, 100), st.integers(0, MB), st.none()), max_size=40)
"""Of chunks; None for an object."""


def found(first: int, wanted: list[int | None]) -> list[KeptChunk]:
    return [KeptChunk(first + n, size or 0, size is None) for n, size in enumerate(wanted)]


@given(st.integers(0, 1000), sizes)
@example(0, [MB] * 5)
@example(7, [1, None, 1])
@example(0, [0] * (PAGE_CHUNKS + 5))
def test_the_pages_have_every_chunk_once_and_in_order(first: int, wanted: list[int | None]) -> None:
    chunks = found(first, wanted)
    while chunks:
        count = page(chunks[0].n, chunks)
        one, chunks = chunks[:count], chunks[count:]
        assert 0 < count <= PAGE_CHUNKS
        assert sum(chunk.size for chunk in one) <= PAGE_BYTES
        assert count == 1 or not any(chunk.is_object for chunk in one)


def test_a_page_is_as_full_as_it_may_be() -> None:
    assert page(0, found(0, [MB] * 5)) == 4
    assert page(0, found(0, [PAGE_BYTES - 1, 1, 0, 1])) == 3
    assert page(3, found(3, [5, 5, None, 5])) == 2
    assert page(5, found(5, [None, 5])) == 1


@given(sizes, st.integers(0, 39))
def test_a_page_ends_before_a_chunk_that_is_missing(wanted: list[int | None], gap: int) -> None:
    chunks = [chunk for chunk in found(0, wanted) if chunk.n != gap]
    assert page(0, chunks) <= gap
    assert page(gap, [chunk for chunk in chunks if chunk.n >= gap]) == 0


def test_only_what_the_save_covers_is_given_back() -> None:
    assert refusal(KeptAsk(1, "j", 2, 0, 5), 5) is None
    assert refusal(KeptAsk(1, "j", 2, 4, 5), 7) is None
    for first, upto in ((0, 6), (5, 5), (3, 2), (9, 2**64 - 1)):
        why = f"the save covers 5 chunks; chunks {first} to {upto - 1} are not among them"
        assert refusal(KeptAsk(1, "j", 2, first, upto), 5) == why
    none = "this node holds no attempt 2 of job j that goes on from a save"
    assert refusal(KeptAsk(1, "j", 2, 0, 1), None) == none
