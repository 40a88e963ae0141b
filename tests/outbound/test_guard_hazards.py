"""Servers that mean harm, or are merely broken: what the guard makes of each."""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import Sequence
from typing import Any

import pytest

from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused
from stoker.outbound.guard import FetchLimits, Guard, ResponseHead
from stoker.outbound.refused_addresses import forbidden
from stoker.outbound.wait_limits import Waiter

SECONDS = 20.0  # far above what loopback needs: no test here waits for it
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


async def fetch(url: str, guard: Guard | None = None, **limits: Any) -> tuple[Any, bytes]:
    file = io.BytesIO()
    fetched = await (guard or Guard(allow_private=True)).fetch_to(
        url, file, FetchLimits(**{"timeout_s": SECONDS, **limits})
    )
    return fetched, file.getvalue()


def at(http: Any, path: str = "/") -> str:
    return f"http://127.0.0.1:{http.port}{path}"


# -- names and addresses


@pytest.mark.parametrize(
    "wrapped",
    [
        "64:ff9b:1::7f00:1",  # NAT64 of a local prefix
        "::ffff:0:7f00:1",  # IPv4 translated
        "64:ff9b::a9fe:a9fe",
        "2002:0a00:0001::",  # 6to4 of 10.0.0.1
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
        "::ffff:169.254.169.254",
        "0:0:0:0:0:ffff:7f00:0001",
    ],
)
def test_forms_that_lead_to_an_ipv4_address_lead_nowhere(wrapped: str) -> None:
    assert forbidden(wrapped, False)


@pytest.mark.parametrize(
    "host",
    ["①②⑦.⓪.⓪.①", "127。0。0。1", "%31%32%37.0.0.1", "127.0.0.1.", "[::]", "0", "0x7f.1", "017700000001"],
)
async def test_no_spelling_of_loopback_gets_through(http: Any, host: str) -> None:
    """With the system's resolver. Whatever the client makes of the name is what is resolved and judged."""
    with pytest.raises((UrlRefused, FetchFailed)):
        await fetch(f"http://{host}:{http.port}/", Guard())
    assert http.received == []


async def test_a_redirect_to_a_rebound_name_goes_to_the_address_that_was_judged(http: Any) -> None:
    """Each hop asks once: the second answer for the same name is judged for the second hop."""
    lookups: list[str] = []

    async def rebinding(host: str, port: int, whose: Waiter) -> Sequence[str]:
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    http.answers["/"] = (
        b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    with pytest.raises(UrlRefused) as caught:
        await fetch(f"http://rebind.test:{http.port}/", Guard(allow_private=True, resolver=rebinding))
    assert caught.value.reason == "private_address"
    assert (len(http.received), lookups) == (1, ["rebind.test", "rebind.test"])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://a.test/", "scheme"),
        ("http://me:hunter2@a.test/", "malformed"),
        ("http://a.test:0/", "malformed"),
    ],
)
async def test_a_refusal_has_its_reason(url: str, reason: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        await fetch(url)
    assert caught.value.reason == reason
    assert "hunter2" not in str(caught.value)


async def test_a_loop_of_redirects_ends(http: Any) -> None:
    http.answers["/"] = b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with pytest.raises(FetchFailed, match="more than 10 redirects") as caught:
        await fetch(at(http))
    assert caught.value.reason == "redirect"
    assert len(http.received) == 11


async def test_a_redirect_does_not_carry_cookies(http: Any) -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: /b\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    http.answers |= {"/": redirect, "/b": HEAD + b"\r\nbody"}
    await fetch(at(http))
    assert b"cookie" not in http.received[1].lower()


# -- heads


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X: " + b"x" * (1 << 20) + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: x\r\n" % n for n in range(100_000)) + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + b"x" * (1 << 20),
    ],
    ids=["one huge", "very many", "interim"],
)
async def test_a_head_without_an_end_is_abandoned(http: Any, head: bytes) -> None:
    http.answers["/"] = head
    with pytest.raises(FetchFailed):
        await fetch(at(http))


@pytest.mark.parametrize("length", ["-5", "abc", "9" * 5000, "5, 6", "0x10", "²"])
async def test_a_length_that_is_no_number_is_a_failure(http: Any, length: str) -> None:
    http.answers["/"] = HEAD + f"Content-Length: {length}\r\n\r\nhello".encode()
    with pytest.raises((FetchFailed, TooLarge)):
        await fetch(at(http))


