"""The documentation as a site: what is in it, and the public names that it documents."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

PUBLIC = {
    "stoker.worker": {
        *("Cancelled", "Device", "File", "FileRefused", "FitnessError", "HandlerError", "InputRefused"),
        *("Job", "KeptUnavailable", "OutputError", "RegistrationError", "RetryableError", "Yielded"),
        *("fitness_check", "handler"),
    },
    "stoker.client": {
        *("ApiError", "AsyncClient", "Attempt", "AttemptLog", "BadRequest", "Client", "ClientError"),
        *(
            "Event",
            "Health",
            "JobAttempts",
            "JobFailed",
            "JobPage",
            "JobRecord",
            "KeyInTheClear",
            "KeyReused",
            "NotEnded",
            "NotFound",
        ),
        *("RateLimited", "Remote", "TooLarge", "Unauthorized", "Unavailable", "Unreachable", "endpoint"),
        "WorkerLog",
    },
}
"""The names that programs import. One that goes, or changes its meaning, is a new major version."""


def test_every_page_has_a_place() -> None:
    def pages(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        return [page for child in children for page in pages(child)]  # type: ignore[union-attr]

    listed = pages(SITE["nav"])
    assert sorted(listed) == sorted(
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")
    )


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_public_names_are_those_that_were_promised(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_every_public_name_says_what_it_is(module: str) -> None:
    found = importlib.import_module(module)
    named = {name: getattr(found, name) for name in found.__all__}
    silent = [name for name, value in named.items() if not (inspect.getdoc(value) or "").strip()]
    assert silent == []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("zensical") is None, reason="the site is built by zensical: make docs")
def test_the_site_is_built_without_a_fault_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    built = tmp_path / SITE["site_dir"]
    pages = {path.name: path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?https?://[^\" >]+")
    assert {name: found for name, page in pages.items() if (found := loaded.findall(page))} == {}
    for module, names in PUBLIC.items():
        page = pages[f"reference-{module.rpartition('.')[2]}.html"]
        missing = [
            name for name in names if not re.search(rf'id="?{re.escape(module)}[\w.]*\.{name}\b', page)
        ]
        assert missing == [], module
