"""The hosted endpoints, the weights they need, and what a host tells its workers."""

from __future__ import annotations

import json
import os
import pwd
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from stoker.cli.agent.controls import ConnectionOptions, Controls, NodeCredential
from stoker.cli.agent.isolation import worker_user
from stoker.cli.agent.process import host_environment, node_id
from stoker.cli.control.endpoints import declared_endpoints, with_hosted_aliases
from stoker.cli.control.hosted import hosted_endpoints, needed_weights, serving_rows
from stoker.cli.control.weights import KnownWeights, locked_weights
from stoker.cli.daemons.options import AgentOptions
from stoker.cli.errors import CliError
from stoker.control.config.config import ConfigError, load_config
from stoker.control.config.sections import Config, HostedSection
from stoker.control.rules.needs import Needs
from stoker.control.rules.types import AS_MANY_AS_FIT, Endpoint
from stoker.models import libraries
from stoker.models.hosted import MODELS
from stoker.models.talking_video import safety
from stoker.models.weights import Entry, Lock, LockedFile, read_lock, write_lock
from stoker.wire.messages import Price
from tests.certificates import make_certificate


def test_the_image_model_brings_its_handler_schema_and_price() -> None:
    (endpoint,) = hosted_endpoints(["text-to-image"], {}, [Price("device_ms", 5)])
    assert endpoint.hosted
    assert endpoint.run.handler == "stoker.models.text_to_image.handler:TextToImage"
    assert endpoint.run.schema is not None
    assert endpoint.run.prices == (Price("output_pixels", 20), Price("device_ms", 5))
    assert endpoint.run.env == libraries.ENV
    assert {"torch", "diffusers.FluxPipeline"} <= set(endpoint.run.preload)


def test_a_pipeline_is_chosen_by_name() -> None:
    variables = {"STOKER_PIPELINE": "flux-1-dev"}
    (endpoint,) = hosted_endpoints(["text-to-image"], variables)
    assert endpoint.run.env["STOKER_PIPELINE"] == "flux-1-dev"
    assert needed_weights(["text-to-image"], variables) == dict.fromkeys(["flux-1-dev"])
    assert needed_weights(["text-to-image"], {}) == dict.fromkeys(["flux-mini"])
    with pytest.raises(CliError, match="no pipeline 'flux-9'"):
        hosted_endpoints(["text-to-image"], {"STOKER_PIPELINE": "flux-9"})


def test_the_weights_of_a_chosen_pipeline_go_to_its_nodes() -> None:
    (endpoint,) = hosted_endpoints(["text-to-image"], {"STOKER_PIPELINE": "flux-1-schnell"})
    (flux,) = endpoint.run.weights
    entry = read_lock().entry("flux-1-schnell")
    assert (flux.name, flux.source, flux.commit, flux.size) == (
        "flux-1-schnell",
        entry.source,
        entry.commit,
        entry.size,
    )
    assert flux.key == f"flux-1-schnell@{entry.digest[:16]}"
    (video,) = hosted_endpoints(["talking-video"], {"STOKER_PIPELINE": "infinitetalk"})
    assert [one.name for one in video.run.weights] == ["infinitetalk"], "the test classifier is made there"
    files = {file.path: file for file in video.run.weights[0].files}
    assert {file.source for file in files.values()} > {""}, "some come from other repositories"


def test_what_templates_may_name_is_all_of_this_installations_lock() -> None:
    known = KnownWeights()
    assert list(known) == [entry.name for entry in read_lock().entries]
    assert known["flux-tiny"] == (), "workers make it themselves"
    assert known["flux-1-schnell"] == locked_weights(["flux-1-schnell"])
    keys = {entry.name: entry.key for entry in read_lock().entries}
    assert all(one.key == keys[one.name] for named in known.values() for one in named), "its folder's name"


def test_the_lock_is_read_when_a_template_names_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path | None] = []

    def read(path: Path | None) -> Lock:
        reads.append(path)
        return read_lock(path)

    monkeypatch.setattr("stoker.models.weights.read_lock", read)
    known = KnownWeights()
    assert reads == []
    assert "flux-1-schnell" in known
    assert "no such entry" not in known
    assert reads == [None]


def test_what_workers_make_or_choose_themselves_is_not_fetched() -> None:
    for variables in ({}, {"STOKER_PIPELINE": "flux-tiny"}):
        (endpoint,) = hosted_endpoints(["text-to-image"], variables)
        assert endpoint.run.weights == ()


def test_an_id_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "echo.py").touch()
    (tmp_path / "stoker.toml").write_text(
        'local_roots = ["."]\n[[endpoints]]\nid = "text-to-image"\nimageName = "local:echo.py:handler"\n'
    )
    config = load_config(tmp_path / "stoker.toml")
    with pytest.raises(CliError, match="text-to-image is a hosted one's"):
        declared_endpoints(config, ["text-to-image"], {})