async def test_a_body_longer_than_announced_is_cut_where_it_was_announced_to_end(http: Any) -> None:
    http.answers["/"] = HEAD + b"Content-Length: 5\r\n\r\nhello and more"
    _, body = await fetch(at(http))
    assert body == b"hello"


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "deflate"])
async def test_a_bomb_in_the_transfer_coding_is_a_failure(http: Any, coding: str) -> None:
    packed = gzip.compress(bytes(1 << 20))
    http.answers["/"] = HEAD + f"Transfer-Encoding: {coding}\r\n\r\n{len(packed):x}\r\n".encode() + packed
    with pytest.raises(FetchFailed):
        await fetch(at(http))


# -- bodies


class Endless:
    """A server that never stops talking, or stops in the middle; `left` once its client has gone."""

    def __init__(self, head: bytes, chunk: bytes) -> None:
        self.head, self.chunk = head, chunk
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.head)
            while self.chunk:
                writer.write(self.chunk)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.left.set()

    async def meet(self, **limits: Any) -> Exception:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises((FetchFailed, TooLarge)) as caught:
                await fetch(url, **limits)
            await self.left.wait()
        return caught.value


async def test_an_endless_chunked_body_is_cut() -> None:
    endless = Endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n" * 100)
    assert isinstance(await endless.meet(size_bytes=100_000), TooLarge)


async def test_a_chunk_header_without_an_end_is_abandoned() -> None:
    endless = Endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5;x=" + b"y" * 10_000)
    assert isinstance(await endless.meet(size_bytes=100_000), FetchFailed)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", HEAD + b"Content-Length: 10\r\n\r\nhalf"])
async def test_a_server_that_falls_silent_is_left(head: bytes) -> None:
    error = await Endless(head, b"").meet(silence_s=0.05)
    assert isinstance(error, FetchFailed)
    assert (error.reason, error.retryable) == ("too_slow", True)
    assert "sent nothing for 0.05 s" in str(error)


async def test_a_body_in_drops_is_left_at_the_time_limit() -> None:
    """Never silent for long, and never done."""

    class Drops(Endless):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.head)
                gone = asyncio.ensure_future(reader.read())
                while not gone.done():
                    writer.write(b"x")
                    await asyncio.wait([gone], timeout=0.005)
            finally:
                writer.close()
                self.left.set()

    error = await Drops(HEAD + b"\r\n", b"").meet(silence_s=SECONDS, timeout_s=0.1)
    assert isinstance(error, FetchFailed)
    assert error.reason == "too_slow"


# -- asking whether something changed


async def test_an_answer_is_received_before_its_body_and_can_be_turned_down(http: Any) -> None:
    http.answers["/"] = HEAD + b'ETag: "a"\r\nContent-Length: 5\r\n\r\nhello'
    reported: list[ResponseHead] = []

    def refuse(answer: ResponseHead) -> None:
        reported.append(answer)
        raise TooLarge("not for me")

    file = io.BytesIO()
    with pytest.raises(TooLarge, match="not for me"):
        await Guard(allow_private=True).fetch_to(
            at(http), file, FetchLimits(timeout_s=SECONDS), on_head=refuse
        )
    [answer] = reported
    assert (answer.size, answer.hops, answer.headers["etag"], answer.url) == (5, 0, '"a"', at(http))
    assert file.getvalue() == b""


async def test_what_has_not_changed_is_printed_so(http: Any) -> None:
    http.answers |= {
        "/": b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "/b": b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n",
    }
    file = io.BytesIO()
    fetched = await Guard(allow_private=True).fetch_to(
        at(http), file, FetchLimits(timeout_s=SECONDS), conditions={"If-None-Match": '"a"'}
    )
    assert fetched.head.unchanged
    assert (fetched.head.url, fetched.head.hops) == (at(http, "/b"), 1)
    assert all(b'If-None-Match: "a"' in request for request in http.received)


@pytest.mark.parametrize(("status", "reason"), [(404, "not_found"), (410, "not_found"), (403, "http_status")])
async def test_a_status_has_its_reason(http: Any, status: int, reason: str) -> None:
    http.answers["/"] = f"HTTP/1.1 {status} No\r\nConnection: close\r\n\r\n".encode()
    with pytest.raises(FetchFailed) as caught:
        await fetch(at(http))
    assert caught.value.reason == reason
