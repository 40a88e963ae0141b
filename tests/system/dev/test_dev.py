"""`stoker dev`: a real server in front of a real platform, whose workers run the functions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.dev.written_apps import BALANCED, ONE, SEVERAL, app
from tests.nvml_stand_in import on_a_host
from tests.system.dev.dev_server import (
    FUNCTIONS,
    DevServer,
    at_terminal,
    environment,
    serving,
    started,
    stoker,
)
from tests.system.stack import START_S, Stack, running, until

NAMES = """
from stoker.client import endpoint
""" + "\n".join(
    f"""
@endpoint(name="f{n}", cpu=True)
def f{n}() -> int:
    return {n}
"""
    for n in range(6)
)
SLOW = '''
import pathlib
import threading
from stoker.client import endpoint
from stoker.worker.functions import progress

@endpoint(name="slow", cpu=True)
def slow(until: str) -> str:
    """Waits for a file."""
    print("a line of the worker")
    progress({"step": 1})
    while not pathlib.Path(until).exists():
        threading.Event().wait(0.01)
    return "over"
'''
WRONG = """
from stoker.client import endpoint

@endpoint(name="raises", cpu=True)
def raises(number: int) -> float:
    shares = [1, 2]
    return shares[0] / number

@endpoint(name="unsendable", cpu=True)
def unsendable():
    return {"value": object()}

@endpoint(name="uninstallable", cpu=True, dependencies=["no-such-package"], env={"PIP_NO_INDEX": "1"})
def uninstallable() -> int:
    return 1

@endpoint(name="fine", cpu=True)
def fine() -> int:
    return 1
"""
MAIN = """
import sys
from stoker.client import JobFailed, endpoint
from one import caption

@endpoint(cpu=True, workers=1)
class Search:
    def __init__(self):
        self.texts = []

    def add(self, text: str) -> int:
        print("a line of the worker")
        self.texts.append(text)
        return len(self.texts)

    def last(self, number: int = 1) -> str:
        if not number:
            raise ValueError("no")
        return self.texts[-number]

if __name__ == "__main__":
    print(caption.remote("hey", times=2))
    Search.add.remote("a")
    print([Search.add.remote(text="b"), Search.last.remote()])
    try:
        Search.last.remote(0)
    except JobFailed as error:
        print(str(error).strip().splitlines()[-1])
    sys.exit(3)
"""
YIELDS = """
import asyncio
import pathlib
from stoker.client import endpoint

api = endpoint(name="shop", cpu=True)

@api.get("/words")
async def words(until: str):
    print("a line before")
    yield "one "
    if until == "fails":
        raise ValueError("no more words")
    try:
        while not pathlib.Path(until).exists():
            await asyncio.sleep(0.01)
        yield "two"
    finally:
        pathlib.Path(until + ".over").touch()
"""
SIZED = """
import os
from stoker.client import endpoint

@endpoint(name="read", cpu=True, env={"OPTION": "option 0"})
def read() -> list[str]:
    return ["code 0", os.environ["OPTION"]]

api = endpoint(name="routed", cpu=True, env={"OPTION": "option 0"})

@api.get("/routed")
def routed() -> str:
    return os.environ["OPTION"]
"""
PRICES = "[prices]\ndevice_second_nano_usd = 100_000"
LOUD = BALANCED.replace("    return", '    print("a line of a route", id)\n    return 1 / (id - 1) and', 1)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("platform"), f"{FUNCTIONS}\n{PRICES}") as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path, platform: Stack) -> Iterator[Path]:
    """An app's folder; its endpoints are deleted afterwards."""
    made = tmp_path / "app"
    made.mkdir()
    yield made
    with open(platform.folder / "clean.log", "w") as log:
        for one in endpoints(platform).values():
            print(one["name"], file=log)
            platform.http.delete(f"{platform.facts['http']}/v1/endpoints/{one['id']}")
        for one in platform.http.get(f"{platform.facts['http']}/v1/templates").json():
            platform.http.delete(f"{platform.facts['http']}/v1/templates/{one['id']}")


