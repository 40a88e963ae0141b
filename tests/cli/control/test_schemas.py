"""What a handler declares of its inputs is known to control without an import, or a warning says why not."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.control import schemas
from stoker.cli.control.endpoints import declared_endpoints
from stoker.cli.control.schemas import with_schemas
from stoker.cli.errors import CliError
from stoker.control.config.config import load_config
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.models.registry import PIPELINES
from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.text_to_image.declaration import SCHEMA, schema_for, schema_of_any
from stoker.models.text_to_image.handler import TextToImage

OURS = """
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.handler import TextToImage


class Ours(TextToImage):
    PIPELINE = PIPELINES["flux-tiny"]
"""
NAMES_MODELS = "# stoker.models\n"
PLAIN = "class Ours:\n    def run(self, job): ...\n"


def declaring(code: str) -> str:
    return f"{NAMES_MODELS}{PLAIN}    @staticmethod\n    def input_schema():\n        {code}\n"


def endpoint(folder: Path, source: str, **more: Any) -> Endpoint:
    (folder / "ours.py").write_text(source)
    run = EndpointVersion(f"{folder / 'ours.py'}:Ours", **more)
    return Endpoint(id="ours", account="default", name="ours", version=1, run=run)


def schema_of(endpoint: Endpoint) -> Any:
    (found,) = with_schemas([endpoint])
    return found.run.schema


def test_the_entry_of_a_pipelines_file_is_narrowed_by_the_file(tmp_path: Path) -> None:
    own = {"properties": {"width": {"maximum": 512}}}
    found = schema_of(endpoint(tmp_path, OURS, schema=own))
    assert found["properties"]["width"] == {
        **schema_for(PIPELINES["flux-tiny"])["properties"]["width"],
        "maximum": 512,
        "default": 512,
    }
    assert not found["additionalProperties"]
    here = [getattr(module, "__file__", None) for module in tuple(sys.modules.values())]
    assert str(tmp_path / "ours.py") not in here, "control has not imported it"
    assert os.listdir(tmp_path) == ["ours.py"], "nothing is written beside it"


def test_the_configuration_is_refused_where_it_allows_more(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(OURS)
    (tmp_path / "stoker.toml").write_text(
        'local_roots = ["."]\n[[endpoints]]\nid = "ours"\nimageName = "local:ours.py:Ours"\n'
        "[endpoints.inputSchema.properties]\nwidth = { maximum = 2048 }\n"
    )
    with pytest.raises(CliError) as refused:
        declared_endpoints(load_config(tmp_path / "stoker.toml"), [], {})
    assert str(refused.value) == (
        "inputSchema of endpoint ours: width.maximum is 2048; the handler takes 1536 at most"
    )


def test_only_files_that_name_the_models_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_answer", lambda _: pytest.fail("it was imported"))
    assert schema_of(endpoint(tmp_path, PLAIN, schema={"required": ["x"]})) == {"required": ["x"]}
    for more in ({"image": "ghcr.io/acme/voice:1.2"}, {"kind": "protocol"}):
        assert schema_of(endpoint(tmp_path, OURS, **more)) is None
    gone = endpoint(tmp_path, OURS)
    (tmp_path / "ours.py").unlink()
    assert schema_of(gone) is None


def test_the_process_has_nothing_of_controls_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "sk-secret")
    names = declaring("import os; return {'description': ' '.join(sorted(os.environ))}")
    found = schema_of(endpoint(tmp_path, names, env={"OWN": "1"}))["description"].split()
    assert {"OWN", "PATH", "PYTHONPATH"} <= set(found)
    assert "STOKER_API_KEY" not in found
    assert "HOME" not in found


def test_what_the_file_prints_and_starts_does_not_disturb_the_answer(tmp_path: Path) -> None:
    noisy = "import os, threading\nprint('hello')\nos.write(1, b'from C\\n')\n" + declaring(
        "threading.Thread(target=threading.Event().wait).start(); return {'title': 'ours'}"
    )
    assert schema_of(endpoint(tmp_path, noisy)) == {"title": "ours"}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the module says, and no other that still runs: the collector ends what other tests left."""
    return [one.getMessage() for one in caplog.records if one.name == schemas.__name__]


UNKNOWN = [
    (NAMES_MODELS + "import no_such_module\n" + PLAIN, "No module named 'no_such_module'"),
    (NAMES_MODELS + "def other(job): ...\n", "has no Ours"),
    (NAMES_MODELS + "import os; os._exit(3)\n", "its process ended and answered b''"),
    (
        declaring("raise LookupError('no such pipeline')"),
        "input_schema() raised LookupError: no such pipeline",
    ),
    (declaring("return {'a': object()}"), "input_schema() raised TypeError: Object of type object"),
    (declaring("return [1]"), 'input_schema() must return an object, got b\'{"schema": [1]}'),
    (declaring("return {'type': 'integr'}"), "input_schema(): the input schema is not valid at $.type"),
]


@pytest.mark.parametrize(("source", "reason"), UNKNOWN)
def test_what_cannot_be_known_is_a_warning_and_the_files_schema_stands(
    source: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"required": ["prompt"]}
    with caplog.at_level(logging.WARNING):
        assert schema_of(endpoint(tmp_path, source, schema=own)) == own
    (line,) = warnings_of(caplog)
    assert line.startswith("endpoint ours: what inputs its handler takes is not known: ")
    assert reason in line


def test_an_import_that_never_ends_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    child: list[int] = []

    class OutOfTime(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            child.append(os.pidfd_open(int(started.read_text())))
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", OutOfTime)
    hangs = (
        f"{NAMES_MODELS}import os, signal\nchild = os.fork()\n"
        f"if child:\n    open({str(started)!r}, 'w').write(str(child))\nsignal.pause()\n"
    )
    assert schema_of(endpoint(tmp_path, hangs)) is None
    assert "took over 30 s" in caplog.text
    assert select.select(child, [], [], 10)[0] == child, "it has ended"
    os.close(child[0])


def test_a_handler_whose_environment_chooses_has_no_pipelines_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STOKER_PIPELINE", raising=False)
    assert TextToImage.input_schema() == schema_of_any()
    properties = schema_of_any()["properties"]
    assert "default" not in properties["num_inference_steps"]
    assert "default" not in properties["guidance"]
    assert properties.keys() == SCHEMA["properties"].keys()
    assert SCHEMA["properties"]["guidance"]["default"] == 7.5
    monkeypatch.setenv("STOKER_PIPELINE", "talk-tiny,flux-tiny,sdxl")
    assert TextToImage.input_schema() == schema_for(PIPELINES["flux-tiny"])
    assert TalkingVideo.input_schema()["required"] == ["prompt", "image", "audio", "size"]
    json.dumps(TalkingVideo.input_schema())
