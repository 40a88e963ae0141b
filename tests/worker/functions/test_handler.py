"""Functions of an app run by the handler, in real interpreters."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from stoker.app_values import decode, encode
from stoker.client.apps.definition import Definition
from stoker.client.apps.resources import version_env
from stoker.worker.errors import Cancelled
from stoker.worker.functions import child, messages
from stoker.worker.functions.handler import Functions
from stoker.worker.testing import LocalFile
from tests.worker.functions.function_apps import App, run

SOURCE = """
import os
import threading
import numpy
from stoker.client import endpoint
from stoker.worker import HandlerError
from stoker.worker.functions import progress
from lib import doubled


@endpoint()
def caption(text: str, n: int = 1) -> dict:
    print("captioning", text)
    progress({"step": 1})
    return {"text": doubled(text) * n, "pid": os.getpid()}


@endpoint()
def shapes(array, data: bytes):
    return {"sum": array.sum(), "array": array + 1, "data": data * 2}


@endpoint()
def gives(**rest):
    return rest


@endpoint()
async def count(n: int):
    for i in range(n):
        yield i


@endpoint()
class Model:
    def __init__(self):
        self.calls = 0

    def embed(self, text: str):
        self.calls += 1
        return self.calls

    def words(self, text: str):
        yield from text.split()


@endpoint()
def fails(how: str):
    if how == "raise":
        raise ValueError("no\\u0000such thing")
    if how == "exit":
        raise SystemExit(3)
    if how == "die":
        os.kill(os.getpid(), 9)
    if how == "real time":
        os.kill(os.getpid(), 35)
    if how == "handler":
        raise HandlerError("this is why")
    if how == "digits":
        return 10**5000
    if how == "dies, but not what it forked":
        if os.fork():
            os.kill(os.getpid(), 9)
        progress({"of": "no call"})
        with open("forked.pid", "w") as file:
            print(os.getpid(), file=file, flush=True)
        for _ in range(2000):
            threading.Event().wait(0.01)
        os._exit(0)
    return {how}


kept = []


@endpoint()
def keeps(count: int):
    kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))
    return [os.getpid(), len(kept)]


@endpoint()
def waits(file: str):
    open(file, "w").close()
    while True:
        pass


@endpoint()
async def sleeps(file: str):
    import asyncio
    try:
        open(file, "w").close()
        await asyncio.sleep(1000)
    finally:
        os.unlink(file)