def endpoints(platform: Stack) -> dict[str, dict[str, Any]]:
    """Those of the platform, by name."""
    found = platform.http.get(f"{platform.facts['http']}/v1/endpoints").json()
    return {one["name"]: one for one in found}


# ---- the routes


def test_every_kind_of_function_is_called_on_a_worker(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE, lb=BALANCED, deep__several=SEVERAL.replace('gpu="NVIDIA L4"', "cpu=True"))
    with serving(folder, stack=platform) as server:
        health = server.http.get("/")
        assert (health.status_code, health.json()["docs"]) == (200, "/docs")
        assert server.http.get("/ping").json() == {"status": "healthy"}
        assert endpoints(platform) == {}, "none is created before its first call"

        answer = server.call("/one/runsync", text="hey", times=2)
        assert (answer.status_code, answer.json()["status"]) == (200, "COMPLETED")
        assert answer.json()["output"] == "HEYHEY"
        made = endpoints(platform)
        assert list(made) == ["live-caption"]
        assert made["live-caption"]["temporary"] is True

        assert server.output("/deep/several/first/runsync") == 1
        assert server.output("/deep/several/embed/runsync", text="x") == [0.5]
        item = server.http.get("/lb/items/7", params={"language": "de"})
        assert (item.status_code, item.json()) == (200, {"id": 7})
        added = server.http.post("/lb/items", json={"name": "a lamp"})
        assert (added.status_code, added.json()) == (200, {"name": "a lamp"}), "a route takes plain JSON"
        assert set(endpoints(platform)) == {"live-caption", "live-first", "live-model", "live-shop"}
        states = {one["name"]: one["state"] for one in server.http.get("/").json()["endpoints"]}
        assert states["live-caption"] == "ready"


def test_the_table_and_the_explorer_show_the_first_lines(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE, lb=BALANCED), stack=platform) as server:
        lines = [" ".join(line.split()) for line in server.printed.splitlines()]
        assert "live-caption CPU POST /one/runsync Says it louder." in lines
        assert "GET /lb/items/{id}" in server.printed
        assert "The rest is not shown" not in server.printed
        document = server.http.get("/openapi.json").json()
        assert document["paths"]["/one/runsync"]["post"]["summary"] == "Says it louder."
        page = server.http.get("/docs")
        assert "/docs/assets/swagger-ui-bundle.js" in page.text
        assert "://" not in page.text, "nothing is loaded from elsewhere"
        assert server.http.get("/docs/assets/swagger-ui-bundle.js").status_code == 200


def test_what_is_wrong_with_a_request_is_told(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE, lb=BALANCED), stack=platform) as server:
        bare = server.http.post("/one/runsync", json={"text": "hey"})
        assert bare.status_code == 400
        assert bare.json()["error"].startswith("input is required and missing")
        lacking = server.call("/one/runsync", times=2)
        assert lacking.status_code == 400
        assert "input.text is required and missing" in lacking.json()["error"]
        surplus = server.call("/one/runsync", text="hey", volume=11)
        assert surplus.status_code == 400
        assert "input.volume is unknown; caption takes text, times" in surplus.json()["error"]
        unknown = server.call("/two/runsync")
        assert unknown.status_code == 404
        assert "POST /one/runsync" in unknown.json()["error"]
        assert server.http.get("/one/runsync").status_code == 405
        assert server.http.get("/lb/items/seven").status_code == 422
        assert endpoints(platform).keys() <= {"live-shop"}


def test_pages_of_other_sites_cannot_call_it(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE), stack=platform) as server:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Host": "rebound.example:18888"}):
            answer = server.http.post("/one/runsync", json={"input": {"text": "a"}}, headers=headers)
            assert answer.status_code == 403
        assert "rebound.example" in answer.json()["error"]
        assert endpoints(platform) == {}


# ---- what happens on the worker is seen


def test_lines_and_progress_are_shown_as_they_happen(platform: Stack, folder: Path, tmp_path: Path) -> None:
    answers: list[Any] = []
    with serving(app(folder, slow=SLOW), stack=platform) as server:

        def call() -> None:
            answers.append(server.output("/slow/runsync", until=str(tmp_path / "over")))

        calling = threading.Thread(target=call)
        calling.start()
        server.shows("live-slow a line of the worker")
        server.shows('live-slow progress {"step": 1}')
        assert not answers
        (tmp_path / "over").touch()
        calling.join()
        server.shows("live-slow done in ")
    assert answers == ["over"]


