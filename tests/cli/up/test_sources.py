"""What counts as the source of an endpoint's handler, and what of it is a new version."""

from __future__ import annotations

from pathlib import Path

from stoker.cli.control.sources import VARIABLE, sources, with_sources
from stoker.control.rules.types import Endpoint, EndpointVersion


def endpoint(name: str, handler: Path, attribute: str = ":handler", **run: str) -> Endpoint:
    version = EndpointVersion(handler=f"{handler}{attribute}", env={"A": "1"}, **run)  # type: ignore[arg-type]
    return Endpoint(id=name, account="default", name=name, version=1, run=version)


def test_a_handler_is_its_file_and_what_lies_next_to_it_but_no_other_handler(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "shared.py", "data.txt"):
        (tmp_path / name).write_text("1")
    (tmp_path / "below" / "__pycache__").mkdir(parents=True)
    both = [endpoint("a", tmp_path / "a.py"), endpoint("b", tmp_path / "b.py")]
    before = sources(both)
    for path, changed in (
        ("a.py", {"a"}),
        ("shared.py", {"a", "b"}),
        ("below/deep.py", {"a", "b"}),
        ("data.txt", set()),
        ("below/__pycache__/a.py", set()),
    ):
        (tmp_path / path).write_text("2")
        after = sources(both)
        assert {name for name in after if after[name] != before[name]} == changed, path
        before = after


def test_a_program_is_all_that_can_be_executed_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "serve").write_text("#!/bin/sh\n")
    program = [endpoint("p", tmp_path, "", kind="protocol")]
    before = sources(program)
    (tmp_path / "serve").chmod(0o755)
    assert sources(program) != before


def test_only_what_lies_on_this_machine_has_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    image = endpoint("i", Path("/app/a.py"), image="acme/a:1")
    mine, other = with_sources([endpoint("a", tmp_path / "a.py"), image])
    assert set(mine.run.env) == {"A", VARIABLE}
    assert other == image
