"""`stoker endpoint|template|pod|volume|registry|node|secret ...` against the whole API: each command once."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.main import main
from stoker.cli.manage import resource_commands
from stoker.cli.manage.resource_kinds import KINDS
from tests.cli.manage.managed_service import NODE, ManagedService, served

IMAGE = "ghcr.io/example/worker:1.2"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def service() -> Iterator[ManagedService]:
    with served() as managed:
        yield managed


class Shell:
    def __init__(self, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, line: str, *more: str, stdin: str = "", code: int = 0) -> str:
        """Standard output; or, of a command that fails, the sentence."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main([*line.split(), *more])
        output = self._capsys.readouterr()
        assert ended.value.code == code, output.err
        assert "Traceback" not in output.err
        return output.err if code else output.out

    def json(self, line: str, *more: str) -> Any:
        return json.loads(self(line, *more, "--json"))


@pytest.fixture
def sh(service: ManagedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_URL", service.url)
    monkeypatch.setenv("STOKER_API_KEY", service.key)
    return Shell(capsys, monkeypatch)


def fields(output: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)


def test_a_template_and_an_endpoint_from_it(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"name": "x", "isServerless": true, "readme": "words"}')
    options = ["--file", "body.json", "--env", "MODE=fast", "--env", "N=1", "--set"]
    made = sh.json("template create --name t1 --image", IMAGE, *options, 'dockerStartCmd=["serve"]')
    assert made["name"] == "t1"
    assert made["readme"] == "words"
    assert made["dockerStartCmd"] == ["serve"]
    assert made["env"] == {"MODE": "fast", "N": "1"}
    assert sh.json("template get", made["id"]) == made
    assert fields(sh("template update t1 --image", IMAGE + "3"))["imageName"] == IMAGE + "3"

    reported = fields(sh("endpoint create --name e1 --workers-max 2 --template", made["id"]))
    assert reported["workersMax"] == "2"
    assert fields(sh("endpoint get e1"))["id"] == reported["id"]
    assert sh.json("endpoint update e1 --workers-max 4 --gpu-type", "NVIDIA H200")["workersMax"] == 4
    assert [reported["id"], "e1"] in [line.split("\t")[:2] for line in sh("endpoint list").splitlines()]
    assert "t1" in sh("template list"), "one that an endpoint is made from, too"
    sh("endpoint delete e1")
    sh("template delete t1")
    assert made["id"] not in {one["id"] for one in sh.json("template list")}


def test_keys_of_a_service_without_its_store(sh: Shell, tmp_path: Path) -> None:
    made = sh.json("key create --name ci --endpoint echo=write --management read --expires 24h")
    assert made["access"] == {"scope": "restricted", "management": "read", "endpoints": {"echo": "write"}}
    assert made["key"].startswith(f"sk_{made['id']}_")
    debug = sh.json("key create --name debug --endpoint echo=read --cases")["access"]
    assert (debug["endpoints"], debug["cases"]) == ({"echo": "read"}, True)
    token = sh("key create --join --uses 2 --name hosts").strip()
    assert token.startswith("jt_")
    [row] = [line.split("\t") for line in sh("key list").splitlines() if line.startswith(made["id"])]
    assert (row[1], row[3]) == ("ci", "management=read echo=write")
    assert "hosts\t\t2\t" in sh("key list --join")
    assert f"{made['id']} is revoked" in sh("key revoke", made["id"][:10])
    assert made["id"] not in sh("key list")
    assert "there is no nope" in sh("key create --endpoint nope=read", code=1)
    by_alias = sh.json("key create --name by-alias --endpoint say=write --endpoint *=read")
    assert by_alias["access"]["endpoints"] == {"echo": "write", "*": "read"}
    assert "no key 'nothing'" in sh("key revoke nothing", code=1)
    assert not any(tmp_path.iterdir()), "nothing is made on this host"


def test_the_webhook_secret_is_shown_and_rotated(sh: Shell, tmp_path: Path) -> None:
    first = sh("key webhook-secret")
    assert first.startswith("whsec_")
    assert "there is no old one to drop" in sh("key webhook-secret --drop-old", code=1)
    second = sh("key webhook-secret --rotate")
    assert second != first
    assert "--drop-old" in sh("key webhook-secret --rotate", code=1)
    sh("key webhook-secret --drop-old")
    assert sh("key webhook-secret") == second
    lines = [line for line in sh.json("audit") if "/webhooksecret" in line["path"]]
    assert [(line["method"], line["status"]) for line in lines[:3]] == [
        ("GET", 200),
        ("POST", 204),
        ("POST", 400),
    ]
    assert not any(tmp_path.iterdir()), "nothing is made on this host"


def test_the_quota_of_a_key_is_set_shown_and_lifted(sh: Shell) -> None:
    made = sh.json("key create --name batch --jobs-waiting 3 --gpu-seconds-per-day 60")
    assert made["quota"] == {"jobsWaiting": 3, "gpuSecondsPerDay": 60}
    shown = sh("key get", made["id"][:10])
    assert "most jobsWaiting\t3" in shown
    assert "used jobsWaiting\t0" in shown
    assert "used gpuSecondsToday\t0" in shown
    assert "fileBytes 1000" in sh("key quota --file-bytes 1000", made["id"])
    got = sh.json("key get", made["id"])
    assert (got["quota"], got["used"]) == ({"fileBytes": 1000}, {"fileBytes": 0})
    assert "unbounded" in sh("key quota", made["id"])
    assert "quota" not in sh.json("key get", made["id"])
    assert "no quota" not in sh("key create --join --jobs-waiting 1", code=1)
    assert "no key" in sh("key get nothing", code=1)


def test_a_pod_and_what_can_be_done_to_it(sh: Shell) -> None:
    made = sh.json("pod create --name p1 --port 8888/http --set desiredStatus=EXITED --image", IMAGE)
    assert made["desiredStatus"] == "EXITED"
    for action, wish in (
        ("start", "RUNNING"),
        ("restart", "RUNNING"),
        ("reset", "RUNNING"),
        ("stop", "EXITED"),
    ):
        assert fields(sh(f"pod {action} p1"))["desiredStatus"] == wish
    assert sh.json("pod update p1 --name p2")["name"] == "p2"
    assert sh.json("pod get p2")["id"] == made["id"]
    assert "p2" in sh("pod list")
    sh("pod delete p2")
    assert sh.json("pod list") == []


def test_a_volume_grows(sh: Shell) -> None:
    sh("volume create --name data --size 10 --data-center EU-RO-1")
    assert fields(sh("volume update data --size 20"))["size"] == "20"
    assert fields(sh("volume get data"))["dataCenterId"] == "EU-RO-1"
    assert "data\t20" in sh("volume list")
    assert "size" in sh("volume update data --size 5", code=1)
    sh("volume delete data")
    assert sh("volume list") == ""


def test_the_password_of_a_registry_is_read_and_never_shown(sh: Shell) -> None:
    output = sh("registry create --name ours --username robot", stdin="hunter2\n")
    assert "hunter2" not in output + sh("registry list") + sh("registry get ours")
    assert [one["name"] for one in sh.json("registry list")] == ["ours"]
    assert "ours" in sh("registry create --name ours --username robot", stdin="x", code=1)
    sh("registry delete ours")


def test_a_node_is_drained_and_resumed(sh: Shell) -> None:
    assert NODE in sh("node list")
    assert "\tconnected\tno\tNVIDIA GeForce RTX 4090\t0\t0\t" in sh("node list")
    assert "  flux-1-dev (23.8 GB)\n  ink (172.0 kB)\n" in sh(f"node get {NODE}")
    assert sh(f"node drain {NODE} --wait --deadline 90s") == ""
    assert sh.json(f"node drain {NODE}")["drained"]
    assert "--deadline is a number and s, m, h or d" in sh(f"node drain {NODE} --deadline soon", code=1)
    assert fields(sh(f"node resume {NODE}"))["drained"] == "no"
    assert sh.json(f"node get {NODE}")["dataCenterId"] == "EU-RO-1"
    assert NODE in sh(f"node delete {NODE}", code=1), "it is connected"


def test_a_secret_is_stored_and_never_shown(sh: Shell) -> None:
    sh("secret set hf_token", stdin="hunter2\n")
    listed = sh("secret list") + json.dumps(sh.json("secret list"))
    assert "hf_token" in listed
    assert "hunter2" not in listed
    sh("secret delete hf_token")
    assert sh("secret list") == ""


def test_what_was_changed_is_reported(sh: Shell) -> None:
    sh("secret set seen", stdin="x")
    sh("secret delete seen")
    assert sh("audit -n 2").splitlines()[0].split("\t")[3:6] == ["DELETE", "/v1/secrets/seen", "204"]
    newest, other = sh.json("audit --limit 2")
    assert (newest["method"], other["method"]) == ("DELETE", "PUT")
    assert sh.json(f"audit -n 1 --before {newest['id']}") == [other]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("endpoint get nosuch", "nosuch"),
        ("pod stop nosuch", "nosuch"),
        ("endpoint create --set nonsense=1 --template nosuch", "nonsense is not a known field"),
        ("template create --name t --image a/b:1 --env MODE", "--env takes NAME=VALUE; got 'MODE'"),
        ("template create --file nosuch.json", "nosuch.json cannot be read"),
        ("template create --name t --image a/b:1 --weights flux --weights ink", 'it has no "flux", but none'),
    ],
)
def test_what_goes_wrong_is_a_message(sh: Shell, line: str, output: str) -> None:
    assert output in sh(line, code=1)