@pytest.mark.slow
def test_lines_of_routes_are_shown_with_their_response(platform: Stack, folder: Path) -> None:
    with serving(app(folder, lb=LOUD), stack=platform) as server:
        assert server.http.get("/lb/items/2").json() == {"id": 2}
        server.shows("live-shop a line of a route 2\n")
        server.shows("live-shop GET /items/2: 200")
        assert server.http.get("/lb/items/1").status_code == 500
        server.shows("live-shop a line of a route 1\n")
        server.shows("live-shop GET /items/1: 500 ZeroDivisionError: division by zero")
        server.shows('File "lb.py", line 10, in item')
        server.edit(
            "lb.py", LOUD.replace("cpu=True", 'cpu=True, dependencies=["no-such"], env={"PIP_NO_INDEX": "1"}')
        )
        assert server.http.get("/lb/items/2").status_code == 500
        server.shows("No matching distribution found for no-such")
        states = {one["name"]: one["state"] for one in server.http.get("/").json()["endpoints"]}
        assert states["live-shop"].startswith("failed: the dependencies")


@pytest.mark.slow
def test_a_caller_that_leaves_cancels_its_job(platform: Stack, folder: Path, tmp_path: Path) -> None:
    with serving(app(folder, slow=SLOW), stack=platform) as server:
        with pytest.raises(httpx2.ReadTimeout):
            server.http.post("/slow/runsync", json={"input": {"until": str(tmp_path / "never")}}, timeout=3)
        server.shows("is cancelled: its caller left")
        made = endpoints(platform)["live-slow"]["id"]
        jobs = platform.http.get(f"/{made}/requests").json()["requests"]
        assert [job["status"] for job in jobs] == ["CANCELLED"]


@pytest.mark.slow
def test_errors_of_the_worker_are_shown_with_their_lines(platform: Stack, folder: Path) -> None:
    with serving(app(folder, wrong=WRONG), stack=platform) as server:
        raised = server.call("/wrong/raises/runsync", number=0)
        assert (raised.status_code, raised.json()["status"]) == (500, "FAILED")
        assert "ZeroDivisionError" in raised.json()["error"]
        assert 'File "wrong.py", line 7, in raises' in raised.json()["error"]
        server.shows('File "wrong.py", line 7, in raises')

        unsendable = server.call("/wrong/unsendable/runsync")
        assert unsendable.status_code == 500
        assert "object" in unsendable.json()["error"]

        uninstallable = server.call("/wrong/uninstallable/runsync")
        assert uninstallable.status_code == 500
        assert "could not be installed" in uninstallable.json()["error"]
        server.shows("No matching distribution found for no-such-package")
        states = {one["name"]: one["state"] for one in server.http.get("/").json()["endpoints"]}
        assert states["live-uninstallable"].startswith("failed: the dependencies")
        assert server.output("/wrong/fine/runsync") == 1


@pytest.mark.slow
def test_a_platform_that_allows_no_apps_or_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "platform").mkdir()
    with (
        running(tmp_path / "platform") as stack,
        serving(app(tmp_path / "app", one=ONE), stack=stack) as server,
    ):
        refused = server.call("/one/runsync", text="hey")
        assert refused.status_code == 503
        assert "functions = true" in refused.json()["error"]
        states = {one["name"]: one["state"] for one in server.http.get("/").json()["endpoints"]}
        assert states["live-caption"].startswith("failed: ")
        stack.kill("control")
        gone = server.call("/one/runsync", text="hey")
        assert gone.status_code == 502
        assert "no answer from" in gone.json()["error"]
        stack.start_control()


@pytest.mark.slow
def test_while_a_request_waits_the_workers_are_shown(platform: Stack, folder: Path) -> None:
    wants_a_gpu = BALANCED.replace("cpu=True", 'gpu="NVIDIA L4"')
    with serving(app(folder, lb=wants_a_gpu), stack=platform) as server:
        waiting = threading.Thread(target=_get, args=(server,))
        waiting.start()
        server.shows("live-shop waits; workers: THROTTLED no capacity: no node has a free GPU")
        server.stop()
        waiting.join()


