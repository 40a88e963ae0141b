"""A newcomer's wait: what is kept of it, and the exit status beyond the limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import newcomer


@pytest.mark.parametrize(("page_s", "within"), [(newcomer.LIMIT_S - 60, True), (newcomer.LIMIT_S, False)])
def test_the_limit_is_for_all_parts_together(
    page_s: float, within: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"link": {"seconds": 60.0, "cpu_s": 1.5}, "page": {"seconds": page_s, "cpu_s": 1.5}}
    monkeypatch.setattr(newcomer, "measure", lambda folder, *, demo: parts)
    monkeypatch.setattr(newcomer, "CHROMIUM", "/usr/bin/chromium")
    monkeypatch.setattr(sys, "argv", ["newcomer.py", "--json", str(tmp_path / "kept.json")])
    if within:
        newcomer.main()
    else:
        with pytest.raises(SystemExit, match=r"^1$"):
            newcomer.main()
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["in all"] == {"seconds": 60 + page_s, "cpu_s": 3.0}
    assert (kept["limit_s"], kept["within_limit"]) == (newcomer.LIMIT_S, within)