"""

LINE = next(n for n, line in enumerate(SOURCE.splitlines(), 1) if "raise ValueError" in line)


@pytest.fixture
def app(tmp_path: Path) -> App:
    files = {"03_mixed/app.py": SOURCE, "03_mixed/lib.py": "def doubled(text):\n    return text * 2\n"}
    return App.write(tmp_path / "app", files)


async def test_a_function_runs_there_as_it_does_here(live: Functions, app: App, capfd: Any) -> None:
    job = await run(live, app.request("caption", text="ab", n=2))
    assert job.output["text"] == "abababab"
    assert job.output["pid"] != os.getpid()
    assert job.progress == [{"step": 1}]
    assert capfd.readouterr().out == "captioning ab\n"


async def test_arrays_and_bytes_go_both_ways(live: Functions, app: App) -> None:
    array, data = numpy.arange(6, dtype="float32").reshape(2, 3), bytes(200_000)
    job = await run(live, app.request("shapes", array=array, data=data))
    assert isinstance(job.output["data"]["url"], LocalFile)
    found = decode(job.output, lambda tagged: tagged["url"].read_bytes())
    assert found["sum"] == 15
    assert found["data"] == data * 2
    numpy.testing.assert_array_equal(found["array"], array + 1)


async def test_an_argument_may_be_at_a_url_and_never_a_file_of_the_worker(
    live: Functions, app: App, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"xy")
    request = app.request("shapes", array=numpy.zeros(1), data=b"")
    request["kwargs"]["data"] = {"$stoker": "bytes", "url": f"file://{tmp_path}/data"}
    assert decode((await run(live, request)).output)["data"] == b"xyxy"
    request["kwargs"]["data"] = {"$stoker": "bytes", "file": str(tmp_path / "data")}
    assert "must have data or url" in str((await run(live, request)).error)


async def test_an_object_that_looks_like_bytes_is_an_object(
    live: Functions, app: App, tmp_path: Path
) -> None:
    looks = {"$stoker": "bytes", "file": str(tmp_path / "data"), "url": "file:///none"}
    assert (await run(live, app.request("gives", value=looks, more=[looks]))).output == encode(
        {"value": looks, "more": [looks]}
    )


async def test_no_way_of_writing_arguments_reads_a_file_of_the_worker(
    live: Functions, app: App, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"secret")
    named = {"$stoker": "bytes", "file": str(tmp_path / "data")}
    request = app.request("gives")
    for kwargs in ({"a": named}, {"a": [{"b": named}]}, {"$stoker": "object", "value": named}, named):
        request["kwargs"] = kwargs
        job = await run(live, request)
        assert job.error is not None or "c2VjcmV0" not in str(job.output), job.output
    request["kwargs"] = {"$stoker": "object", "value": named}
    assert "must have data or url" in str((await run(live, request)).error)


async def test_what_is_yielded_is_partial_output(live: Functions, app: App) -> None:
    job = await run(live, app.request("count", n=3))
    assert (job.chunks, job.output) == ([0, 1, 2], [0, 1, 2])
    job = await run(live, app.request("Model.words", text="a b"))
    assert (job.chunks, job.output) == (["a", "b"], ["a", "b"])


async def test_an_instance_is_kept_until_its_code_changes(live: Functions, app: App) -> None:
    request = app.request("Model.embed", text="x")
    assert [(await run(live, request)).output for _ in range(2)] == [1, 2]
    before = (await run(live, app.request("caption", text="a"))).output["pid"]
    (app.root / "03_mixed" / "lib.py").write_text("def doubled(text):\n    return text + '!'\n")
    job = await run(live, app.request("caption", text="a"))
    assert job.output["text"] == "a!"
    assert job.output["pid"] != before
    assert (await run(live, app.request("Model.embed", text="x"))).output == 1
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


async def test_a_process_whose_calls_keep_descriptors_is_replaced(live: Functions, app: App) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        request = app.request("keeps", count=100)
        outputs = [(await run(live, request)).output for _ in range(4)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [count for _, count in outputs] == [100, 200, 100, 200], "never too few for the next call"
    assert len({pid for pid, _ in outputs}) == 2


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raise", f'File "03_mixed/app.py", line {LINE}, in fails'),
        ("exit", "sys.exit(3)"),
        ("die", "killed by SIGKILL"),
        ("real time", "killed by signal 35"),
        ("handler", "this is why"),
        ("set", "what fails returned is a set"),
        ("digits", "ValueError: Exceeds the limit"),
    ],
)
async def test_a_failed_call_says_why_and_the_next_one_runs(
    live: Functions, app: App, how: str, says: str
) -> None:
    job = await run(live, app.request("fails", how=how))
    assert says in str(job.error)
    assert str(app.root) not in str(job.error)
    assert (await run(live, app.request("caption", text="a"))).output["text"] == "aa"


async def test_wrong_calls_are_sentences(live: Functions, app: App) -> None:
    assert "missing a required argument: 'text'" in str((await run(live, app.request("caption"))).error)
    request = app.request("caption", text="a")
    request["function"]["callable"] = "Model._hidden"
    assert "has no Model._hidden" in str((await run(live, request)).error)
    request["function"] = {"module": "os", "callable": "missing"}
    assert "the module os has no missing" in str((await run(live, request)).error)
    request["bundle"]["hash"] = "0" * 64
    assert "not that of its hash" in str((await run(live, request)).error)
    assert "bundle must be" in str((await run(live, {"text": "x"})).error)


async def test_an_error_of_the_import_is_shown(live: Functions, app: App) -> None:
    (app.root / "03_mixed" / "lib.py").write_text("import module_that_is_missing\n")
    error = str((await run(live, app.request("caption", text="a"))).error)
    assert "ModuleNotFoundError" in error
    assert 'File "03_mixed/lib.py", line 1' in error


@pytest.mark.parametrize("name", ["waits", "sleeps"])
async def test_a_cancel_ends_the_function_alone(live: Functions, app: App, tmp_path: Path, name: str) -> None:
    pid = (await run(live, app.request("caption", text="a"))).output["pid"]
    file = tmp_path / "began"
    job = asyncio.create_task(live.run(cancellable(app.request(name, file=str(file)), tmp_path)))
    while not file.exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.01)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert file.exists() == (name == "waits")
    assert (await run(live, app.request("caption", text="a"))).output["pid"] == pid


def cancellable(request: dict[str, Any], folder: Path) -> Any:
    """As much of a job as the handler reads."""

    class Given:
        input = request
        scratch = folder

        def progress(self, value: object) -> None: ...

        emit = progress

    return Given()


async def test_several_calls_run_at_once(
    functions: Callable[..., Awaitable[Functions]], app: App, tmp_path: Path
) -> None:
    source = (
        "from stoker.client import endpoint\nimport threading\nmet = threading.Barrier(2)\n"
        "@endpoint()\ndef meets():\n    met.wait(60)\n    return True\n"
    )
    other = App.write(tmp_path / "other", {"app.py": source})
    handler = await functions(STOKER_FUNCTIONS_LIVE="1", STOKER_FUNCTIONS_CONCURRENCY="2")
    jobs = await asyncio.gather(*(run(handler, other.request("meets")) for _ in range(2)))
    assert [job.output for job in jobs] == [True, True]


async def test_a_deployed_endpoint_takes_the_parameters_themselves(
    functions: Callable[..., Awaitable[Functions]], app: App
) -> None:
    variables = version_env(app.endpoint("caption"), Definition(), app.bundle("caption"))
    handler = await functions(**variables)
    assert (await run(handler, {"text": "a"})).output["text"] == "aa"
    assert "missing a required argument" in str((await run(handler, {})).error)


async def test_a_deployed_class_takes_the_name_of_its_method(
    functions: Callable[..., Awaitable[Functions]], app: App
) -> None:
    variables = version_env(app.endpoint("Model"), Definition(), app.bundle("Model"))
    handler = await functions(**variables)
    assert (await run(handler, {"method": "embed", "text": "a"})).output == 1
    assert "method must be one of embed, words" in str((await run(handler, {"text": "a"})).error)


async def test_an_interpreter_that_died_is_replaced(live: Functions, app: App) -> None:
    pid = (await run(live, app.request("caption", text="a"))).output["pid"]
    os.kill(pid, signal.SIGKILL)
    outcomes = [await run(live, app.request("caption", text="a")) for _ in range(2)]
    assert outcomes[-1].output["pid"] != pid


async def test_a_forked_process_does_not_hide_that_the_interpreter_died(
    live: Functions, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with asyncio.timeout(10):  # the forked process lives for 20 s
        job = await run(live, app.request("fails", how="dies, but not what it forked"))
        assert "killed by SIGKILL" in str(job.error)
        while not (text := read(tmp_path / "forked.pid")).endswith("\n"):  # noqa: ASYNC110  it is a process
            await asyncio.sleep(0.01)
    os.kill(int(text), signal.SIGKILL)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_cancel_leaves_no_half_of_a_message() -> None:
    ours, theirs = socket.socketpair()
    calls, main = child.Calls(theirs, "", 1), threading.get_ident()
    calls._on_main = 1
    calls._cancelled.add(1)
    received: list[bytes] = []

    def receive() -> None:
        with ours, ours.makefile("rb") as stream:
            received.append(stream.read(1))  # the rest waits for room
            signal.pthread_kill(main, signal.SIGUSR1)
            received.append(stream.read())

    before = signal.signal(signal.SIGUSR1, calls._raise_cancelled)
    reader = threading.Thread(target=receive)
    reader.start()
    try:
        with pytest.raises(Cancelled):
            calls._send({"call": 1, "chunk": "x" * (8 << 20)})
    finally:
        theirs.close()
        reader.join()
        signal.signal(signal.SIGUSR1, before)
    data = b"".join(received)
    assert len(data) == messages.HEAD + messages.length(data[: messages.HEAD])


def test_the_codec_keeps_the_tag_of_a_caller() -> None:
    assert decode(encode({"$stoker": "bytes", "file": "/etc/passwd"})) == {
        "$stoker": "bytes",
        "file": "/etc/passwd",
    }