def _get(server: DevServer) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        server.http.get("/lb/items/1")


def test_a_route_that_yields_is_streamed(platform: Stack, folder: Path, tmp_path: Path) -> None:
    with serving(app(folder, lb=YIELDS), stack=platform) as server:
        with server.http.stream("GET", "/lb/words", params={"until": str(tmp_path / "seen")}) as answer:
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            parts = answer.iter_text()
            assert next(parts) == "one "
            server.shows("live-shop a line before")
            (tmp_path / "seen").touch()
            assert "".join(parts) == "two"
        server.shows("live-shop GET /words: ended")

        with pytest.raises(httpx2.RemoteProtocolError):
            server.http.get("/lb/words", params={"until": "fails"})
        server.shows("ValueError: no more words")
        with server.http.stream("GET", "/lb/words", params={"until": str(tmp_path / "never")}) as answer:
            next(answer.iter_text())
        until((tmp_path / "never.over").exists, START_S, "the end of the function")
        assert stoker(folder, "deploy", stack=platform).returncode == 0
        shop = endpoints(platform)["shop"]["id"]
        deployed = platform.http.get(f"/{shop}/words", params={"until": str(tmp_path / "seen")})
        assert deployed.text == "one two"
        assert "ASGI" not in server.printed


# ---- changes of the code


def test_changed_code_runs_at_the_next_call(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE), stack=platform) as server:
        assert server.output("/one/runsync", text="hey") == "HEY"
        version = endpoints(platform)["live-caption"]["version"]
        server.edit("one.py", ONE.replace("text.upper() * times", "text[::-1]"))
        assert server.output("/one/runsync", text="hey") == "yeh"
        assert endpoints(platform)["live-caption"]["version"] == version, "no new version is needed"
        server.edit("two.py", ONE.replace("caption", "other"))
        server.shows("new: POST /two/runsync")
        assert server.output("/two/runsync", text="hey") == "HEY"


@pytest.mark.slow
def test_a_call_right_after_a_save_runs_the_new_code_with_the_new_options(
    platform: Stack, folder: Path
) -> None:
    with serving(app(folder, sized=SIZED), stack=platform) as server:
        assert server.output("/sized/runsync") == ["code 0", "option 0"]
        assert server.http.get("/sized/routed").json() == "option 0"
        for n in range(1, 3):
            server.write("sized.py", SIZED.replace("code 0", f"code {n}"))
            assert server.output("/sized/runsync")[0] == f"code {n}"
            server.write("sized.py", SIZED.replace(" 0", f" {n}"))
            assert server.output("/sized/runsync") == [f"code {n}", f"option {n}"]
            assert server.http.get("/sized/routed").json() == f"option {n}"


def test_without_reload_the_code_stays_as_it_was(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE), "--no-reload", stack=platform) as server:
        server.write("one.py", ONE.replace("text.upper() * times", "text[::-1]"))
        assert server.output("/one/runsync", text="hey") == "HEY"


def test_a_syntax_error_is_shown_and_the_others_work(platform: Stack, folder: Path) -> None:
    with serving(app(folder, one=ONE, two=ONE.replace("caption", "other")), stack=platform) as server:
        server.edit("one.py", ONE.replace("return text", "return return text"))
        server.shows("one.py, line 10: syntax error")
        server.shows("return return text.upper() * times")
        broken = server.call("/one/runsync", text="hey")
        assert broken.status_code == 500
        assert "one.py, line 10: syntax error" in broken.json()["error"]
        assert server.output("/two/runsync", text="hey") == "HEY"
        server.edit("one.py", ONE)
        assert server.output("/one/runsync", text="hey") == "HEY"


def test_it_starts_with_a_syntax_error_and_with_equal_names(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE.replace("return text", "return return text"), two=ONE, three=ONE)
    with serving(folder, stack=platform) as server:
        assert "one.py, line 10: syntax error" in server.printed
        assert "the name caption is taken by caption in three.py, line" in server.printed
        assert server.output("/three/runsync", text="hey") == "HEY"
        assert server.call("/two/runsync", text="hey").status_code == 500