def test_a_key_without_a_right_is_reported(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "sk_no_such")
    assert "invalid api key" in sh("pod list", code=1)
    monkeypatch.setenv("STOKER_URL", "http://127.0.0.1:1")
    assert "is `stoker up` running at" in sh("pod list", code=1)


def test_two_of_one_name_are_reported_apart_by_their_ids(sh: Shell) -> None:
    ids = [sh.json(f"volume create --name twin --size {n} --data-center EU-RO-1")["id"] for n in (1, 2)]
    output = sh("volume get twin", code=1)
    assert "2 volumes are called twin" in output
    assert all(one in output for one in ids)
    for one in ids:
        sh(f"volume delete {one}")


def test_the_beginning_of_an_id_will_do(sh: Shell) -> None:
    template = sh.json("template create --name short --set isServerless=true --image", IMAGE)["id"]
    made = sh.json("endpoint create --name e9 --template", template[:-2])
    assert made["templateId"] == template
    assert sh.json("endpoint get", made["id"][:-3])["id"] == made["id"]
    assert sh.json("bill endpoint --id", made["id"][:-3]) == []
    sh("endpoint delete", made["id"][:-3])
    assert sh.json("volume create --name v9 --size 1 --data-center EU-RO-1")["id"] in sh("volume list")
    assert "have ids that begin with" not in sh("endpoint get", "zzz", code=1)
    sh("volume delete v9")
    sh("template delete", template[:-2])


