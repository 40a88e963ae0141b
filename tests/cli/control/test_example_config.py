"""The documented configuration is one that is accepted, with its comments taken off too."""

from __future__ import annotations

import re
from pathlib import Path

from stoker.control.config.config import load_config
from stoker.control.config.sections import Config, EndpointSection

EXAMPLE = Path(__file__).parents[3] / "deploy" / "stoker.example.toml"
COMMENTED = re.compile(r"^# (?=\[|\w+ +=)", re.MULTILINE)


def test_the_example_is_accepted_and_shows_every_field(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "caption.py").touch()
    text = EXAMPLE.read_text()
    for version in (text, COMMENTED.sub("", text)):
        (tmp_path / "stoker.toml").write_text(version)
        config = load_config(tmp_path / "stoker.toml")
    assert config.s3 is not None
    assert config.endpoints[0].id == "caption"
    for field in (*Config.model_fields, *EndpointSection.model_fields):
        assert re.search(rf"\b{field}\b", text), f"{field} is not in the example"
