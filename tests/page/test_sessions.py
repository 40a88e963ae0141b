"""A session begins with a key or with an unused link, and ends by itself."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from stoker.page.access.sessions import LINK_S, SESSION_S, Sessions, digest


class SessionsAndLinks(RuleBasedStateMachine):
    """What a plain dictionary says of the same steps."""

    tokens = Bundle("tokens")
    links = Bundle("links")

    def __init__(self) -> None:
        super().__init__()
        self.sessions, self.now, self.number = Sessions(), 0.0, 0
        self.open: dict[str, tuple[str, float]] = {}
        self.unused: dict[str, tuple[str, float]] = {}

    def _token(self) -> str:
        self.number += 1
        return f"token {self.number}"

    @rule(target=tokens, key=st.text())
    def signs_in(self, key: str) -> str:
        token = self._token()
        self.sessions.sign_in(key, token, self.now)
        self.open[token] = (key, self.now + SESSION_S)
        return token

    @rule(target=links, key=st.text())
    def offers_a_link(self, key: str) -> str:
        token = self._token()
        self.sessions.offer_link(key, token, self.now)
        self.unused[token] = (key, self.now + LINK_S)
        return token

    @rule(link=links)
    def redeems(self, link: str) -> None:
        key, until = self.unused.pop(link, ("", -1.0))
        assert self.sessions.redeem(link, self.now) == (key if self.now < until else None)

    @rule(token=consumes(tokens))
    def signs_out(self, token: str) -> None:
        self.sessions.sign_out(token)
        self.open.pop(token)

    @rule(seconds=st.sampled_from([1.0, LINK_S - 1, LINK_S, SESSION_S - 1, SESSION_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def each_token_names_its_own_key(self) -> None:
        for token, (key, until) in self.open.items():
            assert self.sessions.key_of(token, self.now) == (key if self.now < until else None)
        for token in (*self.unused, "", "another"):
            assert self.sessions.key_of(token, self.now) is None


TestSessionsAndLinks = SessionsAndLinks.TestCase


def test_a_session_ends_with_its_key_and_no_later_than_others() -> None:
    sessions = Sessions()
    assert sessions.sign_in("token", "early", 0.0, until=60.0) == 60.0
    assert sessions.sign_in("token", "late", 0.0, until=2 * SESSION_S) == SESSION_S
    assert [sessions.key_of("early", at) for at in (59.0, 60.0)] == ["token", None]
    sessions.prolong(digest("early"), 2 * SESSION_S)
    assert [sessions.is_open(digest("early"), at) for at in (60.0, SESSION_S)] == [True, False]
    sessions.prolong(digest("none"), 60.0)
    assert not sessions.is_open(digest("none"), 0.0)


def test_the_oldest_session_ends_where_there_are_too_many(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("stoker.page.access.sessions.SESSIONS_MOST", 2)
    sessions = Sessions()
    for name in ("first", "second", "third"):
        sessions.sign_in(name, name, 0.0)
    assert [sessions.key_of(name, 1.0) for name in ("first", "second", "third")] == [None, "second", "third"]


def test_no_key_is_shown_where_a_session_is() -> None:
    sessions = Sessions()
    sessions.sign_in("sk_secret", "token", 0.0)
    sessions.offer_link("sk_secret", "link", 0.0)
    assert "sk_secret" not in repr(sessions)
    assert "'token'" not in repr(sessions)
