"""`stoker predict` as its user calls it: a process, its two streams, its files and its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stoker.cli.predict.run import print_event, save_files
from stoker.worker.testing import LocalFile

COMMAND = [sys.executable, "-m", "stoker.cli", "predict"]
WHOLE = """
import os
from stoker.worker import File
class Handler:
    def setup(self, device):
        print("on", device.torch_device)
    def run(self, job):
        os.system("echo from a child")
        job.progress({"step": 1})
        job.emit({"partial": "é"})
        (job.scratch / "loud.txt").write_text(job.input["text"].upper())
        return {"files": [File(job.scratch / "loud.txt")] * 2, "n": job.input["n"]}
"""
FAILING = """
from stoker.worker import HandlerError
def raises(job):
    return {}[job.input["key"]]
def explains(job):
    raise HandlerError("the image is too small")
class NoSetup:
    def setup(self, device):
        raise OSError("no weights")
    def run(self, job):
        return 1
"""
PATIENT = """
import threading
def handler(job):
    job.progress("begun")
    pause = threading.Event()
    while not pause.wait(0.01):
        job.raise_if_cancelled()
"""


def predict(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """The process, with its lines on standard error as they come. SIGINT reaches it whatever this process
    does with its own."""
    command = [*COMMAND, *arguments]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stderr is not None
        try:
            yield process, (line.rstrip("\n") for line in process.stderr)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(beginning: str, lines: Iterator[str]) -> None:
    seen = []
    for line in lines:
        seen.append(line)
        if line.startswith(beginning):
            return
    raise AssertionError(f"no line began with {beginning!r}: {seen}")


def wait_for_inotify(pid: int) -> None:
    """Until the kernel tells the process of changes: what is changed earlier, it need not see."""
    pause = threading.Event()
    for _ in range(3000):
        with suppress(FileNotFoundError):  # a descriptor that was closed meanwhile
            if any("inotify wd:" in info.read_text() for info in Path(f"/proc/{pid}/fdinfo").iterdir()):
                return
        pause.wait(0.01)
    raise AssertionError("the process never watched a folder")


def test_the_output_alone_is_on_standard_output_and_the_files_are_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(WHOLE)
    ran = predict(
        "model.py:Handler", "--cpu", "--set", "text=hi", "--set", "n=2", "--out", "o", folder=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"files": ["o/loud.txt", "o/loud-2.txt"], "n": 2}
    assert (tmp_path / "o" / "loud-2.txt").read_text() == "HI"
    lines = ran.stderr.splitlines()
    assert lines[:5] == [
        "on CPU",
        "on cpu",
        "from a child",
        'progress {"step": 1}',
        'chunk {"partial": "é"}',
    ]
    assert lines[5].startswith("done in ")


def test_the_input_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def handler(job):\n    return job.input\n")
    (tmp_path / "in.json").write_text('{"words": ["é"]}')
    ran = predict("model.py:handler", "@in.json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"words": ["é"]}


def test_a_handler_that_raises_shows_its_own_lines_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(FAILING)
    raised = predict("bad.py:raises", '{"key": "k"}', folder=tmp_path)
    assert (raised.returncode, raised.stdout) == (1, "")
    assert 'return {}[job.input["key"]]' in raised.stderr
    assert "KeyError: 'k'" in raised.stderr
    assert "/stoker/" not in raised.stderr, "no frame of Stoker's own"
    explained = predict("bad.py:explains", folder=tmp_path)
    assert (explained.returncode, explained.stderr.splitlines()[-1]) == (1, "the image is too small")
    unready = predict("bad.py:NoSetup", folder=tmp_path)
    assert (unready.returncode, "OSError: no weights" in unready.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none.py:handler"], "there is no file"),
        (["bad.py:other"], "bad.py has no other; it defines NoSetup, explains, raises"),
        (["bad.py"], "bad.py has no handler"),
        (["bad.py:raises", "[1]"], "must hold a JSON object"),
        (["bad.py:raises", "-", "--watch"], "standard input does not allow"),
    ],
)
def test_what_cannot_be_run_is_one_message(arguments: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(FAILING)
    ran = predict(*arguments, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert text in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_first_ctrl_c_cancels_the_job(tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(PATIENT)
    with running("patient.py", folder=tmp_path) as (process, lines):
        wait_for('progress "begun"', lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert list(lines)[-1] == "cancelled: Ctrl-C"


def test_a_saved_file_is_run_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "shout.py"
    file.write_text("def handler(job):\n    print('first', job.input['text'])\n")
    with running("shout.py", "--watch", "--set", "text=a b", folder=tmp_path) as (process, lines):
        wait_for("first a b", lines)
        wait_for("done in", lines)
        wait_for_inotify(process.pid)
        file.write_text(PATIENT)
        wait_for("changed: shout.py", lines)
        wait_for('progress "begun"', lines)
        file.write_text("def handler(job):\n    print('third')\n")
        wait_for("cancelled: Ctrl-C", lines)
        wait_for("third", lines)
        wait_for("done in", lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not (tmp_path / "out").exists(), "no file, no folder"


def test_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"1")
    file = LocalFile(source, "../a.png", "image/png")
    assert save_files([file, {"x": [file]}, 1], tmp_path / "to") == [
        str(tmp_path / "to" / "a.png"),
        {"x": [str(tmp_path / "to" / "a-2.png")]},
        1,
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "to"], "no name leaves the folder"


READS = """
import urllib.request
def handler(job):
    with urllib.request.urlopen(job.input["image"]) as answer:
        read = answer.read().decode()
    job.progress({"preview": "x" * 5000})
    return {"read": read, "to": job.input["to"], "text": job.input["text"]}
"""


def test_a_local_file_is_given_as_a_url_and_a_text_stays_a_text(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    (tmp_path / "a b.txt").write_text("contents")
    sets = [f"--set={one}" for one in ("image=@a b.txt", "to=@nobody", "text=plain")]
    done = predict("reads.py", *sets, folder=tmp_path)
    assert json.loads(done.stdout) == {"read": "contents", "to": "@nobody", "text": "plain"}, done.stderr
    assert "x" * 5000 in done.stderr, "whole for a program that reads"


def test_a_preview_is_cut_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_event("progress", {"preview": "x" * 5000, "step": 1})
    cut = '{"preview": "xxxxxxxxxxxxxxxxxxxx… (5000 characters)", "step": 1}'
    assert capsys.readouterr().err == f"progress {cut}\n"
