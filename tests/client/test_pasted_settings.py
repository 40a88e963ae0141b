"""Keys and addresses as people paste them, and the files `.env` that people have."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client import AsyncClient, Client, ClientError
from stoker.client.dotenv import lookup
from stoker.client.pasted import cleaned, secret

KEY = "sk_00aa11bb22cc_" + "5e" * 32
ENDS = (" ", "\n", "\r\n", "\t", "\u00a0", "\ufeff", "\u200b", "\ufeff \r\n")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STOKER_URL", "STOKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def called(*arguments: str) -> tuple[str, str]:
    """The address and the header of a call."""
    found: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        found.append((str(request.url), request.headers["Authorization"]))
        return httpx2.Response(200, json={"jobs": {}, "workers": {}})

    with Client(*arguments, transport=httpx2.MockTransport(answer)) as stoker:
        stoker.health("echo")
    return found[0]


@pytest.mark.parametrize("end", ENDS)
def test_what_is_at_the_ends_is_dropped_wherever_it_was_pasted(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ("https://there/v1/endpoints/echo/health", f"Bearer {KEY}")
    assert called(f"{end}https://there{end}", f"{end}{KEY}{end}") == expected
    (tmp_path / ".env").write_text(f'STOKER_URL="https://there{end}"\nSTOKER_API_KEY="{end}{KEY}{end}"\n')
    assert called() == expected
    monkeypatch.setenv("STOKER_URL", f"{end}https://there{end}")
    monkeypatch.setenv("STOKER_API_KEY", f"{end}{KEY}{end}")
    (tmp_path / ".env").unlink()
    assert called() == expected


def test_nothing_but_blanks_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_API_KEY", " \n")
    with pytest.raises(ClientError, match="no API key: give one"):
        Client("https://there")
    with pytest.raises(ClientError, match="no API key: give one"):
        Client("https://there", " \n")
    (tmp_path / ".env").write_text(f"STOKER_API_KEY={KEY}\n")
    assert called("https://there")[1] == f"Bearer {KEY}"


async def test_a_key_is_exchanged_for_a_good_one_alone() -> None:
    sent: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["Authorization"])
        return httpx2.Response(200, json={"jobs": {}, "workers": {}})

    async with AsyncClient("https://there", "sk-1", transport=httpx2.MockTransport(answer)) as stoker:
        await stoker.health("echo")
        stoker.use_key(" sk-2\n")
        for wrong in ("", f"{KEY}\n{KEY}"):
            with pytest.raises(ClientError, match="API key"):
                stoker.use_key(wrong)
        await stoker.health("echo")
    assert sent == ["Bearer sk-1", "Bearer sk-2"]


@pytest.mark.parametrize(
    ("middle", "what"),
    [("\n", "a line break"), ("\r\n", "a line break"), ("é", "no"), ("\u200b", "no"), ("\x00", "no")],
)
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(middle: str, what: str) -> None:
    with pytest.raises(ClientError) as refused:
        Client("https://there", KEY[:20] + middle + KEY[20:])
    text = str(refused.value)
    assert "the API key has" in text
    assert f"at place 21 of {len(KEY) + len(middle)}" in text
    assert ("a line break" in text) == (what == "a line break")
    assert "5e5e" not in text
    assert "sk_" not in text


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ClientError, match="the service's address must not hold a user name") as refused:
        Client("http://me:hunter2@there", KEY)
    assert "hunter2" not in str(refused.value)


@given(st.text(), st.text(alphabet=" \t\r\n\u00a0\ufeff\u200b\u2060"))
def test_cleaning_is_done_once_and_for_all(text: str, ends: str) -> None:
    assert cleaned(ends + text + ends) == cleaned(text)
    assert cleaned(cleaned(text)) == cleaned(text)
    assert cleaned(text) in text


@given(st.text())
def test_a_secret_is_sent_or_refused_without_being_shown(text: str) -> None:
    try:
        assert secret("the key", text).encode("ascii").isascii()
    except ClientError as refused:
        bare = str(refused).replace(" ", "")
        assert len(cleaned(text)) < 12 or cleaned(text) not in bare


# ---- .env


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=1", "1"),
        ("export A=1\n\n# A=2\n", "1"),
        ('A="v"  # note', "v"),
        ("A='v' # note", "v"),
        ("A = 'x y # z'", "x y # z"),
        ('A="x=y"', "x=y"),
        ("A=1 # one", "1"),
        ("A=a#b", "a#b"),
        ("A=1\r\nB=2\r\n", "1"),
        ("not a line\nA=1\n", "1"),
        ("A=", None),
        ("A", None),
        ("# A=1", None),
    ],
)
def test_lines_are_read_as_python_dotenv_reads_them(text: str, value: str | None, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(text.encode())
    assert lookup("A", {}, tmp_path) == value


def test_the_environment_wins_over_the_file_and_empty_is_not_set(tmp_path: Path) -> None:
    assert lookup("KEY", {}, tmp_path) is None
    (tmp_path / ".env").write_text("KEY=file\n")
    assert lookup("KEY", {"KEY": "environment"}, tmp_path) == "environment"
    assert lookup("KEY", {"KEY": ""}, tmp_path) == "file"
    (tmp_path / ".env").write_text("KEY=\n")
    assert lookup("KEY", {}, tmp_path) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_encodings_of_editors_and_shells(encoding: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes('KEY="v"  # Schlüssel\r\n'.encode(encoding))
    assert lookup("KEY", {}, tmp_path) == "v"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("A=1\nKEY=v # Schlüssel\n".encode("latin-1"), "is not UTF-8 text in line 2; save it as UTF-8"),
        ("KEY=v\n".encode("utf-16-le"), "it holds zero bytes; save it as UTF-8"),
        (b"\xff\xfeK\0E", "is not UTF-8 text in line 1; save it as UTF-8"),
    ],
)
def test_a_file_in_another_encoding_is_refused_with_a_sentence(
    content: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ClientError, match=why) as refused:
        lookup("KEY", {}, tmp_path)
    assert str(tmp_path / ".env") in str(refused.value)
    assert lookup("KEY", {"KEY": "environment"}, tmp_path) == "environment"


def test_a_folder_of_this_name_is_a_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert lookup("KEY", {}, tmp_path) is None


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ClientError, match=r"\.env cannot be read: Permission denied"):
        lookup("KEY", {}, tmp_path)
