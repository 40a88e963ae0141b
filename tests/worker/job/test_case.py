"""The facts of a job that fails, as the worker notes them for its case."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.job import case
from stoker.worker.job.case import is_own, raised_facts, source_digests
from stoker.worker.testing import LocalJob


def raises(_job: Any) -> Any:
    return int("x")


def noted(handler: Any, job_input: Any = None, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    LocalJob(handler, job_input, on_case=found.append, **options).run()
    return found


def test_they_are_sent_at_the_begin_and_with_the_exception() -> None:
    first, last = noted(raises)
    assert "raised" not in first
    assert last["raised"]["type"] == "builtins.ValueError"
    assert last["raised"]["function"] == "raises"
    assert Path(last["raised"]["file"]).name == "test_case.py"
    assert last["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    assert last["scratch"]


def test_a_handler_that_returns_notes_no_exception() -> None:
    (only,) = noted(lambda _job: 1)
    assert "raised" not in only


def test_nobody_asks_and_nothing_is_noted() -> None:
    assert LocalJob(raises).run().error is not None  # a `case` frame would find no one who takes it


def test_names_of_variables_are_there_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_HANDLER", "s3cr3t")
    monkeypatch.setenv("STOKER_IMAGE_ID", "sha256:12")
    found = noted(raises)[-1]
    assert "OF_THE_HANDLER" in found["environment"]
    assert "s3cr3t" not in str(found)
    assert found["settings"]["STOKER_IMAGE_ID"] == "sha256:12", "but for those that say what it runs"


def test_a_file_is_noted_without_the_query_of_its_url(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    url = "https://files.example/a.txt?signature=s3cr3t"
    files = {"https://files.example/a.txt": tmp_path / "a.txt"}
    found = noted(lambda job: job.fetch(url).path.read_text(), files=files)
    assert [[one["url"] for one in facts["files"]] for facts in found] == [
        [],
        ["https://files.example/a.txt"],
    ]
    assert found[-1]["files"][0]["size"] == 1
    assert "s3cr3t" not in str(found)


def test_a_file_that_is_not_to_be_had_is_refused() -> None:
    job = LocalJob(lambda job: job.fetch("https://files.example/a"), files={"https://files.example/a": ""})
    assert job.run().error == "https://files.example/a is not to be had here"


def test_only_the_users_own_sources_are_digested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "_NAMES_MOST", len(sys.modules))  # other tests have imported many
    case._source_digests.cache_clear()
    assert is_own(__file__)
    assert not is_own(os.__file__)
    assert not is_own(pytest.__file__)
    assert not is_own(sys.modules["stoker.worker.testing"].__file__ or "")
    names = {Path(file).name for file in source_digests()}
    case._source_digests.cache_clear()
    assert "test_case.py" in names
    assert "testing.py" not in names


def test_without_a_frame_of_the_users_own_the_innermost_is_named() -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        exec(compile("subprocess.check_call(['false'])", "<made>", "exec"), {"subprocess": subprocess})
    error = found.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    facts = raised_facts(error)
    assert (facts["type"], facts["file"]) == ("subprocess.CalledProcessError", "subprocess.py")
