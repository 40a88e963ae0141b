"""Known secrets go out of what others read: whole, however they are written, and cut in two."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.logs import redaction
from stoker.agent.host.logs.attempt_log import LINE_MAX, last_lines
from stoker.agent.host.logs.redaction import PART_MOST, hidden_in, hide, secrets_of
from stoker.agent.host.logs.tail import LINE_MAX as BYTES_OF_A_LINE
from stoker.agent.host.logs.tail import LogTail
from tests.mutants import mutant

SECRET = 'pa%s/w"rd+ü\\ 7'


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *[(name, True) for name in ("OPENAI_API_KEY", "hf_token", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY")],
        *[(name, False) for name in ("MODEL", "PATH", "LANG", "CUDA_VISIBLE_DEVICES")],
    ],
)
def test_a_secret_is_known_by_its_name(name, secret):
    assert secrets_of({name: "value"}) == (("value",) if secret else ())


def test_a_setting_whose_name_reads_like_a_secrets_is_none_unless_control_says_so():
    env = {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "2048", "API_KEY": "12345678"}
    assert secrets_of(env) == ("12345678",)
    assert secrets_of(env, ["2048"]) == ("12345678", "2048")


def test_a_secret_that_holds_another_goes_whole_and_a_short_one_hides_nothing():
    secrets = secrets_of({"A_KEY": "abcd", "B_KEY": "abcd-efgh", "C_KEY": "1", "D_KEY": ""})
    assert hide(["x abcd-efgh 1 abcd"], secrets) == ("x *** 1 ***",)


WAYS = {
    "plain": str,
    "url": lambda text: quote(text, safe=""),
    "path": quote,
    "form": quote_plus,
    "json": lambda text: json.dumps({"text": text}),
    "json in utf-8": lambda text: json.dumps({"text": text}, ensure_ascii=False),
    "repr": lambda text: repr({"text": text}),
    "json in json": lambda text: json.dumps({"error": json.dumps({"text": text})}),
    "what the stock worker logs": lambda text: json.dumps(
        {"message": json.dumps({"error_message": repr({"text": text})}, ensure_ascii=False)}
    ),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "basic authentication": lambda text: base64.b64encode(f"me:{text}".encode()).decode(),
    "base64 of a longer text": lambda text: base64.urlsafe_b64encode(f"user:{text}@db".encode()).decode(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("secret", [SECRET, "it's\\a\"quote"], ids=["any", "quotes"])
def test_a_secret_is_found_however_it_is_written(way, secret):
    written = WAYS[way](secret)
    assert secret not in WAYS[way]("another")
    [found] = hide([f"before {written} after"], [secret])
    assert "***" in found
    assert found.startswith("before ")
    assert found.endswith(" after")
    assert len(found) < len(f"before {written} after")
    left = found.replace("before ", "").replace(" after", "").replace("***", "")
    assert len(left) <= len(WAYS[way]("")) + 12


@given(st.text(min_size=8, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_no_text_of_base64_that_is_left_reveals_a_secret(secret, before, after):
    """What its neighbours' bytes share a character with stays: four characters at most."""
    written = base64.b64encode(before + secret.encode() + after).decode()
    [found] = hide([written], [secret])
    kept = len(found.replace("***", ""))
    assert kept <= len(base64.b64encode(before)) + len(base64.b64encode(after)) + 4


@given(st.text("abc", min_size=8, max_size=60), st.integers(1, 100), st.sampled_from(["", "-", "\ufffd"]))
def test_of_a_secret_that_is_cut_in_two_less_than_a_part_is_left(secret, at, between):
    at = min(at, len(secret) - 1)
    first, last = hide([f"x{secret[:at]}", f"{secret[at:]}x"], [secret])
    first, last = first + between, between + last
    part = min(PART_MOST, len(secret) // 2)
    assert secret[:part] not in first
    assert secret[-part:] not in last


def test_a_line_that_was_cut_by_its_length_ends_in_no_part_of_a_secret():
    """Its secrets are short for what they replace: what was beyond a caller's cut comes into view."""
    secret = "s3cr3t-" * 30
    tail = LogTail()
    tail.feed(b"first\n" + secret.encode() * 100 + b"\nlast\n")
    [_, cut, _] = last_lines(tail.lines, [secret])
    assert len(tail.lines[1]) == BYTES_OF_A_LINE
    assert len(cut) < LINE_MAX
    assert "s3cr3t" not in cut
    key = "x" * BYTES_OF_A_LINE + "rest"
    tail.feed(b"the key is " + key.encode() + b"\n")
    assert last_lines(tail.lines, [key])[-1] == "the key is ***"


def test_a_letter_of_several_bytes_may_be_cut_too():
    secret, tail = "geheime-schlüssel-für-alle", LogTail()
    first, character, last = secret.encode().partition("ü".encode())
    tail.feed(b"it is " + first + character[:1])
    listener = tail.listen()
    tail.feed(character[1:] + last + b" ok\n")
    assert hide(tail.lines[:1], [secret]) == ("it is ***",)
    (line,) = listener.after(0, whole=False)[1]
    assert hide([line.text], [secret]) == ("*** ok",)


def test_a_line_in_the_middle_that_ends_like_a_secret_begins_is_left_alone():
    lines = ("a", "we are in production", "b")
    assert hide(lines, ["production-database"]) == lines


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=80), max_size=5))
def test_without_secrets_nothing_changes(lines):
    assert hide(lines, ["not-in-here-at-all"]) == tuple(lines)


