"""The bytes that the callers of a key keep."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from stoker.control.rules.quotas import FileCounts

KEPT_S, MOST = 100.0, 1000
FILES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, MOST), st.floats(0, 30), st.booleans()), max_size=60
)


@given(FILES)
@example(
    [("a", 1, 2.134586282309069, False)] * 2
    + [("a", 400, 0.6396014691359465, False), ("a", 601, 1.9100931574159214, False)]
)
def test_a_key_never_keeps_more_than_its_quota_and_no_other_key_counts(files: list[object]) -> None:
    quota, kept, now = FileCounts(KEPT_S), list[tuple[str, int, float]](), 0.0
    for key, size, pause, fails in files:  # type: ignore[misc]
        now += pause
        kept = [one for one in kept if one[2] > now]
        mine = sum(s for k, s, _ in kept if k == key)
        wait_s = quota.admit(key, size, now, MOST)
        assert (wait_s == 0) == (mine + size <= MOST)
        if wait_s:
            assert quota.admit(key, size, now + wait_s, MOST) == 0, "as it was told"
            quota.take_back(key, size)
            return
        if fails:
            quota.take_back(key, size)
        else:
            kept.append((key, size, now + KEPT_S))


def test_nothing_is_left_of_keys_whose_files_are_gone() -> None:
    quota = FileCounts(KEPT_S)
    assert quota.admit("a", MOST, 0.0, MOST) == 0
    assert quota.admit("a", 1, 50.0, MOST) == 50
    assert quota.admit("b", 1, 50.0) == 0
    assert quota.admit("b", 1, 200.0) == 0
    assert set(quota._files) == set(quota._bytes) == {"b"}
