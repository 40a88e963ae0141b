"""How many weights an agent keeps and where it fetches them, as the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.agent.weights.cache import WeightsCache
from stoker.agent.weights.fetching import Try
from stoker.agent.weights.interfaces import NoWeights, WeightsFailed
from stoker.cli.agent.weights import CACHE_MB, MIRROR, weights_cache
from stoker.cli.errors import CliError
from tests.servers.weights_server import locked, put

FILES = {"model.safetensors": b"weights" * 1000}
S3 = {
    "STOKER_S3_ENDPOINT_URL": "http://127.0.0.1:1",
    "STOKER_S3_BUCKET": "jobs",
    "STOKER_S3_ACCESS_ID": "id",
    "STOKER_S3_ACCESS_SECRET": "hunter2",
}


def cache(folder: Path, variables: dict[str, str], environ: dict[str, str] | None = None) -> WeightsCache:
    made = weights_cache(folder, "gpu-1", variables, environ or {})
    assert isinstance(made, WeightsCache)
    return made


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1 GB", "²", "9" * 10])
def test_a_size_that_is_none_is_refused_in_a_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(CliError, match="STOKER_WEIGHTS_CACHE_MB must be a whole number of megabytes from 0"):
        weights_cache(tmp_path, "gpu-1", {CACHE_MB: text}, {})


def test_zero_fetches_none(tmp_path: Path) -> None:
    assert isinstance(weights_cache(tmp_path, "gpu-1", {CACHE_MB: "0"}, {}), NoWeights)


@pytest.mark.parametrize("mirror", ["mirror", "./mirror", "ftp://host/x"])
def test_a_mirror_that_is_none_is_refused(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(CliError, match="STOKER_WEIGHTS_MIRROR must be an absolute path, a URL or s3://"):
        weights_cache(tmp_path, "gpu-1", {MIRROR: mirror}, {})


def test_a_bucket_needs_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="name its object store in STOKER_S3_"):
        weights_cache(tmp_path, "gpu-1", {MIRROR: "s3://models/w"}, {})


def test_a_bucket_is_asked_by_signed_requests_without_its_secret_in_a_message(tmp_path: Path) -> None:
    fetcher = cache(tmp_path, {**S3, MIRROR: "s3://models/w"})._fetcher
    with pytest.raises(WeightsFailed) as failed:
        fetcher.bring(locked("flux", FILES), Try())
    assert "model.safetensors in the mirror s3://models/w: http://127.0.0.1:1/" in str(failed.value)
    assert "models/w/flux/model.safetensors" in str(failed.value)
    assert "hunter2" not in str(failed.value)
    assert "Signature" not in str(failed.value)


def test_a_folder_is_copied_from_and_workers_need_not_read_it_again(tmp_path: Path) -> None:
    put(tmp_path / "mirror" / "flux", FILES)
    fetcher = cache(tmp_path / "weights", {MIRROR: str(tmp_path / "mirror")})._fetcher
    entry = locked("flux", FILES)
    fetcher.bring(entry, Try())
    assert list(fetcher.store.held()) == [entry.key]


def test_the_hub_and_its_token_are_those_of_the_environment(tmp_path: Path) -> None:
    hub = cache(tmp_path, {}, {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_TOKEN": "hf_secret"})._fetcher._hub
    assert (hub.endpoint, hub.token) == ("http://127.0.0.1:1", "hf_secret")
    assert cache(tmp_path, {})._fetcher._hub.endpoint == "https://huggingface.co"
