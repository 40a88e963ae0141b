"""One large file from a server or a folder: resumed where it broke off; the digest is that of the whole."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.outbound.download import DownloadStopped, HttpFile, LocalFile, Rest, download
from stoker.outbound.errors import FetchFailed, TooLarge
from tests.servers.weights_server import WeightsServer, weights_server

DATA = bytes(range(256)) * 12_000  # 3 MB: some pieces
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server() -> Iterator[WeightsServer]:
    with weights_server() as running:
        running.files["/a"] = DATA
        yield running


def ignore(_: int) -> None:
    pass


def test_the_rest_is_requested_and_the_whole_is_hashed(server: WeightsServer, tmp_path: Path) -> None:
    server.breaks_after = 1_000_000
    with pytest.raises(FetchFailed) as broke:
        download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), ignore)
    assert broke.value.retryable
    there = (tmp_path / "a").stat().st_size
    server.breaks_after = None
    arrived: list[int] = []
    assert download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), arrived.append) == SHA256
    assert [wanted for _, wanted, _ in server.seen] == [None, f"bytes={there}-" if there else None]
    assert arrived[-1] == len(DATA)
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_server_that_knows_no_ranges_sends_all_of_it(server: WeightsServer, tmp_path: Path) -> None:
    server.resumes = False
    (tmp_path / "a").write_bytes(b"x" * 1000)
    assert download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), ignore) == SHA256
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_whole_file_is_hashed_and_not_requested(server: WeightsServer, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    assert download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), ignore) == SHA256
    assert server.seen == []


def test_a_file_that_is_too_long_is_begun_anew(server: WeightsServer, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA + b"more")
    assert download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), ignore) == SHA256


def test_more_than_is_expected_is_refused_and_removed(server: WeightsServer, tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA) - 1, ignore)
    assert (tmp_path / "a").stat().st_size == 0


@pytest.mark.parametrize(
    ("status", "retryable"), [(401, False), (404, False), (416, False), (500, True), (429, True)]
)
def test_a_status_says_whether_it_may_pass(
    server: WeightsServer, tmp_path: Path, status: int, retryable: bool
) -> None:
    server.statuses["/a"] = status
    with pytest.raises(FetchFailed) as failed:
        download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), ignore)
    assert (failed.value.status, failed.value.retryable) == (status, retryable)


def test_a_credential_is_not_sent_on_to_another_host(server: WeightsServer, tmp_path: Path) -> None:
    with weights_server() as other:
        other.files["/b"] = DATA
        server.redirects["/a"] = f"{other.url}/b"
        source = HttpFile(f"{server.url}/a", {"Authorization": "Bearer hf_secret"})
        assert download(source, tmp_path / "a", len(DATA), ignore) == SHA256
        assert [credential for *_, credential in server.seen] == ["Bearer hf_secret"]
        assert [credential for *_, credential in other.seen] == [None]
    assert "hf_secret" not in repr(source)


def test_nobody_listens(tmp_path: Path) -> None:
    with weights_server() as gone:
        url = gone.url
    with pytest.raises(FetchFailed) as failed:
        download(HttpFile(f"{url}/a"), tmp_path / "a", 5, ignore)
    assert failed.value.retryable


def test_it_stops_between_two_pieces_and_keeps_what_arrived(server: WeightsServer, tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(DownloadStopped):
        download(HttpFile(f"{server.url}/a"), tmp_path / "a", len(DATA), seen.append, lambda: len(seen) > 1)
    assert (tmp_path / "a").stat().st_size == seen[-1]


def test_a_folder_is_read_from_where_the_copy_ends(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    (tmp_path / "a").write_bytes(DATA[:12_345])
    assert download(LocalFile(tmp_path / "source"), tmp_path / "a", len(DATA), ignore) == SHA256
    (tmp_path / "short").write_bytes(b"ab")
    with pytest.raises(FetchFailed, match="broke off after 2 of 3 bytes"):
        download(LocalFile(tmp_path / "short"), tmp_path / "b", 3, ignore)


class Flaky:
    """Begins where it is asked to, or at the beginning, and breaks off after so many bytes."""

    def __init__(self, data: bytes, behaviours: list[tuple[bool, int]]) -> None:
        self.data, self.behaviours = data, behaviours

    @contextmanager
    def rest(self, begins_at: int) -> Iterator[Rest]:
        ranges, most = self.behaviours.pop(0) if self.behaviours else (True, len(self.data))
        begins = begins_at if ranges else 0
        sent = self.data[begins : begins + most]
        yield Rest(begins, iter([sent[n : n + 7] for n in range(0, len(sent), 7)]))


@given(
    st.binary(max_size=60),
    st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=6),
    st.binary(max_size=80),
)
def test_however_often_it_breaks_off_the_digest_is_that_of_what_is_there(
    data: bytes, behaviours: list[tuple[bool, int]], left: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, source = Path(folder, "a"), Flaky(data, behaviours)
        path.write_bytes(left)
        for _ in range(len(behaviours) + 1):
            try:
                digest = download(source, path, len(data), ignore)
            except FetchFailed:
                assert path.stat().st_size < len(data)
                continue
            assert path.stat().st_size == len(data)
            assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
            return
        raise AssertionError("it never ended")
