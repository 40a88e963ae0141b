"""Certificates of nodes over their life, with real processes: an authority, a node that joins by its
fingerprint, jobs while certificates are renewed, callers without one, and the end by revocation."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stoker.agent.link.grpc_stream import CertificateRefused, ConnectFailed, connect
from stoker.cli.agent.node_certificate import AUTHORITIES, CERTIFICATE
from stoker.cli.control.authority_files import AuthorityFiles
from stoker.cli.main import main
from stoker.wire.newcomers import newcomer
from tests.system.stack import START_S, Stack, queue_endpoint, until

pytestmark = pytest.mark.slow

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
ENDPOINTS = (
    queue_endpoint("echo", "outputs/echo.py"),
    queue_endpoint("waits", "recording/first_attempt_waits.py"),
)
TLS = """
[tls]
cert = "data/ca/control.pem"
key = "data/ca/control.key"
"""
REQUIRED = """
[agent_certificates]
mode = "require"
life_s = 60
"""
GOOD_UNTIL = "the node's certificate is good until"


def authority_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Made for control on this host; returns what agents pin."""
    for command in (["init"], ["issue", "localhost", "127.0.0.1"]):
        with pytest.raises(SystemExit) as ended:
            main(["ca", *command, "--data-dir", str(folder / "data")])
        assert ended.value.code == 0
    pinned: str = capsys.readouterr().err.partition("--ca-fingerprint ")[2].split()[0]
    return pinned


async def refused(stack: Stack, credential: str, certificate: bytes | None, key: bytes | None) -> str:
    """What control says to somebody who brings these."""
    ca = (stack.folder / "agent" / AUTHORITIES).read_bytes()
    with pytest.raises((CertificateRefused, ConnectFailed)) as raised:
        await connect(stack.facts["grpc"], credential, ca=ca, cert=certificate, key=key)
    return str(raised.value)


def test_a_node_lives_by_its_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pinned = authority_of(tmp_path, capsys)
    stack = Stack(tmp_path, "behind_proxy = true", *ENDPOINTS, TLS, REQUIRED)
    stack.agent_options += ["--ca-fingerprint", pinned]
    try:
        stack.start()
        kept = tmp_path / "agent" / CERTIFICATE
        assert kept.stat().st_mode & 0o777 == 0o600
        assert "PRIVATE KEY" in kept.read_text()
        assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}

        # Renewed again and again under a job; the session goes on.
        go, before = tmp_path / "go", stack.log("agent").count(GOOD_UNTIL)
        job = stack.run("waits", {"runs": str(tmp_path / "runs"), "go": str(go)})
        assert stack.first_chunk("waits", job)["attempt"] == 1
        until(lambda: stack.log("agent").count(GOOD_UNTIL) >= before + 3, START_S, "three renewals")
        go.touch()
        assert stack.end_of("waits", job)["output"] == {"attempt": 1}
        assert stack.log("agent").count(" begins") == 1

        # A stolen credential is of no use without the key, and neither is a certificate of anybody's making.
        credential = (tmp_path / "agent" / "node_credential").read_text().strip()
        key, certificate = newcomer()
        assert "showed none of its own" in asyncio.run(refused(stack, credential, certificate, key))
        assert "cannot reach control" in asyncio.run(refused(stack, credential, None, None))

        # Started again, it comes back with what it has.
        stack.kill("agent")
        stack.start_agent()
        assert stack.log("agent").count("this node joined") == 1

        (node,) = stack.http.get(f"{stack.facts['http']}/v1/nodes").json()
        assert node["facts"]["certificate_ends"].endswith("Z")
        scraped = stack.http.get(f"{stack.facts['http']}/metrics").text
        for line in (f'stoker_node_certificate_seconds{{node="{node["id"]}"}}', '{certificate="control"}'):
            assert line in scraped
        stack.http.post(f"{stack.facts['http']}/v1/nodes/{node['id']}/revoke").raise_for_status()
        stack.agent.wait()
        assert "its credential was revoked" in stack.log("agent")
        assert "this node's credential is not known, or was revoked" in stack.end_of_log("agent")
    finally:
        stack.stop()


def test_the_platform_of_compose_lets_its_node_in_by_the_file_of_its_authority(tmp_path: Path) -> None:
    """With what its service `certificates` makes, its settings, and the agent's option; the chart's agents
    have the same one."""
    service = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    _, program, _, _, *names = service["certificates"]["entrypoint"]
    (tmp_path / "data").mkdir()
    command = [sys.executable, COMPOSE / Path(program).name, tmp_path / "data", tmp_path, *names]
    subprocess.run(command, check=True, capture_output=True)
    settings = (COMPOSE / "stoker.toml").read_text()
    stack = Stack(tmp_path, "behind_proxy = true", *ENDPOINTS, TLS, settings)
    agent = service["agent"]["command"]
    stack.agent_options += ["--tls-ca", str(tmp_path / Path(agent[agent.index("--tls-ca") + 1]).name)]
    try:
        stack.start()
        assert "PRIVATE KEY" in (tmp_path / "agent" / CERTIFICATE).read_text()
        assert not (tmp_path / "agent" / AUTHORITIES).exists(), "the file is the operator's"
        assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
        credential = (tmp_path / "agent" / "node_credential").read_text().strip()
        key, certificate = newcomer()
        ca = (tmp_path / "ca.pem").read_bytes()
        with pytest.raises(CertificateRefused, match="showed none of its own"):
            asyncio.run(connect(stack.facts["grpc"], credential, ca=ca, cert=certificate, key=key))
    finally:
        stack.stop()


def ended_certificate(folder: Path, node: str) -> str:
    """What the node's file would have after a long sleep."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    credential = (folder / "agent" / "node_credential").read_text().split("_")[1]
    authority = AuthorityFiles(folder / "data" / "ca").read()
    signed = authority.sign_node(
        request.public_bytes(Encoding.PEM), node, credential, time.time() - 86_400.0, 3600.0
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + signed).decode()


def test_a_fleet_changes_over_and_a_host_that_slept_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = authority_of(tmp_path, capsys)
    stack = Stack(tmp_path, "behind_proxy = true", *ENDPOINTS, TLS)
    stack.agent_options += ["--ca-fingerprint", pinned]
    before = stack.config.read_text()
    kept = tmp_path / "agent" / CERTIFICATE
    try:
        stack.start()
        assert not kept.exists()
        for mode in ("issue", "require"):
            stack.end_control()
            stack.config.write_text(before + REQUIRED.replace("require", mode))
            stack.start_control()
            until(kept.exists, START_S, "a certificate of a node that joined before there were any")
            assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
        assert stack.log("agent").count("this node joined") == 1

        (node,) = stack.http.get(f"{stack.facts['http']}/v1/nodes").json()
        stack.kill("agent")
        kept.write_text(ended_certificate(tmp_path, node["id"]))
        join, stack.join = stack.join, ""
        with pytest.raises(AssertionError, match="start its agent with a join token, of `stoker key create"):
            stack.start_agent()
        stack.join = join
        stack.start_agent()
        assert stack.runsync("echo", {"n": 2})["output"] == {"n": 2}
        (again,) = stack.http.get(f"{stack.facts['http']}/v1/nodes").json()
        assert again["id"] == node["id"]
    finally:
        stack.stop()