# ---- provisioning


def test_all_are_created_at_once_and_more_than_five_are_asked_for(platform: Stack, folder: Path) -> None:
    app(folder, names=NAMES)
    refused = stoker(folder, "dev", "--auto-provision", "-p", "18888", stack=platform)
    assert refused.returncode == 1
    assert "6 endpoints would be created: live-f0, " in refused.stderr
    assert "Nobody can answer, as there is no terminal: give --yes" in refused.stderr
    assert endpoints(platform) == {}
    with serving(folder, "--auto-provision", "--yes", stack=platform) as server:
        until(lambda: server.printed.count(": created, ") == 6, START_S, "six endpoints")
        assert len(endpoints(platform)) == 6


@pytest.mark.parametrize(("typed", "created"), [("y\n", 6), ("n\n", 0), ("\x03", None)])
@pytest.mark.slow
def test_the_question_is_answered_at_a_terminal(
    platform: Stack, folder: Path, typed: str, created: int | None
) -> None:
    app(folder, names=NAMES)
    with at_terminal(folder, "dev", "--auto-provision", "-p", "18888", stack=platform) as (server, terminal):
        server.ready()
        server.shows("6 endpoints would be created: live-f0, ")
        server.shows("[y/N]: ")
        os.write(terminal, typed.encode())
        if created is None:
            assert server.process.wait(START_S) == 0
        elif created:
            until(lambda: len(endpoints(platform)) == created, START_S, "the endpoints")
        else:
            server.shows("nothing was created; each endpoint is created when it is first called")
            assert server.output("/names/f3/runsync") == 3
            created = 1
        assert len(endpoints(platform)) == (created or 0)


@pytest.mark.slow
def test_they_are_reused_updated_and_deleted(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE)
    with serving(folder, "--auto-provision", stack=platform) as server:
        server.shows("live-caption: created, ")
    first = endpoints(platform)["live-caption"]
    cached = json.loads((folder / ".stoker" / "dev.json").read_text())
    assert cached["endpoints"]["live-caption"]["id"] == first["id"]

    with serving(folder, "--auto-provision", stack=platform) as server:
        assert "created" not in server.printed
        assert "updated" not in server.printed
        server.edit("one.py", ONE.replace("workers=(0, 1)", "workers=(0, 2)"))
        assert server.output("/one/runsync", text="hey") == "HEY"
        server.shows(f"live-caption: updated, {first['id']} (its configuration changed)")
    assert endpoints(platform)["live-caption"]["workersMax"] == 2

    (folder / ".stoker" / "dev.json").write_text("{")
    with serving(folder, "--auto-provision", stack=platform) as server:
        assert "dev.json cannot be used and is built again: it is not JSON" in server.printed
        server.shows(f"live-caption: updated, {first['id']} (the local file does not know it)")

    deleted = stoker(folder, "dev", "clean", stack=platform)
    assert deleted.returncode == 0, deleted.stderr
    assert "deleted live-caption" in deleted.stdout
    assert endpoints(platform) == {}
    assert "there is no live endpoint" in stoker(folder, "dev", "clean", stack=platform).stdout


def test_the_end_says_what_stays_and_keeps_no_worker(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE.replace("(0, 1)", "(1, 1)"))
    with serving(folder, stack=platform) as server:
        assert server.output("/one/runsync", text="hey") == "HEY"
        assert endpoints(platform)["live-caption"]["workersMin"] == 1
        assert server.stop() == 0
        server.shows("live-caption stays, with 1 worker for 0.36 USD an hour; an idle one ends after 60 s")
        server.shows("stoker dev clean")
    assert endpoints(platform)["live-caption"]["workersMin"] == 0


