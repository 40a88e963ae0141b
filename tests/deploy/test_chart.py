"""The chart of deploy/helm: rendered by Helm's own engine, looked at by Kubernetes' schemas, and what its
documents say to each other and to our commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker import __version__
from stoker.cli.control.authority_files import AuthorityFiles, is_exposed
from stoker.cli.data_folder import DataFolder
from stoker.control.config.config import load_config
from tests.cli.every_command import COMMANDS
from tests.documentation.page_checks import VARIABLES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "stoker"
PEER = ROOT / ".peers" / "charts"
TLS = {"tls": {"secretName": "our-tls"}}
SECRETS = {
    "databaseUrl": "postgresql://stoker:secret-1@db/stoker",
    "secretKey": "secret-2",
    "apiKey": "sk_secret-3",
    "joinToken": "jt_secret-4",
    "s3": {"endpointUrl": "https://s3", "bucket": "images", "accessId": "id", "accessSecret": "secret-5"},
}
AUTHORITY = {"mode": "require", "secretName": "our-authority", "lifeSeconds": 86_400}
OIDC = {"issuer": "https://login", "audience": ["stoker", "page"], "rights": {'a "group" < 1': "write"}}
MONITORED = {"enabled": True, "keySecret": "our-key"}
FROM = [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]
VALUES: dict[str, dict[str, Any]] = {
    "least": {"control": TLS, "secret": {"existing": "our-secrets"}},
    "all": {
        "control": {
            **TLS,
            "replicas": 3,
            "agentCertificates": AUTHORITY,
            "oidc": OIDC,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"operator": "Exists"}],
            "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        },
        "agent": {"labels": {"disk": "nvme"}},
        "secret": SECRETS,
        "networkPolicy": {"callers": FROM, "monitoring": FROM},
        "serviceMonitor": MONITORED,
    },
    "without": {
        "control": TLS,
        "secret": {"existing": "our-secrets"},
        "agent": {"enabled": False, "runtimeClassName": ""},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no certificate": ({"secret": {"existing": "our-secrets"}}, "secretName"),
    "no secrets": ({"control": TLS}, "secret.databaseUrl, or secret.existing, is needed"),
    "no join token": ({"control": TLS, "secret": {**SECRETS, "joinToken": ""}}, "secret.joinToken is needed"),
    "unknown": ({"control": {**TLS, "replica": 2}, "secret": {"existing": "s"}}, "replica"),
    "no authority": (
        {"control": {**TLS, "agentCertificates": {"mode": "issue"}}, "secret": {"existing": "s"}},
        "control.agentCertificates.secretName is needed",
    ),
    "no such mode": (
        {"control": {**TLS, "agentCertificates": {**AUTHORITY, "mode": "on"}}, "secret": {"existing": "s"}},
        "mode",
    ),
    "a life that is too short": (
        {
            "control": {**TLS, "agentCertificates": {**AUTHORITY, "lifeSeconds": 1}},
            "secret": {"existing": "s"},
        },
        "lifeSeconds",
    ),
    "an issuer in the clear": (
        {"control": {**TLS, "oidc": {**OIDC, "issuer": "http://login"}}, "secret": {"existing": "s"}},
        "issuer",
    ),
    "no audience": (
        {"control": {**TLS, "oidc": {**OIDC, "audience": []}}, "secret": {"existing": "s"}},
        "control.oidc.audience is needed",
    ),
    "no rights": (
        {
            "control": {**TLS, "oidc": {"issuer": "https://login", "audience": ["a"]}},
            "secret": {"existing": "s"},
        },
        "control.oidc.rights is needed",
    ),
    "a right that is none": (
        {"control": {**TLS, "oidc": {**OIDC, "rights": {"a": "admin"}}}, "secret": {"existing": "s"}},
        "rights",
    ),
    "a section twice": (
        {"control": {**TLS, "oidc": OIDC, "config": "[ oidc ]"}, "secret": {"existing": "s"}},
        "control.config has [oidc] already",
    ),
    "no key to scrape with": (
        {"control": TLS, "secret": {"existing": "s"}, "serviceMonitor": {"enabled": True}},
        "serviceMonitor.keySecret is needed",
    ),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """All values, rendered in one process: its library takes a second to load."""
    python = PEER / "bin" / "python"
    if not python.exists():
        why = PEER.with_suffix(".why")
        pytest.skip(why.read_text() if why.exists() else "Helm is not installed: make peers")
    given = {**VALUES, **{name: values for name, (values, _) in REFUSED.items()}}
    ran = subprocess.run(
        [python, "-P", Path(__file__).with_name("render_chart.py"), CHART],
        input=json.dumps([*given.values()]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return dict(zip(given, json.loads(ran.stdout), strict=True))


@pytest.fixture
def documents(answers: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """By kind and name: those of all that can be switched on."""
    return {(one["kind"], one["metadata"]["name"]): one for one in answers["all"]["documents"]}


@pytest.mark.parametrize("name", VALUES)
def test_helm_and_kubernetes_accept_the_chart(name: str, answers: dict[str, Any]) -> None:
    answer = answers[name]
    assert "refused" not in answer, answer
    assert [one for one in answer["lint"] if one["severity"] > 1] == []
    assert answer["faults"] == []
    kinds = {document["kind"] for document in answer["documents"]}
    assert {"Deployment", "Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding"} <= kinds
    optional = {"DaemonSet", "PodDisruptionBudget", "NetworkPolicy"}
    assert optional <= kinds if name != "without" else not optional & kinds
    assert ("Secret" in kinds, "ServiceMonitor" in kinds) == (name == "all", name == "all")


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_would_not_work_are_refused_with_a_sentence(name: str, answers: dict[str, Any]) -> None:
    assert REFUSED[name][1] in answers[name]["refused"]


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def container(document: Any) -> Any:
    (only,) = document["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize(("kind", "part"), [("Deployment", "control"), ("DaemonSet", "agent")])
def test_each_pod_runs_a_command_of_ours(
    kind: str, part: str, documents: dict[tuple[str, str], Any], tmp_path: Path
) -> None:
    """After what the image's ENTRYPOINT gives. The files are mounted, and their folders are volumes."""
    found = container(documents[kind, f"mine-{part}"])
    for file in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / file).touch()
    COMMANDS[part].make_context(
        part, [one.replace("/etc/stoker-tls", str(tmp_path)) for one in found["args"]]
    )
    names = {one["name"] for one in found["env"]}
    assert {name for name in names if name.startswith("STOKER_")} <= VARIABLES
    mounted = {one["name"] for one in found["volumeMounts"]}
    assert mounted == {
        one["name"] for one in documents[kind, f"mine-{part}"]["spec"]["template"]["spec"]["volumes"]
    }