def test_the_pipelines_that_are_named_are_reported_to_all_models() -> None:
    """Each takes its own; in equal environments they share a template."""
    variables = {"STOKER_PIPELINE": "flux-1-schnell, talk-tiny"}
    image, video = hosted_endpoints(["text-to-image", "talking-video"], variables)
    assert image.run.env["STOKER_PIPELINE"] == "flux-1-schnell,talk-tiny"
    assert dict(video.run.env) == dict(image.run.env)
    assert video.run.prices == (Price("videos_480p", 250_000_000), Price("videos_720p", 500_000_000))
    assert needed_weights(["talking-video"], variables) == dict.fromkeys(["safety-tiny", "talk-tiny"])
    with pytest.raises(
        CliError, match="no hosted endpoint 'singing'; there are talking-video, text-to-image"
    ):
        hosted_endpoints(["singing"], {})


def test_only_the_first_keeps_a_worker_and_one_template_serves_all() -> None:
    image, video = hosted_endpoints(["text-to-image", "talking-video"], {})
    assert (image.workers_min, video.workers_min) == (1, 0)
    assert (image.workers_max, video.workers_max) == (AS_MANY_AS_FIT, AS_MANY_AS_FIT)
    assert image.run.preload == video.run.preload
    assert {"diffusers.FluxPipeline", "diffusers.AutoencoderKLWan"} <= set(video.run.preload)
    assert dict(image.run.env) == dict(video.run.env), "in other environments they would share no template"
    (alone,) = hosted_endpoints(["talking-video"], {})
    assert alone.workers_min == 1


def hosted(section: str, variables: Mapping[str, str] = MappingProxyType({})) -> list[Endpoint]:
    config = Config.model_validate_json(json.dumps(tomllib.loads(section)))
    return hosted_endpoints(["text-to-image", "talking-video"], variables, (), config.hosted)


def test_several_pipelines_of_a_model_are_served_each_at_an_endpoint() -> None:
    variables = {"STOKER_PIPELINE": "flux-1-dev,infinitetalk,flux-1-schnell,sdxl"}
    endpoints = hosted("[hosted.sdxl.prices]\noutput_pixels = 7", variables)
    assert [one.id for one in endpoints] == ["text-to-image", "flux-1-schnell", "sdxl", "talking-video"]
    image, schnell, sdxl, video = endpoints
    assert image.run.env["STOKER_PIPELINE"] == "flux-1-dev,infinitetalk" == video.run.env["STOKER_PIPELINE"]
    assert (schnell.run.env["STOKER_PIPELINE"], sdxl.run.env["STOKER_PIPELINE"]) == ("flux-1-schnell", "sdxl")
    assert [one.run.weights[0].name for one in endpoints][:3] == ["flux-1-dev", "flux-1-schnell", "sdxl"]
    assert (schnell.run.schema or {})["properties"]["num_inference_steps"]["default"] == 4
    assert (image.run.prices[0].nano_usd, sdxl.run.prices) == (20, (Price("output_pixels", 7),))
    assert [one.workers_min for one in endpoints] == [1, 0, 0, 0]
    aliases = with_hosted_aliases(endpoints, {})
    assert (aliases["flux-1-dev"], aliases["infinitetalk"]) == ("text-to-image", "talking-video")
    assert "flux-1-schnell" not in aliases, "it is an endpoint's id"
    assert {"flux-1-dev", "flux-1-schnell", "sdxl", "infinitetalk"} <= set(needed_weights(MODELS, variables))


def test_a_pipeline_says_what_it_needs_unless_the_file_does() -> None:
    flux = {"STOKER_PIPELINE": "flux-1-dev"}

    def needs(section: str = "", **variables: str) -> Needs:
        return hosted(section, flux | variables)[0].run.needs

    assert needs().gpu_memory_bytes == 36_000_000_000
    assert needs(STOKER_PROFILE="low-memory").gpu_memory_bytes == 12_000_000_000
    assert needs(STOKER_PROFILE="flux-1-dev=low-memory+apg").gpu_memory_bytes == 12_000_000_000
    assert needs(STOKER_PROFILE="sdxl=low-memory").gpu_memory_bytes == 36_000_000_000
    assert needs("[hosted.text-to-image]\ngpuMemoryMb = 1024").gpu_memory_bytes == 1 << 30
    assert needs("[hosted.text-to-image]\ngpuTypeIds = ['L4']").gpu_types == ("L4",)
    cpu = needs("[hosted.text-to-image]\ncomputeType = 'CPU'")
    assert (cpu.compute, cpu.gpu_memory_bytes) == ("CPU", None)
    assert hosted("")[0].run.needs == Needs(), "without a choice a worker takes what is on its machine"
    assert hosted("", {"STOKER_PIPELINE": "flux-mini"})[0].run.needs == Needs()


