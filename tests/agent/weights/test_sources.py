"""Where files are read, and what is never asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.agent.weights.interfaces import WeightsFailed
from stoker.agent.weights.sources import Hub, check, folder_mirror, place_of, url_mirror
from stoker.outbound.download import LocalFile
from stoker.wire.messages import LockedWeights, WeightsFile

FILE = WeightsFile("vae/model one.safetensors", 5, "ab" * 32)
ENTRY = LockedWeights("flux", "huggingface:owner/flux", "c0ffee", (FILE,))
HUB = Hub("https://hub.example/", "hf_secret")


def test_a_file_of_the_hub_has_its_repository_and_commit() -> None:
    place = place_of(ENTRY, FILE, HUB, None)
    assert (
        repr(place.source)
        == "HttpFile('https://hub.example/owner/flux/resolve/c0ffee/vae/model%20one.safetensors')"
    )
    assert place.said == "vae/model one.safetensors of owner/flux at c0ffee"
    assert "HF_TOKEN of this agent may not read it" in place.hint
    assert "this agent has no HF_TOKEN" in place_of(ENTRY, FILE, Hub(), None).hint
    assert "hf_secret" not in repr((HUB, place))


def test_a_file_from_elsewhere_has_its_own_repository_name_and_commit() -> None:
    other = replace(FILE, source="huggingface:other/vae", name="model.safetensors", commit="beef")
    assert place_of(ENTRY, other, HUB, None).said == "model.safetensors of other/vae at beef"


def test_a_mirror_is_asked_for_the_entrys_name_and_path() -> None:
    source = place_of(ENTRY, FILE, HUB, folder_mirror(Path("/mnt"))).source
    assert source == LocalFile(Path("/mnt/flux/vae/model one.safetensors"))
    assert repr(place_of(ENTRY, FILE, HUB, url_mirror("http://mirror/w/")).source) == (
        "HttpFile('http://mirror/w/flux/vae/model%20one.safetensors')"
    )


def test_a_mirror_s_password_is_not_said() -> None:
    place = place_of(ENTRY, FILE, HUB, url_mirror("https://reader:secret@mirror/w"))
    assert place.said == "flux/vae/model one.safetensors in the mirror https://mirror/w"


def test_what_was_locked_from_a_folder_needs_a_mirror() -> None:
    with pytest.raises(WeightsFailed, match="set STOKER_WEIGHTS_MIRROR") as failed:
        place_of(replace(ENTRY, source="folder", commit=""), FILE, HUB, None)
    assert failed.value.definite


@pytest.mark.parametrize("repository", ["owner", "owner/../x", "a/b/c", "@evil/x", "owner/flux?x=", ""])
def test_a_repository_that_is_none_is_not_asked_for(repository: str) -> None:
    with pytest.raises(WeightsFailed):
        place_of(replace(ENTRY, source=f"huggingface:{repository}"), FILE, HUB, None)


@pytest.mark.parametrize("commit", ["", "../main", "a/b", "a?b"])
def test_a_commit_that_is_none_is_not_asked_for(commit: str) -> None:
    with pytest.raises(WeightsFailed):
        place_of(replace(ENTRY, commit=commit), FILE, HUB, None)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\x00b"])
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    with pytest.raises(WeightsFailed):
        check(replace(ENTRY, files=(replace(FILE, path=path),)))
    with pytest.raises(WeightsFailed):
        place_of(ENTRY, replace(FILE, source="huggingface:o/n", name=path or "/", commit="c"), HUB, None)


@pytest.mark.parametrize("name", ["", ".", "..", ".flux", "a/b", "x" * 129])
def test_a_name_that_is_none_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(WeightsFailed, match="their name cannot be that of a folder"):
        check(replace(ENTRY, name=name))


def test_an_unknown_digest_is_said_with_the_command_that_finds_it() -> None:
    with pytest.raises(
        WeightsFailed, match=r"digest of .* is unknown; .*: stoker weights lock flux"
    ) as failed:
        check(replace(ENTRY, files=(replace(FILE, sha256=""),)))
    assert failed.value.definite
    check(ENTRY)


def test_no_files_or_one_twice_are_refused() -> None:
    for files in ((), (FILE, FILE)):
        with pytest.raises(WeightsFailed, match="names no files, or one twice"):
            check(replace(ENTRY, files=files))
