"""The closure of imports, its hash, and what is refused."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.apps import bundle as bundles
from stoker.client.apps.bundle import Bundle, BundleError, bundle


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        file = root / (name.replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def files_of(root: Path, *entries: str) -> list[str]:
    return sorted(bundle(root, *entries).files)


def test_the_closure_has_what_is_imported_and_no_more(tmp_path: Path) -> None:
    write(
        tmp_path,
        app="import json, numpy, tools.words\nfrom lib import thing",
        unused="",
        tools__words="def f():\n    from . import more\n",
        tools__more="from ..other import x",
        tools__unused="",
        lib__thing="import app",
        other="",
    )
    (tmp_path / "tools" / "__init__.py").write_text("import unknown")
    assert files_of(tmp_path, "app.py") == [
        "app.py",
        "lib/thing.py",
        "tools/__init__.py",
        "tools/more.py",
        "tools/words.py",
    ]


def test_siblings_of_the_entry_are_found_and_the_root_comes_with_them(tmp_path: Path) -> None:
    write(tmp_path, **{"03_mixed__w": "import near\nimport far\n", "03_mixed__near": "import far"}, far="")
    assert files_of(tmp_path, "03_mixed/w.py") == ["03_mixed/near.py", "03_mixed/w.py", "far.py"]


def test_a_link_out_of_the_project_is_not_shipped(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside.py", tmp_path / "app"
    outside.write_text("SECRET = 1")
    write(root, app="import outside")
    (root / "outside.py").symlink_to(outside)
    assert files_of(root, "app.py") == ["app.py"]


def test_an_import_beyond_the_top_is_left_to_fail_where_it_runs(tmp_path: Path) -> None:
    write(tmp_path, app="from .... import x\nfrom . import near", near="")
    assert files_of(tmp_path, "app.py") == ["app.py", "near.py"]


def test_what_cannot_be_shipped_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, app="import broken", broken="x = 1\ndef f(:\n")
    with pytest.raises(BundleError, match=r"broken\.py, line 2: syntax error"):
        bundle(tmp_path, "app.py")
    with pytest.raises(BundleError, match=r"absent\.py cannot be read"):
        bundle(tmp_path, "absent.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    with pytest.raises(BundleError, match="not UTF-8"):
        bundle(tmp_path, "latin.py")
    monkeypatch.setattr(bundles, "BYTES_MAX", 1 << 20)
    write(tmp_path, large=f"# {'x' * (1 << 20)}")
    with pytest.raises(BundleError, match=r"over 1 MiB; install a part"):
        bundle(tmp_path, "large.py")


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=["Cs"]))))
def test_the_hash_is_of_the_content_alone(files: dict[str, str]) -> None:
    one, other = Bundle(files), Bundle(dict(reversed(files.items())))
    assert (one.hash, one.packed()) == (other.hash, other.packed())
    assert json.loads(zlib.decompress(base64.b64decode(one.packed()))) == files
    assert Bundle({**files, "more": "x"}).hash != one.hash or files.get("more") == "x"