def test_an_id_in_a_table_of_eighty_columns_is_whole(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    long = "a very long name of an endpoint which takes up more than all of a line at a terminal, alone"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    kind = next(kind for kind in KINDS if kind.command == "endpoint")
    one = {"id": "30zmvf89kd1234", "name": long, "templateId": "xkhgg72fuo5678", "scalerType": "QUEUE_DELAY"}
    resource_commands.rows(resource_commands.Service("", Path()), kind.columns, [one])
    assert {one["id"], one["templateId"], "QUEUE_DELAY"} <= set(capsys.readouterr().out.split())


def test_a_terminal_gets_a_table(sh: Shell, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    where = resource_commands.Service("", Path())
    resource_commands.rows(where, ("id", "parts"), [{"id": "a", "parts": [{"name": "x"}, 3]}, {"id": "b"}])
    output = capsys.readouterr().out
    assert "parts" in output
    assert "x, 3" in output


def test_workers_of_an_endpoint_are_shown_with_the_stages_of_their_start(capsys: Capture) -> None:
    ready = {"id": "w1", "name": "e", "slsVersion": 1, "status": "IDLE", "reason": ""}
    ready["coldStartMs"] = {"weights": 61_800, "process": 240, "read": 9_120}
    waits = {"id": "w2", "name": "e", "slsVersion": 1, "status": "INITIALIZING", "reason": "node a fetches"}
    plain = {"id": "w3", "name": "e", "slsVersion": 1, "status": "RUNNING"}
    resource_commands.details(resource_commands.Service("", Path()), {"workers": [ready, waits, plain]})
    assert capsys.readouterr().out == (
        "workers: w1 IDLE (started in 71.2 s: weights 61.8, process 0.2, read 9.1),"
        " w2 INITIALIZING (node a fetches), w3 RUNNING\n"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.command)
def test_each_option_has_a_flag_of_its_own(kind: Any) -> None:
    flags = [option.flag for option in kind.options]
    assert len(set(flags)) == len(flags)
    assert not {"--set", "--file", "--json", "--url", "--data-dir"} & set(flags)


def test_the_quota_of_a_key_of_a_service(sh: Shell, tmp_path: Path) -> None:
    made = sh.json("key create --name batch --jobs-waiting 100")
    assert (
        sh("key quota", made["id"], "--gpu-seconds-per-day", "60") == f"{made['id']}: gpuSecondsPerDay 60\n"
    )
    shown = sh.json("key get", made["id"][:10])
    assert shown["quota"] == {"gpuSecondsPerDay": 60}
    assert set(shown["used"].values()) == {0}
    assert sh("key quota", made["id"]) == f"{made['id']}: unbounded\n"
    assert not any(tmp_path.iterdir()), "nothing is made on this host"


@pytest.mark.parametrize("access", ["--read-only", "--management=write"])
def test_each_command_of_keys_needs_a_key_for_everything(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, access: str
) -> None:
    weaker = sh.json("key create --name weaker", access)
    monkeypatch.setenv("STOKER_API_KEY", weaker["key"])
    for line in (
        "create",
        "create --join",
        "list",
        "get ID",
        "quota ID --jobs-waiting 1",
        "revoke ID",
        "webhook-secret",
        "webhook-secret --rotate",
        "webhook-secret --drop-old",
    ):
        said = sh(f"key {line.replace('ID', weaker['id'])}", code=1)
        assert 'of scope "all"' in said or "this key may not change anything here" in said, (line, said)