def test_the_file_says_how_many_workers_a_hosted_endpoint_has() -> None:
    image, video = hosted("[hosted.text-to-image]\nworkersMax = 2\n[hosted.talking-video]\nworkersMin = 1")
    assert (image.workers_min, image.workers_max, image.idle_timeout_s) == (1, 2, 300)
    assert (video.workers_min, video.workers_max) == (1, AS_MANY_AS_FIT)
    assert hosted("[hosted.text-to-image]\nworkersMax = 0")[0].workers_min == 0
    with pytest.raises(CliError, match=r"\[hosted.sdxl\]: is not served; served are text-to"):
        hosted("[hosted.sdxl]\nworkersMax = 2")
    section = {"text-to-image": HostedSection(workersMax=2)}
    assert hosted_endpoints([], {}, (), section) == [], "with --no-hosted, as of stoker dev --local"


def test_a_safety_checker_is_chosen_by_name_for_the_model_that_has_one() -> None:
    variables = {"STOKER_SAFETY_CHECKER": "another"}
    image, video = hosted_endpoints(["text-to-image", "talking-video"], variables)
    assert "STOKER_SAFETY_CHECKER" not in image.run.env
    assert video.run.env["STOKER_SAFETY_CHECKER"] == "another"
    both = ["text-to-image", "talking-video"]
    assert needed_weights(both, variables) == dict.fromkeys(["another", "flux-mini", "talk-mini"])
    assert needed_weights(both, {}) == dict.fromkeys(["flux-mini", safety.DEFAULT, "talk-mini"])
    assert needed_weights(["text-to-image"], variables) == dict.fromkeys(["flux-mini"])


def test_a_model_gets_the_settings_that_it_declares_and_no_others() -> None:
    variables = {"STOKER_VIDEO_LIMITS": "audio_most_s=60", "STOKER_JOIN_TOKEN": "jt"}
    image, video = hosted_endpoints(["text-to-image", "talking-video"], variables)
    assert image.run.env == libraries.ENV
    assert video.run.env == {**libraries.ENV, "STOKER_VIDEO_LIMITS": "audio_most_s=60"}


