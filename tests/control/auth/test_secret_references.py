"""Where environments name secrets: which text is a reference, and what becomes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.auth.secret_references import Filled, UnknownSecret, fill, find

NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.text(max_size=12).filter(
    lambda text: "{{" not in text and "}}" not in text and text.strip("{}") == text
)
SECRETS = st.dictionaries(NAME, st.text(max_size=20), max_size=5)
SPACE = st.text(" \t\n", max_size=3)
PREFIX = st.sampled_from(["STOKER", "RUNPOD"])


@st.composite
def environments(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """An environment, its secrets, and what it must become."""
    secrets = draw(SECRETS)
    names = st.sampled_from(sorted(secrets)) if secrets else st.nothing()
    env, wanted = {}, {}
    for variable in draw(st.lists(NAME, max_size=4, unique=True)):
        text, becomes = "", ""
        for _ in range(draw(st.integers(0, 3))):
            plain = draw(PLAIN)
            text, becomes = text + plain, becomes + plain
            if secrets:
                name = draw(names)
                text += "{{" + draw(SPACE) + draw(PREFIX) + "_SECRET_" + name + draw(SPACE) + "}}"
                becomes += secrets[name]
        env[variable], wanted[variable] = text, becomes
    return env, secrets, wanted


def test_the_message_names_both() -> None:
    refused = fill({"A": "x", "HF": "{{ STOKER_SECRET_hf }}"}, {})
    assert isinstance(refused, UnknownSecret)
    assert refused.why == "env.HF names the secret 'hf', and there is none of this name"


def test_both_spellings_and_any_white_space() -> None:
    text = "{{STOKER_SECRET_a}} {{ RUNPOD_SECRET_a }} {{\n\tSTOKER_SECRET_a  }}"
    assert fill({"V": text}, {"a": "1"}) == Filled({"V": "1 1 1"}, ("1",))


def test_a_value_that_reads_like_a_reference_is_none() -> None:
    secrets = {"a": "{{ STOKER_SECRET_b }}", "b": r"\g<0> \1"}
    filled = fill({"V": "{{ STOKER_SECRET_a }}", "W": "{{ STOKER_SECRET_b }}"}, secrets)
    assert isinstance(filled, Filled)
    assert filled.env == {"V": "{{ STOKER_SECRET_b }}", "W": r"\g<0> \1"}


def test_what_is_spelt_like_a_reference_and_can_name_nothing_is_refused() -> None:
    for name in ("my-key", "1st", "", "ä", "a.b"):
        refused = fill({"V": "{{ STOKER_SECRET_" + name + " }}"}, {"a": "1"})
        assert isinstance(refused, UnknownSecret), name
        assert refused.secret == name


def test_other_braces_are_left_alone() -> None:
    env = {"A": "{{ name }}", "B": "{ STOKER_SECRET_a }", "C": "STOKER_SECRET_a", "D": "{{ OTHER_SECRET_a }}"}
    assert find(env) == {}
    assert fill(env, {"a": "1"}) == Filled(env)


def test_every_name_of_a_value_is_looked_at() -> None:
    two = {"V": "{{ STOKER_SECRET_a }}{{ STOKER_SECRET_b }}", "MODE": "x"}
    assert fill(two, {"a": "1", "b": "2"}) == Filled({"V": "12", "MODE": "x"}, ("1", "2"))
    assert fill(two, {"a": "1"}) == UnknownSecret("b", "V")


def test_a_name_is_taken_whole() -> None:
    assert find({"V": "{{ STOKER_SECRET_ab }}{{ STOKER_SECRET_a }}"}) == {"V": ("ab", "a")}


def test_nobody_sees_what_was_filled_in() -> None:
    assert "hunter2" not in repr(fill({"V": "{{ STOKER_SECRET_a }}"}, {"a": "hunter2"}))


@given(environments())
def test_every_reference_becomes_its_secret_and_all_else_stays(made) -> None:
    env, secrets, wanted = made
    filled = fill(env, secrets)
    assert isinstance(filled, Filled)
    assert filled.env == wanted
    used = {name for names in find(env).values() for name in names}
    assert sorted(filled.hidden) == sorted({secrets[name] for name in used})


@given(environments())
def test_what_names_an_unknown_secret_is_refused_with_its_variable(made) -> None:
    env, secrets, _ = made
    for variable, names in find(env).items():
        for name in names:
            left = {other: value for other, value in secrets.items() if other != name}
            refused = fill(env, left)
            assert isinstance(refused, UnknownSecret)
            assert refused.secret == name
            assert refused.secret in find(env)[refused.variable]
            assert variable in find(env)