def test_the_settings_are_accepted(documents: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    data = documents["ConfigMap", "mine-control"]["data"]
    (tmp_path / "stoker.toml").write_text(data["stoker.toml"])
    config = load_config(tmp_path / "stoker.toml")
    assert config.retention.async_s == 3600, "those of the text, too"
    assert config.agent_certificates is not None
    assert (config.agent_certificates.mode, config.agent_certificates.life_s) == ("require", 86_400)
    assert config.oidc is not None
    assert config.oidc.model_dump() == {**OIDC, "claim": "groups"}
    assert data["probe.py"].strip() == (CHART / "probe.py").read_text().strip()


def test_the_authority_lies_where_control_reads_it(documents: dict[tuple[str, str], Any]) -> None:
    """Its user may read it by its group alone, and others may not."""
    pod = documents["Deployment", "mine-control"]["spec"]["template"]["spec"]
    files = AuthorityFiles(DataFolder(Path("/var/lib/stoker")).authority)
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "authority")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "authority")
    assert Path(mount["mountPath"], volume["secret"]["items"][0]["path"]) == files.key
    assert volume["secret"]["secretName"] == "our-authority"
    mode = 0o100000 | volume["secret"]["defaultMode"]
    mounted = os.stat_result((mode, 0, 0, 1, 0, pod["securityContext"]["fsGroup"], 0, 0, 0, 0))
    assert not is_exposed(mounted, pod["securityContext"]["runAsUser"])
    agent = container(documents["DaemonSet", "mine-agent"])["args"]
    assert "--tls-ca" in agent, "over TLS, an agent requests its certificate by itself"
    assert "--tls-cert" not in agent


def test_a_change_of_the_settings_replaces_the_pods(answers: dict[str, Any]) -> None:
    found = set()
    for name in ("least", "all", "without"):
        (control,) = (one for one in answers[name]["documents"] if one["kind"] == "Deployment")
        found.add(control["spec"]["template"]["metadata"]["annotations"]["checksum/config"])
    assert len(found) == 2