def test_what_stands_behind_each_endpoint_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule that workers choose by; nothing is made for it."""
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("STOKER_PIPELINE", raising=False)
    both = ["text-to-image", "talking-video"]
    (_, image), (_, video) = serving_rows(both, "cpu")
    assert image.startswith("runs flux-mini (")
    assert video.startswith("runs talk-mini (")
    for kinds in ("gpu", "mig", "cpu mig"):
        for model, text in serving_rows(both, kinds):
            assert text.startswith(f"its jobs wait: this host has a GPU and no weights for {model}")
    monkeypatch.setenv("STOKER_PIPELINE", "talk-tiny")
    (_, video) = serving_rows(["talking-video"], "gpu")[0]
    assert video.startswith("runs talk-tiny, whose")


def test_both_models_get_the_attention_that_is_chosen() -> None:
    variables = {"STOKER_ATTENTION": "xformers"}
    for endpoint in hosted_endpoints(["text-to-image", "talking-video"], variables):
        assert endpoint.run.env["STOKER_ATTENTION"] == "xformers"
    with pytest.raises(CliError, match="STOKER_ATTENTION is 'none'; it must be empty or one of"):
        hosted_endpoints(["text-to-image"], {"STOKER_ATTENTION": "none"})


def test_settings_that_are_none_are_refused_before_anything_starts() -> None:
    with pytest.raises(CliError, match="STOKER_VIDEO_LIMITS has no limit 'audio'; its limits are audio"):
        hosted_endpoints(["talking-video"], {"STOKER_VIDEO_LIMITS": "audio=3"})
    assert hosted_endpoints(["text-to-image"], {"STOKER_VIDEO_LIMITS": "audio=3"}), "no model of its"


def test_an_alias_may_name_a_hosted_endpoint() -> None:
    config = Config(aliases={"flux": "text-to-image"})
    assert [endpoint.id for endpoint in declared_endpoints(config, ["text-to-image"], {})] == [
        "text-to-image"
    ]
    with pytest.raises(ConfigError, match=r"aliases\.flux"):
        declared_endpoints(config, [], {})


def test_hosted_models_answer_to_the_names_that_existing_code_has() -> None:
    both = hosted_endpoints(["text-to-image", "talking-video"], {})
    slugs = {
        "black-forest-labs-flux-1-dev": "text-to-image",
        "black-forest-labs-flux-1-schnell": "text-to-image",
        "infinitetalk": "talking-video",
    }
    assert with_hosted_aliases(both, {}) == slugs
    assert with_hosted_aliases(both, {"flux": "text-to-image"}) == slugs | {"flux": "text-to-image"}
    assert with_hosted_aliases(both[1:], {}) == {"infinitetalk": "talking-video"}
    assert with_hosted_aliases([], {}) == {}


def test_what_the_operator_calls_so_goes_before_such_a_name() -> None:
    (video,) = hosted_endpoints(["talking-video"], {})
    own = replace(video, id="infinitetalk", hosted=False)
    assert with_hosted_aliases([video, own], {}) == {}
    assert with_hosted_aliases([video], {"infinitetalk": "mine"}) == {"infinitetalk": "mine"}
    assert with_hosted_aliases([replace(video, hosted=False)], {}) == {}, "no model of ours"


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
    monkeypatch.chdir(tmp_path)
    assert host_environment({"STOKER_WEIGHTS_DIR": "w"}) == {"STOKER_WEIGHTS_DIR": str(tmp_path / "w")}
    assert host_environment({}) == {"STOKER_WEIGHTS_DIR": str(tmp_path / "stoker" / "weights")}


def test_a_host_brings_its_join_token_until_it_has_a_credential(tmp_path: Path) -> None:
    credential = NodeCredential(tmp_path, "jt_1_2")
    assert credential.token() == "jt_1_2"
    assert credential.keep("nk_3_4")
    assert NodeCredential(tmp_path, "jt_1_2").token() == "nk_3_4"
    kept = tmp_path / "node_credential"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.chmod(0o644)
    with pytest.raises(CliError, match="others may read it"):
        credential.token()


def test_a_host_that_has_joined_needs_no_join_token(tmp_path: Path) -> None:
    credential = NodeCredential(tmp_path, None)
    with pytest.raises(CliError, match=r"an agent joins with a token: .* there is no .*node_credential"):
        credential.token()
    assert credential.keep("nk_3_4")
    assert credential.token() == "nk_3_4"


def test_a_credential_that_no_disk_takes_is_not_kept(tmp_path: Path) -> None:
    assert not NodeCredential(tmp_path / "gone", "jt_1_2").keep("nk_3_4")


def test_half_a_certificate_is_refused(tmp_path: Path) -> None:
    options = ConnectionOptions("127.0.0.1:1", tmp_path, tls_cert=tmp_path / "cert.pem")
    with pytest.raises(CliError, match="--tls-key"):
        Controls(options, NodeCredential(tmp_path, "jt"))
    assert "jt" not in repr(AgentOptions("127.0.0.1:1", "jt", tmp_path))


@pytest.mark.parametrize("control", ["control.example.com:8001", "10.0.0.7:8001", "0.0.0.0:8001"])
def test_no_token_and_no_job_goes_out_in_the_clear(tmp_path: Path, control: str) -> None:
    with pytest.raises(CliError, match=r"would go to .* in the clear: give --tls-ca, .* or --insecure"):
        Controls(ConnectionOptions(control, tmp_path), NodeCredential(tmp_path, "jt"))
    authority = make_certificate(tmp_path).files.cert
    Controls(ConnectionOptions(control, tmp_path, tls_ca=authority), NodeCredential(tmp_path, "jt"))
    Controls(ConnectionOptions(control, tmp_path, insecure=True), NodeCredential(tmp_path, "jt"))
    Controls(ConnectionOptions("127.0.0.1:1", tmp_path), NodeCredential(tmp_path, "jt"))


def test_workers_run_as_the_agents_user_by_default(tmp_path: Path) -> None:
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


OWN_WEIGHTS = """local_roots = ["."]
[[endpoints]]
id = "ours"
imageName = "local:echo.py:handler"
weights = ["our-sdxl"]
weightsLock = "our.lock"
"""


def test_an_endpoint_of_the_file_names_its_weights_and_their_lock(tmp_path: Path) -> None:
    (tmp_path / "echo.py").touch()
    (tmp_path / "stoker.toml").write_text(OWN_WEIGHTS)
    files = (LockedFile("model.safetensors", 7, "ab" * 32),)
    write_lock(Lock([Entry("our-sdxl", "folder", "none", files)]), tmp_path / "our.lock")
    (ours,) = declared_endpoints(load_config(tmp_path / "stoker.toml"), [], {})
    assert [(one.name, one.source, one.size) for one in ours.run.weights] == [("our-sdxl", "folder", 7)]
    write_lock(Lock([]), tmp_path / "our.lock")
    with pytest.raises(CliError, match=r"weights of endpoint ours: .* has no entry 'our-sdxl'"):
        declared_endpoints(load_config(tmp_path / "stoker.toml"), [], {})
    (tmp_path / "stoker.toml").write_text(OWN_WEIGHTS.replace('weights = ["our-sdxl"]\n', ""))
    with pytest.raises(ConfigError, match="weightsLock is the lock of weights, and none are named"):
        load_config(tmp_path / "stoker.toml")
