"""New credentials of an outside object store: what the old pair signed lives as long as that is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers.s3_with_pairs import Pair, s3_with_pairs
from tests.system.stack import fetched, files_below, queue_endpoint, running

OLD, NEW = Pair("old-access-id", "the-old-access-secret"), Pair("new-access-id", "the-new-access-secret")
FILE = queue_endpoint("file", "files/file_when_told.py", workersMin=2, workersMax=2)


def url_of(record: dict[str, Any]) -> str:
    assert record["status"] == "COMPLETED", record
    return str(record["output"]["greeting"])


def signer(url: str) -> str:
    """Returns the access id of the pair that signed it."""
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]


@pytest.mark.slow
def test_jobs_run_through_a_change_of_credentials_and_old_urls_live_as_long_as_the_old_pair(
    tmp_path: Path,
) -> None:
    folder, go = tmp_path / "stack", tmp_path / "go"
    folder.mkdir()
    with (
        s3_with_pairs(tmp_path / "store", OLD, NEW) as s3,
        running(folder, s3.section(OLD), FILE) as stack,
    ):
        before = stack.runsync("file", {"text": "before", "go": "/"})
        job = stack.run("file", {"text": "meanwhile", "go": str(go)})
        stack.first_chunk("file", job)
        stack.config.write_text(stack.config.read_text().replace(s3.section(OLD), s3.section(NEW)))
        stack.end_control()
        stack.start_control()
        go.touch()
        meanwhile = stack.end_of("file", job)
        after = stack.runsync("file", {"text": "after", "go": "/"})
        urls = {"before": url_of(before), "meanwhile": url_of(meanwhile), "after": url_of(after)}
        assert [signer(url) for url in urls.values()] == [OLD.access_id, NEW.access_id, NEW.access_id]
        assert {text: fetched(url).text for text, url in urls.items()} == {text: text for text in urls}
        s3.start(NEW)
        assert fetched(urls["before"]).status_code == 403
        assert [fetched(urls[text]).text for text in ("meanwhile", "after")] == ["meanwhile", "after"]
        assert url_of(stack.status("file", before["id"])) == urls["before"], "nothing signs it again"
        assert b"before" in [path.read_bytes() for path in files_below(s3.folder)], "the object stays"