def test_what_selects_pods_selects_those_of_its_part(documents: dict[tuple[str, str], Any]) -> None:
    pods = {
        part: documents[kind, f"mine-{part}"]["spec"]["template"]["metadata"]["labels"]
        for kind, part in (("Deployment", "control"), ("DaemonSet", "agent"))
    }
    selectors = [
        ("control", documents["Deployment", "mine-control"]["spec"]["selector"]["matchLabels"]),
        ("agent", documents["DaemonSet", "mine-agent"]["spec"]["selector"]["matchLabels"]),
        ("control", documents["PodDisruptionBudget", "mine-control"]["spec"]["selector"]["matchLabels"]),
        ("control", documents["NetworkPolicy", "mine-control"]["spec"]["podSelector"]["matchLabels"]),
        ("agent", documents["NetworkPolicy", "mine-agent"]["spec"]["podSelector"]["matchLabels"]),
        ("agent", documents["PodMonitor", "mine-agent"]["spec"]["selector"]["matchLabels"]),
    ]
    for part, selector in selectors:
        assert selector.items() <= pods[part].items()
        assert not selector.items() <= pods["agent" if part == "control" else "control"].items()


def test_callers_and_agents_reach_the_control_that_serves(documents: dict[tuple[str, str], Any]) -> None:
    service = documents["Service", "mine-control"]
    selector = dict(service["spec"]["selector"])
    assert selector.pop("stoker/role") == "serves"
    control = documents["Deployment", "mine-control"]
    assert selector == control["spec"]["selector"]["matchLabels"]
    ports = {one["name"]: one["containerPort"] for one in container(control)["ports"]}
    assert {one["targetPort"]: one["port"] for one in service["spec"]["ports"]} == ports
    agent = container(documents["DaemonSet", "mine-agent"])["args"]
    assert agent[agent.index("--control") + 1] == f"{service['metadata']['name']}:{ports['agents']}"


def test_control_is_replaced_by_one_that_waits_and_one_at_a_time(
    documents: dict[tuple[str, str], Any],
) -> None:
    control = documents["Deployment", "mine-control"]["spec"]
    assert "--standby" in container({"spec": control})["args"]
    assert control["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert documents["PodDisruptionBudget", "mine-control"]["spec"]["maxUnavailable"] == 1


def test_control_has_no_rights_of_the_host_and_one_of_the_cluster(
    documents: dict[tuple[str, str], Any],
) -> None:
    pod = documents["Deployment", "mine-control"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    owner = re.search(r"^USER (\d+):", (ROOT / "Dockerfile.control").read_text(), re.MULTILINE)
    assert owner is not None
    assert pod["securityContext"]["runAsUser"] == int(owner[1])
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert documents["Role", "mine-control"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
    ]
    assert (
        documents["DaemonSet", "mine-agent"]["spec"]["template"]["spec"]["automountServiceAccountToken"]
        is False
    )


def test_agents_get_their_gpus_by_nvidias_runtime_and_keep_their_identity(
    documents: dict[tuple[str, str], Any],
) -> None:
    pod = documents["DaemonSet", "mine-agent"]["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert (pod["runtimeClassName"], env["NVIDIA_VISIBLE_DEVICES"]) == ("nvidia", "all")
    assert pod["terminationGracePeriodSeconds"] == int(env["STOKER_GRACE_S"]) + 60
    data = next(one for one in pod["volumes"] if one["name"] == "data")
    assert data["hostPath"]["type"] == "DirectoryOrCreate"
    args = pod["containers"][0]["args"]
    assert args[args.index("--label") + 1] == "disk=nvme"


def secrets_in(value: Any) -> Iterator[str]:
    yield from set(re.findall(r"secret-\d", json.dumps(value)))


def test_secrets_are_in_the_secret_alone(documents: dict[tuple[str, str], Any]) -> None:
    assert len([*secrets_in(documents["Secret", "mine-secret"])]) == 5
    others = {name: [*secrets_in(one)] for name, one in documents.items() if name[0] != "Secret"}
    assert not any(others.values()), others
    keys = documents["Secret", "mine-secret"]["stringData"]
    assert {name for name in keys if not name.startswith("STOKER_S3_")} <= VARIABLES
    page = (ROOT / "docs" / "operations" / "install.md").read_text(encoding="utf-8")
    assert [name for name in keys if f"`{name}`" not in page] == []


def test_prometheus_finds_control_as_the_alerts_know_it(documents: dict[tuple[str, str], Any]) -> None:
    """The operator's own resources have no schema here: the fields that we use, by its documentation."""
    monitor = documents["ServiceMonitor", "mine-control"]["spec"]
    labels = documents["Service", "mine-control"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert (
        f'job="{labels[monitor["jobLabel"]]}"' in (ROOT / "deploy" / "monitoring" / "alerts.yml").read_text()
    )
    (endpoint,) = monitor["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "our-key", "key": "key"}}
    assert endpoint["port"] in {one["name"] for one in documents["Service", "mine-control"]["spec"]["ports"]}
    (agents,) = documents["PodMonitor", "mine-agent"]["spec"]["podMetricsEndpoints"]
    probes = {one["name"] for one in container(documents["DaemonSet", "mine-agent"])["ports"]}
    assert agents["port"] in probes
