"""What the cache of inputs keeps: named examples, properties, and mutants that these must notice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.agent.jobs.inputs import cache_policy
from stoker.agent.jobs.inputs.cache_policy import BLOCK, FRESH_MAX_S, Content
from tests.mutants import mutant

NOW = 1_000_000.0


def kept(policy: Any, redirected: bool = False, **headers: str) -> Any:
    headers_given = {name.replace("_", "-"): value for name, value in headers.items()}
    return policy.keep(headers_given, "digest", 5, "source", redirected=redirected, now=NOW)


# -- examples; each takes the policy, so that mutants can be judged by them


def serves_within_max_age_and_revalidates_after_it(policy: Any) -> None:
    known = kept(policy, cache_control="public, max-age=60", etag='"a"')
    assert policy.plan(known, NOW).act == "serve"
    assert policy.plan(known, NOW + 59.9).act == "serve"
    after = policy.plan(known, NOW + 60)
    assert (after.act, dict(after.conditions)) == ("revalidate", {"If-None-Match": '"a"'})


def revalidates_with_the_headers_that_it_has(policy: Any) -> None:
    date = "Sat, 01 Jan 2022 00:00:00 GMT"
    assert policy.plan(kept(policy, last_modified=date), NOW).conditions == {"If-Modified-Since": date}
    both = policy.plan(kept(policy, last_modified=date, etag='W/"x"'), NOW).conditions
    assert both == {"If-None-Match": 'W/"x"', "If-Modified-Since": date}


def fetches_what_it_cannot_revalidate(policy: Any) -> None:
    assert policy.plan(None, NOW).act == "fetch"
    known = kept(policy, cache_control="max-age=60")
    assert policy.plan(known, NOW).act == "serve"
    assert policy.plan(known, NOW + 61).act == "fetch"


def does_not_keep_what_it_must_not(policy: Any) -> None:
    assert kept(policy, cache_control="no-store", etag='"a"') is None
    assert kept(policy, cache_control="Private, max-age=60", etag='"a"') is None
    assert kept(policy) is None


def revalidates_each_time_if_required(policy: Any) -> None:
    known = kept(policy, cache_control="no-cache, max-age=60", etag='"a"')
    assert policy.plan(known, NOW).act == "revalidate"


def revalidates_what_was_redirected(policy: Any) -> None:
    """The redirect may lead elsewhere the next time, whatever its end says."""
    known = kept(policy, redirected=True, cache_control="max-age=60", etag='"a"')
    assert policy.plan(known, NOW).act == "revalidate"


def takes_off_the_age(policy: Any) -> None:
    assert kept(policy, cache_control="max-age=60", age="20").fresh_until == NOW + 40
    assert kept(policy, cache_control="max-age=60", age="90", etag='"a"').fresh_until == NOW
    assert kept(policy, cache_control="max-age=60", age="soon", etag='"a"').fresh_until == NOW


def takes_the_shortest_and_a_day_at_most(policy: Any) -> None:
    assert kept(policy, cache_control="max-age=60, max-age=10").fresh_until == NOW + 10
    assert kept(policy, cache_control="max-age=999999999999").fresh_until == NOW + FRESH_MAX_S


def does_not_trust_a_clock_that_was_set_back(policy: Any) -> None:
    known = kept(policy, cache_control="max-age=60", etag='"a"')
    assert policy.plan(known, NOW - 3600).act == "revalidate"


def does_not_send_back_what_is_no_header(policy: Any) -> None:
    assert kept(policy, etag='"a"\r\nX: y') is None
    assert kept(policy, etag="x" * 5000) is None


def renews_what_has_not_changed(policy: Any) -> None:
    known = kept(policy, cache_control="max-age=60", etag='"a"')
    renewed = policy.renew(known, {"cache-control": "max-age=5"}, redirected=False, now=NOW + 100)
    assert (renewed.etag, renewed.asked_at, renewed.fresh_until) == ('"a"', NOW + 100, NOW + 105)
    assert renewed.sha256 == known.sha256
    assert policy.renew(known, {"cache-control": "no-store"}, redirected=False, now=NOW) is None


def evicts_the_least_recently_used(policy: Any) -> None:
    contents = {"a": Content(5 * BLOCK, 3), "b": Content(5 * BLOCK, 1), "c": Content(5 * BLOCK, 2)}
    assert policy.evicted(contents, (), 15 * BLOCK) == ()
    assert policy.evicted(contents, (), 14 * BLOCK) == ("b",)
    assert policy.evicted(contents, ("b",), 14 * BLOCK) == ("c",)
    assert policy.evicted(contents, ("a", "b", "c"), 0) == ()


def counts_empty_ones_too(policy: Any) -> None:
    contents = {str(n): Content(0, n) for n in range(10)}
    assert policy.evicted(contents, (), 4 * BLOCK) == ("0", "1", "2", "3", "4", "5")


def forgets_the_oldest_urls(policy: Any) -> None:
    urls = {str(n): policy.KnownUrl("d", 1, "s", "", "", NOW + n, NOW) for n in range(5)}
    assert policy.surplus_urls(urls, 3) == ("0", "1")
    assert policy.surplus_urls(urls, 5) == ()


EXAMPLES = [
    serves_within_max_age_and_revalidates_after_it, revalidates_with_the_headers_that_it_has,
    fetches_what_it_cannot_revalidate,
    does_not_keep_what_it_must_not, revalidates_each_time_if_required, revalidates_what_was_redirected,
    takes_off_the_age, takes_the_shortest_and_a_day_at_most, does_not_trust_a_clock_that_was_set_back,
    does_not_send_back_what_is_no_header, renews_what_has_not_changed, evicts_the_least_recently_used,
    counts_empty_ones_too, forgets_the_oldest_urls,
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_the_policy(example: Any) -> None:
    example(cache_policy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("known.asked_at <= now < known.fresh_until", "now < known.fresh_until"),
        ("known.asked_at <= now < known.fresh_until", "known.asked_at <= now <= known.fresh_until"),
        ('{"no-store", "private"}', '{"no-store"}'),
        ('if redirected or "no-cache" in directives', 'if "no-cache" in directives'),
        ('if redirected or "no-cache" in directives', "if redirected"),
        ("min(found) - int(age or 0)", "min(found)"),
        ("min(found)", "max(found)"),
        ("max(content.size, BLOCK)", "content.size"),
        ("if digest not in busy", "if True"),
        ("item[1].used_at", "-item[1].used_at"),
        ("(urls[url].asked_at, url)", "(-urls[url].asked_at, url)"),
        ("if over <= 0", "if over < 0"),
        ("value.isascii() and value.isprintable()", "value.isascii()"),
        ("part.strip().lower()", "part.strip()"),
    ],
)
def test_mutants_are_noticed(old: str, new: str) -> None:
    changed = mutant(cache_policy, old, new)
    for example in EXAMPLES:
        try:
            example(changed)
        except Exception:
            return
    pytest.fail("no example notices this mutant")


# -- properties

CONTENTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(Content, st.integers(0, 20 * BLOCK), st.floats(0, 100)),
    max_size=12,
)
WEIGHTS = st.integers(0, 100 * BLOCK)


def weight(contents: dict[str, Content]) -> int:
    return sum(max(content.size, BLOCK) for content in contents.values())


@given(CONTENTS, st.sets(st.text("abcdef", min_size=1, max_size=3)), WEIGHTS)
@settings(deadline=None)
def test_eviction_makes_room_with_no_more_than_it_needs(
    contents: dict[str, Content], busy: set[str], most: int
) -> None:
    going = cache_policy.evicted(contents, busy, most)
    left = {digest: content for digest, content in contents.items() if digest not in going}
    assert len(set(going)) == len(going)
    assert set(going) <= set(contents) - busy
    assert weight(left) <= most or set(left) <= busy
    if going:
        spared = {**left, going[-1]: contents[going[-1]]}
        assert weight(spared) > most, "the last one need not have gone"
    idle = [content.used_at for digest, content in left.items() if digest not in busy]
    assert all(contents[digest].used_at <= used for digest in going for used in idle)


HEADERS = st.dictionaries(
    st.sampled_from(["etag", "last-modified", "cache-control", "age"]),
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(['"a"', "max-age=60", "max-age=0", "no-cache", "no-store, max-age=9", "5"]),
    ),
)


@given(HEADERS, st.booleans(), st.integers(-(10**9), 10**9))
@settings(deadline=None)
def test_any_headers_get_a_plan(headers: dict[str, str], redirected: bool, later: int) -> None:
    known = cache_policy.keep(headers, "digest", 5, "source", redirected=redirected, now=NOW)
    decision = cache_policy.plan(known, NOW + later)
    assert decision.reason
    assert (decision.act == "revalidate") == bool(decision.conditions)
    if decision.act == "serve":
        assert not redirected
        assert 0 <= later < FRESH_MAX_S
        assert "no-store" not in headers["cache-control"]
    for value in decision.conditions.values():
        assert value.isascii()
        assert value.isprintable()
