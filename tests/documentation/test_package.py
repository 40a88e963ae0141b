"""The look at what sdist and wheel hold: `.ci/package.py` finds what lacks, and what is not for users."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load_module import load_module

package = load_module("ci_package", Path(__file__).parents[2] / ".ci" / "package.py")
WELL = [*package.HOLDS, "stoker/__init__.py", *(f"stoker/{part}/__init__.py" for part in package.PARTS)]


def test_a_package_with_all_parts_is_accepted() -> None:
    package.check_names(WELL, "")
    package.check_names(
        ["stoker-1/pyproject.toml", *(f"stoker-1/src/{name}" for name in WELL)], "stoker-1/src/"
    )


@pytest.mark.parametrize("missing", package.HOLDS)
def test_each_file_must_be_there(missing: str) -> None:
    with pytest.raises(package.Wrong, match="lacks"):
        package.check_names([name for name in WELL if name != missing], "")


@pytest.mark.parametrize(
    "name",
    [
        "stoker/training/step.py",
        "tests/conftest.py",
        "stoker/cli/__pycache__/main.pyc",
        "training/x.py",
        ".env",
    ],
)
def test_what_is_not_for_users_is_refused(name: str) -> None:
    with pytest.raises(package.Wrong):
        package.check_names([*WELL, name], "")


def test_every_part_of_the_source_is_a_part_of_the_package() -> None:
    folders = {path.name for path in (package.ROOT / "src" / "stoker").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {*package.PARTS}
