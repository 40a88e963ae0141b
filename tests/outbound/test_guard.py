"""The guard over real sockets on loopback, with a resolver that the test answers for."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import io
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused
from stoker.outbound.guard import FetchLimits, Guard
from stoker.outbound.wait_limits import Waiter

SECONDS = 20.0  # far above what loopback needs: no test here waits for it


class Names:
    """A resolver with a script: each name has a list of answers, the last of which is repeated."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {f"{name}.test": list(addresses) for name, addresses in answers.items()}
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int, whose: Waiter) -> Sequence[str]:
        self.lookups.append(host)
        addresses = self.answers.get(host, [[host]])
        if not addresses:
            raise OSError("no such name")
        return addresses.pop(0) if len(addresses) > 1 else addresses[0]


def ok(body: bytes = b"hello", *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(to: str, status: int = 302) -> bytes:
    lines = [f"HTTP/1.1 {status} Found", f"Location: {to}", "Content-Length: 0", "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def fetch(guard: Guard, url: str, **limits: Any) -> tuple[Any, bytes]:
    file = io.BytesIO()
    fetched = await guard.fetch_to(url, file, FetchLimits(**{"timeout_s": SECONDS, **limits}))
    return fetched, file.getvalue()


async def test_a_body_arrives_with_size_type_and_digest(http: Any) -> None:
    http.answers["/a.wav?x=1"] = ok(b"sound", "Content-Type: Audio/WAV; rate=1")
    names = Names(example=[["127.0.0.1"]])
    fetched, body = await fetch(
        Guard(allow_private=True, resolver=names), f"http://example.test:{http.port}/a.wav?x=1"
    )
    assert body == b"sound"
    assert (fetched.size, fetched.media_type) == (5, "audio/wav")
    assert fetched.sha256 == hashlib.sha256(b"sound").hexdigest()
    # The name resolves nowhere else: reaching the server proves the pin; the Host header kept the name.
    assert f"Host: example.test:{http.port}".encode() in http.received[0]
    assert b"Accept-Encoding: identity" in http.received[0]


async def test_the_name_server_is_not_queried_twice(http: Any) -> None:
    """DNS rebinding: a public address for the check, a private one for the connection."""
    http.answers["/"] = ok()
    names = Names(rebind=[["127.0.0.1"], ["169.254.169.254"]])
    _, body = await fetch(Guard(allow_private=True, resolver=names), f"http://rebind.test:{http.port}/")
    assert body == b"hello"
    assert names.lookups == ["rebind.test"]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
async def test_a_private_address_is_refused_and_not_connected_to(http: Any, address: str) -> None:
    guard = Guard(resolver=Names(inner=[[address]]))
    with pytest.raises(UrlRefused, match=r"http://inner\.test:\d+/x is refused: its host is the .* address"):
        await fetch(guard, f"http://inner.test:{http.port}/x?token=secret")
    with pytest.raises(UrlRefused):
        await guard.post_json(f"http://inner.test:{http.port}/x", b"{}", timeout_s=SECONDS)
    with pytest.raises(UrlRefused):
        await guard.check(f"http://inner.test:{http.port}/x")
    assert http.received == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://[::1]:{}/", "http://[::ffff:127.0.0.1]:{}/"])
async def test_a_literal_address_is_judged_too(http: Any, url: str) -> None:
    with pytest.raises(UrlRefused):
        await fetch(Guard(), url.format(http.port))
    assert http.received == []


@pytest.mark.parametrize("url", ["http://127.1:{}/", "http://2130706433:{}/", "http://0x7f000001:{}/",
                                 "http://0177.0.0.1:{}/", "http://localhost:{}/"])  # fmt: skip
async def test_other_spellings_of_loopback_are_judged_by_what_they_resolve_to(http: Any, url: str) -> None:
    """With the system's resolver, which reads all of these."""
    with pytest.raises((UrlRefused, FetchFailed)):
        await fetch(Guard(), url.format(http.port))
    assert http.received == []


async def test_each_redirect_is_guarded_like_the_first_url(http: Any) -> None:
    http.answers["/"] = redirect(f"http://inner.test:{http.port}/secret")
    http.answers["/secret"] = ok(b"secret")
    names = Names(outer=[["127.0.0.1"]], inner=[["169.254.169.254"]])
    with pytest.raises(UrlRefused, match=r"inner\.test"):
        await fetch(Guard(allow_private=True, resolver=names), f"http://outer.test:{http.port}/")
    assert len(http.received) == 1


@pytest.mark.parametrize("to", ["file:///etc/passwd", "http://user:x@outer.test/", "ftp://outer.test/"])
async def test_a_redirect_to_something_else_than_a_plain_url_is_refused(http: Any, to: str) -> None:
    http.answers["/"] = redirect(to)
    guard = Guard(allow_private=True, resolver=Names(outer=[["127.0.0.1"]]))
    with pytest.raises(UrlRefused):
        await fetch(guard, f"http://outer.test:{http.port}/")


async def test_relative_redirects_are_followed_up_to_the_limit(http: Any) -> None:
    http.answers |= {
        "/0": redirect("/1"),
        "/1": redirect("2", 307),
        "/2": redirect("/3", 301),
        "/3": ok(b"end"),
    }
    guard = Guard(allow_private=True, resolver=Names(outer=[["127.0.0.1"]]))
    _, body = await fetch(guard, f"http://outer.test:{http.port}/0", redirects=3)
    assert body == b"end"
    with pytest.raises(FetchFailed, match="more than 2 redirects"):
        await fetch(guard, f"http://outer.test:{http.port}/0", redirects=2)


async def test_ten_redirects_are_followed_by_default_each_checked_and_an_eleventh_is_not(http: Any) -> None:
    """As through shorteners, sign-ins and stores that hand a file on to their network."""
    http.answers |= {f"/{n}": redirect(f"http://outer-{n + 1}.test:{http.port}/{n + 1}") for n in range(11)}
    http.answers["/10"], eleventh = ok(b"end"), http.answers["/10"]
    names = Names(**{f"outer-{n}": [["127.0.0.1"]] for n in range(12)})
    guard = Guard(allow_private=True, resolver=names)
    fetched, body = await fetch(guard, f"http://outer-0.test:{http.port}/0")
    assert (body, fetched.head.hops) == (b"end", 10)
    assert names.lookups == [f"outer-{n}.test" for n in range(11)]
    http.answers["/10"] = eleventh
    with pytest.raises(FetchFailed, match="more than 10 redirects"):
        await fetch(guard, f"http://outer-0.test:{http.port}/0")
    names.answers["outer-10.test"] = [["169.254.169.254"]]
    with pytest.raises(UrlRefused, match=r"outer-10\.test"):
        await fetch(guard, f"http://outer-0.test:{http.port}/0")


async def test_a_body_that_is_announced_as_too_large_is_not_read(http: Any) -> None:
    http.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    with pytest.raises(TooLarge, match="99999999 bytes; at most 10 are allowed"):
        await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/", size_bytes=10)


@pytest.mark.parametrize("size", [1001, 1_000_000])
async def test_a_body_without_a_content_length_is_cut(http: Any, size: int) -> None:
    http.answers["/"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * size
    file = io.BytesIO()
    with pytest.raises(TooLarge):
        await Guard(allow_private=True).fetch_to(
            f"http://127.0.0.1:{http.port}/", file, FetchLimits(1000, SECONDS)
        )
    assert len(file.getvalue()) <= 1000


async def test_a_body_of_just_the_allowed_size_passes(http: Any) -> None:
    http.answers["/"] = ok(b"x" * 1000)
    _, body = await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/", size_bytes=1000)
    assert len(body) == 1000


async def test_a_server_that_never_answers_is_left_at_the_time_limit(http: Any) -> None:
    http.answers["/"] = None
    with pytest.raises(FetchFailed, match=r"within 0\.05 s") as caught:
        await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/", timeout_s=0.05)
    assert caught.value.retryable
    await http.idle()  # our side of the connection is closed: the server saw its end


async def test_a_resolver_that_never_answers_is_left_at_the_time_limit() -> None:
    async def never(host: str, port: int, whose: Waiter) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(FetchFailed, match=r"within 0\.01 s"):
        await fetch(Guard(resolver=never), "http://example.test/", timeout_s=0.01)


async def test_cancelling_a_fetch_closes_its_connection(http: Any) -> None:
    http.answers["/"] = None
    running = asyncio.create_task(fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/"))
    await http.requested.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await http.idle()


async def test_a_body_that_breaks_off_is_a_failure(http: Any) -> None:
    http.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    with pytest.raises(FetchFailed, match="broke off") as caught:
        await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/")
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "retryable"), [(404, False), (403, False), (429, True), (500, True), (304, False)]
)
async def test_a_status_that_is_not_success_is_reported(http: Any, status: int, retryable: bool) -> None:
    http.answers["/"] = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    with pytest.raises(FetchFailed, match=f"answered {status}") as caught:
        await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/#secret")
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert "secret" not in str(caught.value)


async def test_something_that_is_not_http_is_a_failure(http: Any) -> None:
    http.answers["/"] = b"SSH-2.0-OpenSSH_9.2\r\n\r\n"
    with pytest.raises(FetchFailed):
        await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/")


async def test_a_name_without_an_address_is_a_failure_that_may_pass() -> None:
    with pytest.raises(FetchFailed, match="has no address") as caught:
        await fetch(Guard(resolver=Names(gone=[])), "http://gone.test/")
    assert caught.value.retryable


@pytest.mark.parametrize("host", ["a..example", ".example", "a" * 64 + ".example"])
async def test_a_name_that_can_have_no_address_is_the_same_failure(host: str) -> None:
    """The system's resolver is asked, which refuses such a name by itself."""
    with pytest.raises(FetchFailed, match="has no address"):
        await Guard().post_json(f"http://{host}/", b"{}")


async def test_the_next_address_is_tried_when_the_first_takes_no_connection(http: Any) -> None:
    """::1 has nobody on this port: the server listens on 127.0.0.1 only."""
    http.answers["/"] = ok()
    guard = Guard(allow_private=True, resolver=Names(two=[["::1", "127.0.0.1"]]))
    _, body = await fetch(guard, f"http://two.test:{http.port}/")
    assert body == b"hello"


async def test_nobody_there_is_a_failure(http: Any) -> None:
    guard = Guard(allow_private=True, resolver=Names(none=[["::1"]]))
    with pytest.raises(FetchFailed, match=r"none\.test:\d+/ cannot be reached"):
        await fetch(guard, f"http://none.test:{http.port}/")


async def test_proxies_of_the_environment_play_no_part(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    http.answers["/"] = ok()
    _, body = await fetch(Guard(allow_private=True), f"http://127.0.0.1:{http.port}/")
    assert body == b"hello"


async def test_a_webhook_is_posted_as_it_is(http: Any) -> None:
    http.answers["/hook"] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    guard = Guard(allow_private=True, resolver=Names(hook=[["127.0.0.1"]]))
    url = f"http://hook.test:{http.port}/hook"
    assert await guard.post_json(url, b'{"id":"x"}', {"X-Try": "1", "Host": "evil.test"}, SECONDS) == 204
    assert http.received[0].startswith(b"POST /hook HTTP/1.1\r\n")
    assert http.received[0].endswith(b'\r\n\r\n{"id":"x"}')
    assert b"Content-Type: application/json" in http.received[0]
    assert b"X-Try: 1" in http.received[0]
    assert b"evil.test" not in http.received[0]


async def test_a_webhook_does_not_follow_redirects(http: Any) -> None:
    http.answers["/hook"] = redirect(f"http://127.0.0.1:{http.port}/other")
    assert (
        await Guard(allow_private=True).post_json(
            f"http://127.0.0.1:{http.port}/hook", b"{}", timeout_s=SECONDS
        )
        == 302
    )
    assert len(http.received) == 1


async def test_a_webhook_whose_answer_never_ends_is_done_at_its_status(http: Any) -> None:
    http.answers["/hook"] = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\nand so on"
    assert (
        await Guard(allow_private=True).post_json(
            f"http://127.0.0.1:{http.port}/hook", b"{}", timeout_s=SECONDS
        )
        == 200
    )


async def test_a_webhook_that_never_answers_is_left_at_the_time_limit(http: Any) -> None:
    http.answers["/hook"] = None
    with pytest.raises(FetchFailed, match=r"did not answer within 0\.05 s"):
        await Guard(allow_private=True).post_json(f"http://127.0.0.1:{http.port}/hook", b"{}", timeout_s=0.05)


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate with its key, for one name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


async def test_tls_is_for_the_name_though_the_connection_is_to_the_address(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "example.test")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem)
    reported: list[str | None] = []
    serving.sni_callback = lambda _socket, name, _context: reported.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ok(b"private"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    names = Names(example=[["127.0.0.1"]], other=[["127.0.0.1"]])
    guard = Guard(allow_private=True, resolver=names, tls=ssl.create_default_context(cafile=str(pem)))
    async with server:
        _, body = await fetch(guard, f"https://example.test:{port}/")
        assert body == b"private"
        assert reported == ["example.test"]
        with pytest.raises(FetchFailed, match=r"(?i)certificate"):
            await fetch(guard, f"https://other.test:{port}/")
