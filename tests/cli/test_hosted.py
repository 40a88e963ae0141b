"""The hosted endpoints, the weights they need, and what a host tells its workers."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from stoker.cli.agent_isolation import worker_user
from stoker.cli.agent_process import AgentOptions, connector, host_environment, node_id
from stoker.cli.errors import CliError
from stoker.cli.hosted import declared, hosted_endpoints, wanted_weights
from stoker.control.config import ConfigError, load_config
from stoker.control.config_sections import Config
from stoker.models.talking_video import safety
from stoker.wire.messages import Price


def test_the_image_model_brings_its_handler_schema_and_price() -> None:
    (endpoint,) = hosted_endpoints(["text-to-image"], {}, [Price("device_ms", 5)])
    assert endpoint.hosted
    assert endpoint.run.handler == "stoker.models.text_to_image.handler:TextToImage"
    assert endpoint.run.schema is not None
    assert endpoint.run.prices == (Price("output_pixels", 20), Price("device_ms", 5))
    assert endpoint.run.env == {"HF_HUB_OFFLINE": "1"}
    assert {"torch", "diffusers.FluxPipeline"} <= set(endpoint.run.preload)


def test_a_pipeline_is_chosen_by_name() -> None:
    given = {"STOKER_PIPELINE": "flux-1-dev"}
    (endpoint,) = hosted_endpoints(["text-to-image"], given)
    assert endpoint.run.env["STOKER_PIPELINE"] == "flux-1-dev"
    assert wanted_weights(["text-to-image"], given) == ["flux-1-dev"]
    assert wanted_weights(["text-to-image"], {}) == ["flux-tiny"]
    with pytest.raises(CliError, match="no pipeline 'flux-9'"):
        hosted_endpoints(["text-to-image"], {"STOKER_PIPELINE": "flux-9"})


def test_an_id_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "echo.py").touch()
    (tmp_path / "stoker.toml").write_text(
        'local_roots = ["."]\n[[endpoints]]\nid = "text-to-image"\nimageName = "local:echo.py:handler"\n'
    )
    config = load_config(tmp_path / "stoker.toml")
    with pytest.raises(CliError, match="text-to-image is a hosted one's"):
        declared(config, ["text-to-image"], {})


def test_each_model_gets_its_own_of_the_pipelines_that_are_named() -> None:
    given = {"STOKER_PIPELINE": "flux-1-schnell, talk-tiny"}
    picture, video = hosted_endpoints(["text-to-image", "talking-video"], given)
    assert picture.run.env["STOKER_PIPELINE"] == "flux-1-schnell"
    assert video.run.env["STOKER_PIPELINE"] == "talk-tiny"
    assert video.run.prices == (Price("videos_480p", 250_000_000), Price("videos_720p", 500_000_000))
    assert wanted_weights(["talking-video"], given) == ["safety-tiny", "talk-tiny"]
    with pytest.raises(
        CliError, match="no hosted endpoint 'singing'; there are talking-video, text-to-image"
    ):
        hosted_endpoints(["singing"], {})


def test_only_the_first_keeps_a_worker_and_one_template_serves_all() -> None:
    picture, video = hosted_endpoints(["text-to-image", "talking-video"], {})
    assert (picture.workers_min, video.workers_min) == (1, 0)
    assert (picture.workers_max, video.workers_max) == (1, 1)
    assert picture.run.preload == video.run.preload
    assert {"diffusers.FluxPipeline", "diffusers.AutoencoderKLWan"} <= set(video.run.preload)
    assert dict(picture.run.env) == dict(video.run.env), "in other environments they would share no template"
    (alone,) = hosted_endpoints(["talking-video"], {})
    assert alone.workers_min == 1


def test_a_safety_checker_is_chosen_by_name_for_the_model_that_has_one() -> None:
    given = {"STOKER_SAFETY_CHECKER": "another"}
    picture, video = hosted_endpoints(["text-to-image", "talking-video"], given)
    assert "STOKER_SAFETY_CHECKER" not in picture.run.env
    assert video.run.env["STOKER_SAFETY_CHECKER"] == "another"
    both = ["text-to-image", "talking-video"]
    assert wanted_weights(both, given) == ["another", "flux-tiny", "talk-tiny"]
    assert wanted_weights(both, {}) == ["flux-tiny", safety.DEFAULT, "talk-tiny"]
    assert wanted_weights(["text-to-image"], given) == ["flux-tiny"]


def test_a_model_gets_the_settings_that_it_declares_and_no_others() -> None:
    given = {"STOKER_VIDEO_LIMITS": "audio_most_s=60", "STOKER_JOIN_TOKEN": "jt"}
    picture, video = hosted_endpoints(["text-to-image", "talking-video"], given)
    assert set(picture.run.env) == {"HF_HUB_OFFLINE"}
    assert dict(video.run.env) == {"HF_HUB_OFFLINE": "1", "STOKER_VIDEO_LIMITS": "audio_most_s=60"}


def test_settings_that_are_none_are_refused_before_anything_starts() -> None:
    with pytest.raises(CliError, match="STOKER_VIDEO_LIMITS knows no 'audio'; it knows audio_least_s,"):
        hosted_endpoints(["talking-video"], {"STOKER_VIDEO_LIMITS": "audio=3"})
    assert hosted_endpoints(["text-to-image"], {"STOKER_VIDEO_LIMITS": "audio=3"}), "no model of its"


def test_an_alias_may_name_a_hosted_endpoint() -> None:
    config = Config(aliases={"flux": "text-to-image"})
    assert [endpoint.id for endpoint in declared(config, ["text-to-image"], {})] == ["text-to-image"]
    with pytest.raises(ConfigError, match=r"aliases\.flux"):
        declared(config, [], {})


# ---- the agent's host


def test_a_node_keeps_its_id(tmp_path: Path) -> None:
    first = node_id(tmp_path)
    assert node_id(tmp_path) == first
    (tmp_path / "node_id").write_text("\n")
    with pytest.raises(CliError, match="is empty"):
        node_id(tmp_path)


def test_workers_learn_where_weights_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("STOKER_WEIGHTS_DIR", raising=False)
    assert host_environment({"STOKER_WEIGHTS_DIR": "/models"}) == {"STOKER_WEIGHTS_DIR": "/models"}
    assert host_environment({}) == {"STOKER_WEIGHTS_DIR": str(tmp_path / "stoker" / "weights")}


def test_half_a_certificate_is_refused(tmp_path: Path) -> None:
    options = AgentOptions("127.0.0.1:1", "jt", tmp_path, tls_cert=tmp_path / "cert.pem")
    with pytest.raises(CliError, match="--tls-key"):
        connector(options)
    assert "jt" not in repr(AgentOptions("127.0.0.1:1", "jt", tmp_path))


def test_workers_run_as_us_unless_told(tmp_path: Path) -> None:
    assert worker_user(None, tmp_path) is None


def test_only_root_chooses_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CliError, match="only root"):
        worker_user("nobody", tmp_path)


def test_a_user_who_is_not_there_or_may_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CliError, match="no user nobody-of-this-name"):
        worker_user("nobody-of-this-name", tmp_path)
    closed, folder = tmp_path / "closed", tmp_path / "closed" / "agent"
    folder.mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(CliError, match="may not pass through"):
        worker_user(pwd.getpwuid(os.getuid()).pw_name, folder)
