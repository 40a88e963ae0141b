"""How much the cache of inputs keeps, as the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.agent.inputs import CACHE_MB, input_cache
from stoker.cli.errors import CliError


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1 GB", "²", "9" * 10])
def test_a_size_that_is_none_is_refused_in_a_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(CliError, match="STOKER_INPUT_CACHE_MB must be a whole number of megabytes from 0"):
        input_cache(tmp_path, {CACHE_MB: text})


async def test_it_lies_in_the_data_folder(tmp_path: Path) -> None:
    cache = input_cache(tmp_path, {CACHE_MB: "0"})
    assert (tmp_path / "inputs" / "contents").is_dir()
    await cache.close()
