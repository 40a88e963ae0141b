"""The project name of a folder is one that Python's packaging takes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from stoker.cli.consoles import plain_console
from stoker.cli.dev.starter import project_name, write_project


@given(st.text(max_size=20))
def test_of_any_folder(folder: str) -> None:
    name = project_name(folder)
    assert canonicalize_name(name, validate=True) == name


@pytest.mark.parametrize(
    ("folder", "name"), [("My App!", "my-app"), ("übung", "ubung"), ("日本", "app"), ("a_b.c", "a-b-c")]
)
def test_as_written(folder: str, name: str, tmp_path: Path) -> None:
    write_project(tmp_path / folder, plain_console())
    project = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == name