@pytest.mark.slow
def test_one_that_is_gone_is_created_again(platform: Stack, folder: Path) -> None:
    """As after a day without a call, when the platform has deleted it."""
    url = f"{platform.facts['http']}/v1/endpoints"
    with serving(app(folder, one=ONE, lb=BALANCED), stack=platform) as server:
        assert server.output("/one/runsync", text="a") == "A"
        assert server.http.get("/lb/items/1").status_code == 200
        first = endpoints(platform)
        for one in first.values():
            platform.http.delete(f"{url}/{one['id']}")
        assert server.output("/one/runsync", text="b") == "B"
        assert server.http.get("/lb/items/1").status_code == 200
        second = endpoints(platform)
    assert {one["id"] for one in first.values()}.isdisjoint(one["id"] for one in second.values())
    platform.http.delete(f"{url}/{second['live-caption']['id']}")
    with serving(folder, stack=platform) as server:
        assert "live-caption: not on the platform any more, and created again when needed" in server.printed


# ---- where it does not start


@pytest.mark.parametrize("command", ["dev", "run", "deploy"])
@pytest.mark.slow
def test_without_a_key_a_project_or_a_platform_there_is_one_sentence(
    platform: Stack, tmp_path: Path, command: str
) -> None:
    empty, folder = tmp_path / "empty", app(tmp_path / "app", one=ONE)
    empty.mkdir()
    for where, stack, options, sentence in (
        (
            empty,
            platform,
            {},
            "is not a project: no Python file in or below it has a function under @endpoint",
        ),
        (folder, None, {}, "no API key: set STOKER_API_KEY in the environment or in .env"),
        (folder, platform, {"STOKER_URL": "http://127.0.0.1:9"}, "no answer from http://127.0.0.1:9"),
        (folder, platform, {"STOKER_API_KEY": "sk_x_y"}, "key"),
    ):
        port = () if command == "deploy" else ("-p", "18888")
        ended = stoker(where, command, *port, stack=stack, **options)
        assert ended.returncode == 1
        assert ended.stderr.startswith("stoker: "), ended.stderr
        assert sentence in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr


def test_the_key_may_be_in_the_env_file(platform: Stack, folder: Path) -> None:
    (folder / ".env").write_text(f"STOKER_API_KEY={platform.key}\nSTOKER_URL={platform.facts['http']}\n")
    with serving(app(folder, one=ONE)) as server:
        assert server.output("/one/runsync", text="hey") == "HEY"


def test_the_port_is_checked_and_the_next_one_taken(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE)
    refused = stoker(folder, "dev", "--port", "70000", stack=platform)
    assert (refused.returncode, refused.stderr) == (1, "stoker: --port must be from 1 to 65535; got 70000\n")
    with serving(folder, stack=platform) as first, serving_again(folder, platform) as second:
        assert first.http.base_url.port is not None
        assert second.http.base_url.port is not None
        assert second.http.base_url.port > first.http.base_url.port


def serving_again(folder: Path, platform: Stack) -> Any:
    other = app(folder.with_name("other"), one=ONE)
    return serving(other, stack=platform)


# ---- called from a program


@pytest.mark.slow
def test_a_program_is_run_once_and_what_it_needed_is_deleted(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE, main=MAIN)
    ended = stoker(folder, "dev", "--once", "main.py", "-p", "18888", stack=platform)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == "HEYHEY\n[2, 'b']\nValueError: no\n", "nothing but the program's own output"
    assert "live-main-search a line of the worker" in ended.stderr
    assert "deleted live-caption, live-main-search" in ended.stderr
    assert endpoints(platform) == {}

    missing = stoker(folder, "dev", "--once", "other.py", "-p", "18888", stack=platform)
    assert (missing.returncode, "there is no file other.py" in missing.stderr) == (1, True)
    known = {"STOKER_URL": platform.facts["http"], "STOKER_API_KEY": platform.key}
    not_there = _program(folder, known)
    assert "no endpoint is named caption: deploy caption with stoker deploy, or run this" in not_there.stderr
    assert stoker(folder, "deploy", stack=platform).returncode == 0
    deployed = _program(folder, known)
    assert (deployed.returncode, deployed.stdout) == (3, ended.stdout), deployed.stderr


def _program(folder: Path, known: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        env=environment(**known),
        capture_output=True,
        text=True,
        check=False,
    )


# ---- deployed