def test_any_text_may_be_a_secret():
    """A value that no URL could hold, too."""
    assert hide(["a \ud800broken b"], ["\ud800broken"]) == ("a *** b",)


def test_a_text_of_several_lines_keeps_them():
    assert hidden_in("Traceback\n  token hf_abcdef\nError: hf_abcdef", ["hf_abcdef"]) == (
        "Traceback\n  token ***\nError: ***"
    )


KEY = "hf_abcdefghijklmnop"
CASES = [
    (["x abcd-efgh 1 abcd"], ["abcd", "abcd-efgh", "1"], ["x *** 1 ***"]),
    ([quote("a b/c d", safe=""), quote("a b/c d"), quote_plus("a b/c d")], ["a b/c d"], ["***"] * 3),
    ([json.dumps('say "ü"'), repr("it's \"this\"")], ['say "ü"', "it's \"this\""], ['"***"', "'***'"]),
    ([json.dumps(json.dumps('say "ü"'))], ['say "ü"'], [json.dumps('"***"')]),
    ([base64.b64encode(f"{at}{KEY}{at}".encode()).decode() for at in ("", "a", "ab")], [KEY],
     ["***A==", "YW***Bh", "YWJ***YWI="]),
    ([f"the key is {KEY[:12]}", "between", f"{KEY[7:]} it was"], [KEY],
     ["the key is ***", "between", "*** it was"]),
    (["a", f"cut {KEY[:12]}", "b"], [KEY], ["a", f"cut {KEY[:12]}", "b"]),
    (["a", f"{'x' * 3000}{KEY[:12]}", "b"], [KEY], ["a", f"{'x' * 3000}***", "b"]),
    ([f"{KEY[:5]} and {KEY[:8]}"], [KEY], [f"{KEY[:5]} and {KEY[:8]}"]),
]  # fmt: skip
MUTANTS = [
    ("the shortest first", "key=len, reverse=True", "key=len"),
    ("short ones, too", "if len(secret) >= SECRET_MIN)", "if True)"),
    ("no form of URLs", "*quoted, ", ""),
    ("no escapes of JSON", "    json.dumps,\n    partial(json.dumps, ensure_ascii=False),\n", ""),
    ("no repr", "    repr,\n", ""),
    ("none in another", "NESTED_MOST = 3", "NESTED_MOST = 1"),
    ("no base64", "*_encoded(", "*str("),
    ("base64 begins in one way", "for before in range(3)", "for before in range(1)"),
    ("base64 tells its neighbour", "-(-before * 8 // 6)", "before * 8 // 6"),
    ("no first part", "        line = _without_first_part(line, form, part)\n", ""),
    ("no last part", "        line = _without_last_part(line, form, part)\n", ""),
    ("parts anywhere", "if n in (0, last) or", "if True or"),
    ("long lines are not cut", "or len(line) >= WHOLE_MOST", ""),
    ("any part is one", "min(PART_MOST, len(form) // 2)", "min(PART_MOST, len(form) // 4)"),
]


def holds(module):
    return all(list(module.hide(lines, secrets)) == left for lines, secrets, left in CASES)


def test_the_cases_hold():
    for lines, secrets, left in CASES:
        assert list(hide(lines, secrets)) == left


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*change, id=description) for description, *change in MUTANTS]
)
def test_a_mutant_is_noticed(old, new):
    assert not holds(mutant(redaction, old, new))
