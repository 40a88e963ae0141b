"""The checked-in stubs are what agent.proto makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.wire import agent_pb2_grpc, codec

ROOT = Path(__file__).parents[2]
STUBS = ["agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py"]


def test_generating_again_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools makes the stubs")
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    subprocess.run(["wire/generate.sh"], cwd=ROOT, env=environment, check=True)
    made = tmp_path / "stoker" / "wire"
    assert sorted(path.name for path in made.iterdir()) == sorted(STUBS)
    for name in STUBS:
        assert (made / name).read_bytes() == (ROOT / "wire" / name).read_bytes(), f"{name}: run `make proto`"


def test_the_adapters_name_the_method_as_the_contract_does() -> None:
    class Channel:
        def stream_stream(self, method: str, **_: object) -> str:
            return method

    assert agent_pb2_grpc.AgentsStub(Channel()).Session == codec.SESSION