@pytest.mark.slow
def test_an_app_is_deployed_called_logged_and_undeployed(platform: Stack, folder: Path) -> None:
    app(folder, one=ONE.replace("return", 'print("a line")\n    return'), lb=BALANCED)
    deployed = stoker(folder, "deploy", stack=platform)
    assert deployed.returncode == 0, deployed.stderr
    made = endpoints(platform)
    assert set(made) == {"caption", "shop"}
    assert not any(one["temporary"] for one in made.values())
    caption = made["caption"]
    assert "caption it has no jobs yet" in stoker(folder, "logs", "caption", stack=platform).stdout
    assert platform.runsync(caption["id"], {"text": "hey"})["output"] == "HEY"
    item = platform.http.get(f"/{made['shop']['id']}/items/3")
    assert (item.status_code, item.json()) == (200, {"id": 3})
    logged = stoker(folder, "logs", "caption", stack=platform)
    assert "caption a line" in logged.stdout, logged.stderr
    assert "caption a line" in stoker(folder, "logs", stack=platform).stdout

    with started(folder, "logs", "caption", "--follow", stack=platform) as following:
        until(lambda: _called(platform, caption["id"]) and "a line" in following.printed, START_S, "a line")
        assert following.stop() == 0

    again = stoker(folder, "deploy", "caption", stack=platform)
    assert "\tunchanged\t" in again.stdout
    app(folder, one=ONE.replace("text.upper()", "text[::-1]"))
    assert "\tupdated\t" in stoker(folder, "deploy", "caption", stack=platform).stdout
    until(
        lambda: platform.runsync(caption["id"], {"text": "hey"})["output"] == "yeh", START_S, "the new code"
    )
    assert endpoints(platform)["caption"]["id"] == caption["id"]

    app(folder, one=ONE.replace("return", "return return"))
    refused = stoker(folder, "deploy", stack=platform)
    assert "nothing is deployed: one.py, line 10: syntax error" in refused.stderr
    app(folder, one=ONE)
    assert stoker(folder, "undeploy", "--yes", stack=platform).returncode == 0
    assert endpoints(platform) == {}
    assert "none of these is deployed" in stoker(folder, "undeploy", "--yes", stack=platform).stderr


def _called(platform: Stack, endpoint: str) -> bool:
    return bool(platform.runsync(endpoint, {"text": "hey"})["output"])


# ---- on this machine alone


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [False, True])
def test_a_new_project_runs_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: bool
) -> None:
    """All three functions, too, where the machine has GPUs besides its CPU."""
    if gpus:
        on_a_host(tmp_path, monkeypatch, "two")
    folder = tmp_path / "new"
    made = stoker(tmp_path, "init", "new")
    assert made.returncode == 0, made.stderr
    assert {file.name for file in folder.iterdir()} == {
        ".env.example",
        ".gitignore",
        "README.md",
        "cpu_worker.py",
        "gpu_worker.py",
        "lb_worker.py",
        "pyproject.toml",
    }
    again = stoker(tmp_path, "init", "new")
    assert again.returncode == 1
    assert "nothing was written" in again.stderr
    with serving(folder, "--local") as server:
        assert server.output("/cpu_worker/runsync", text="a few words") == {"words": 3, "longest": "words"}
        assert server.output("/gpu_worker/runsync")["text"] == "hello"
        server.shows("live-cpu-worker 3 words")
        assert server.http.get("/lb_worker/hello/you").json() == {"message": "hello, you"}
        server.shows("live-lb-worker hello to you")
        assert server.http.post("/lb_worker/add", json={"a": 1, "b": 2}).json() == {"sum": 3}
        (url,) = re.findall(r"export STOKER_URL=(\S+)", server.printed)
        [node] = json.loads(stoker(folder, "node", "list", "--json", STOKER_URL=url).stdout)
        assert {device["kind"] for device in node["devices"]} == ({"cpu", "gpu"} if gpus else {"cpu"})
        deployed = stoker(folder, "deploy", "cpu-worker", STOKER_URL=url)
        assert "cpu-worker" in deployed.stdout, deployed.stderr
        assert "is deleted" in stoker(folder, "undeploy", "--yes", STOKER_URL=url).stderr
        assert server.stop() == 0
    left = Stack(tmp_path).left_over()
    assert left == []
