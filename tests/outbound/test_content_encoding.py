"""Bodies that came compressed although nobody requested it, and labels that are no compression."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.outbound.content_encoding import PIECE_BYTES, NotUnpacked, unpacking_of
from stoker.outbound.download import HttpFile, download
from stoker.outbound.errors import FetchFailed, ObjectDamaged, TooLarge
from stoker.outbound.guard import FetchLimits, Guard, ResponseHead
from stoker.outbound.s3.objects import ObjectStore
from tests.servers.weights_server import weights_server

SECONDS = 20.0  # far above what loopback needs: no test here waits for it
DATA = bytes(range(256)) * 12_000


def raw_deflate(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


def members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:]) + bytes(20)


PACKINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("GZIP", gzip.compress),
    ("x-gzip", gzip.compress),
    ("gzip", members),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("br", lambda data: brotli.compress(data, quality=4)),
    ("aws-chunked,gzip", gzip.compress),
    ("gzip, aws-chunked", gzip.compress),
    ("gzip, br", lambda data: brotli.compress(gzip.compress(data), quality=4)),
]
NO_PACKINGS = [
    "",
    "identity",
    "aws-chunked",
    "AWS-Chunked, ",
    "utf-8",
    "base64",
    "binary",
    "none",
    "image/png",
]


def unpacked(label: str, packed: bytes, size: int = 1 << 16) -> bytes:
    unpacking = unpacking_of(label)
    assert unpacking is not None
    pieces = []
    for at in range(0, len(packed), size):
        pieces += unpacking.pieces(packed[at : at + size])
    unpacking.end()
    return b"".join(pieces)


@given(st.sampled_from(PACKINGS), st.binary(max_size=3000), st.integers(1, 70), st.integers(1, 2000))
def test_what_was_packed_comes_out_however_it_is_cut(
    packing: tuple[str, Callable[[bytes], bytes]], data: bytes, size: int, times: int
) -> None:
    label, pack = packing
    assert unpacked(label, pack(data * times), size * 100) == data * times
    assert unpacked(label, pack(data), size) == data


@given(st.sampled_from(["gzip", "deflate", "br", "gzip, br"]), st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_unpacked_or_refused(label: str, data: bytes, size: int) -> None:
    with suppress(NotUnpacked):
        unpacked(label, data, size)


@pytest.mark.parametrize(("label", "pack"), PACKINGS)
def test_what_ends_too_early_is_cut_off(label: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(DATA).rstrip(b"\0")
    with pytest.raises(NotUnpacked, match="has no end"):
        unpacked(label, packed[:-9])


@pytest.mark.parametrize("label", ["gzip", "deflate", "br"])
def test_an_empty_body_is_one(label: str) -> None:
    assert unpacked(label, b"") == b""


@pytest.mark.parametrize("label", NO_PACKINGS)
def test_a_label_that_is_no_compression_changes_nothing(label: str) -> None:
    assert unpacking_of(label) is None


@pytest.mark.parametrize(
    ("label", "why"), [("zstd", "zstd"), ("gzip, compress", "compress"), ("gzip, gzip, br, gzip", "4 times")]
)
def test_what_is_not_unpacked_is_named(label: str, why: str) -> None:
    with pytest.raises(NotUnpacked, match=why):
        unpacking_of(label)


@pytest.mark.parametrize(("label", "pack"), PACKINGS)
def test_a_bomb_comes_in_pieces(label: str, pack: Callable[[bytes], bytes]) -> None:
    unpacking = unpacking_of(label)
    assert unpacking is not None
    most = max(len(piece) for piece in unpacking.pieces(pack(bytes(20 << 20))))
    assert most <= 2 * PIECE_BYTES  # brotli ends a piece at its next block


# ---- inputs, through the guard


def answer(body: bytes, label: str) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nContent-Encoding: {label}\r\n\r\n".encode() + body
    )


async def fetch(http: Any, file: io.BytesIO, **options: Any) -> Any:
    limits = FetchLimits(**{"timeout_s": SECONDS, **options})
    return await Guard(allow_private=True).fetch_to(f"http://127.0.0.1:{http.port}/", file, limits)


@pytest.mark.parametrize(
    ("label", "pack"), [*PACKINGS, *((label, lambda data: data) for label in NO_PACKINGS)]
)
async def test_an_input_arrives_as_it_is(http: Any, label: str, pack: Callable[[bytes], bytes]) -> None:
    http.answers["/"] = answer(pack(DATA), label)
    file = io.BytesIO()
    fetched = await fetch(http, file)
    assert file.getvalue() == DATA
    assert (fetched.size, fetched.sha256) == (len(DATA), hashlib.sha256(DATA).hexdigest())
    assert b"\r\nAccept-Encoding: identity\r\n" in http.received[0]


@pytest.mark.parametrize(("label", "pack"), PACKINGS)
async def test_the_limit_counts_what_comes_out(http: Any, label: str, pack: Callable[[bytes], bytes]) -> None:
    http.answers["/"] = answer(pack(bytes(20 << 20)), label)
    file = io.BytesIO()
    with pytest.raises(TooLarge, match="is more than the 1000000 bytes that are allowed"):
        await fetch(http, file, size_bytes=1_000_000)
    assert len(file.getvalue()) <= 1_000_000


async def test_a_file_of_just_the_limit_may_be_larger_when_it_is_packed(http: Any) -> None:
    data = hashlib.shake_128(b"noise").digest(100_000)
    packed = gzip.compress(data, 0)
    assert len(packed) > len(data)
    http.answers["/"] = answer(packed, "gzip")
    file = io.BytesIO()
    await fetch(http, file, size_bytes=len(data))
    assert file.getvalue() == data


async def test_a_body_out_of_which_nothing_comes_has_an_end(http: Any) -> None:
    http.answers["/"] = answer(gzip.compress(b"") * 5_000, "gzip")
    with pytest.raises(TooLarge):
        await fetch(http, io.BytesIO(), size_bytes=1_000)


@pytest.mark.parametrize(
    ("body", "label", "why"),
    [
        (b"plain", "gzip", "is labelled gzip, and is damaged or no gzip data"),
        (gzip.compress(DATA)[:-9], "gzip", "broke off: its gzip data has no end"),
        (b"?", "zstd", "sent a body compressed with zstd, which was not requested"),
    ],
)
async def test_a_body_that_cannot_be_unpacked_is_said_as_it_is(
    http: Any, body: bytes, label: str, why: str
) -> None:
    http.answers["/"] = answer(body, label)
    with pytest.raises(FetchFailed, match=why) as caught:
        await fetch(http, io.BytesIO())
    assert caught.value.reason == "bad_answer"


async def test_the_size_of_a_packed_body_is_not_announced_as_that_of_the_file(http: Any) -> None:
    heads: list[ResponseHead] = []
    http.answers["/"] = answer(gzip.compress(DATA), "gzip")
    await Guard(allow_private=True).fetch_to(
        f"http://127.0.0.1:{http.port}/", io.BytesIO(), FetchLimits(timeout_s=SECONDS), on_head=heads.append
    )
    assert [head.size for head in heads] == [None]


# ---- weights


def ignore(_: int) -> None:
    pass


@pytest.fixture
def labelled() -> Iterator[Any]:
    with weights_server() as server:
        yield server


@pytest.mark.parametrize(("label", "pack"), [*PACKINGS, ("aws-chunked", lambda data: data)])
def test_weights_arrive_as_they_are(
    labelled: Any, tmp_path: Path, label: str, pack: Callable[[bytes], bytes]
) -> None:
    labelled.files["/a"], labelled.encoding = pack(DATA), label
    digest = download(HttpFile(f"{labelled.url}/a"), tmp_path / "a", len(DATA), ignore)
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert (tmp_path / "a").read_bytes() == DATA


@pytest.mark.parametrize(("label", "pack"), [("gzip", gzip.compress), ("aws-chunked", lambda data: data)])
def test_what_broke_off_is_completed_by_what_the_ranges_count(
    labelled: Any, tmp_path: Path, label: str, pack: Callable[[bytes], bytes]
) -> None:
    """A packed file is sent as a whole."""
    labelled.files["/a"], labelled.encoding = pack(DATA), label
    (tmp_path / "a").write_bytes(DATA[:1000])
    digest = download(HttpFile(f"{labelled.url}/a"), tmp_path / "a", len(DATA), ignore)
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert (tmp_path / "a").read_bytes() == DATA
    wanted = [one for _, one, _ in labelled.seen]
    assert wanted == (["bytes=1000-", None] if label == "gzip" else ["bytes=1000-"])


def test_more_weights_than_expected_are_refused_before_all_are_unpacked(
    labelled: Any, tmp_path: Path
) -> None:
    labelled.files["/a"], labelled.encoding = gzip.compress(bytes(50 << 20)), "gzip"
    with pytest.raises(TooLarge):
        download(HttpFile(f"{labelled.url}/a"), tmp_path / "a", 1000, ignore)


def test_weights_that_are_no_gzip_are_said_to_be_none(labelled: Any, tmp_path: Path) -> None:
    labelled.files["/a"], labelled.encoding = DATA, "gzip"
    with pytest.raises(FetchFailed, match="is labelled gzip, and is damaged or no gzip data"):
        download(HttpFile(f"{labelled.url}/a"), tmp_path / "a", len(DATA), ignore)


def test_an_object_that_was_stored_compressed_is_unpacked(store: ObjectStore, tmp_path: Path) -> None:
    def stored(data: bytes, label: str) -> None:
        s3 = store.connections.client(store.connections.first)
        s3.put_object(Bucket=store.config.bucket, Key="w/a", Body=data, ContentEncoding=label)

    for label, data in [("gzip", gzip.compress(DATA)), ("aws-chunked", DATA)]:
        stored(data, label)
        store.get_file("w/a", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == DATA
    stored(DATA, "gzip")
    with pytest.raises(ObjectDamaged, match="is labelled gzip"):
        store.get_file("w/a", tmp_path / "b")
    assert not (tmp_path / "b").exists()
