"""What the agent's operator says of its node: options, and the environment."""

from __future__ import annotations

import pytest

from stoker.agent.host.devices.devices import NvmlSampler
from stoker.cli.agent.location import labels_of, location_facts, public_ip_fact
from stoker.cli.errors import CliError


def test_options_win_over_the_environment() -> None:
    variables = {"STOKER_DATA_CENTER": "US-1", "STOKER_LABELS": "tier=iron, rack=7,"}
    sampler = NvmlSampler()
    facts = location_facts("EU-RO-1", ["tier=gold"], sampler, variables)
    assert {k: v for k, v in facts.items() if k.startswith(("data", "label"))} == {
        "data_center": "EU-RO-1",
        "label.tier": "gold",
        "label.rack": "7",
    }
    assert float(facts["vcpus"]) > 0
    assert int(facts["memory_bytes"]) > 0
    assert location_facts(None, [], sampler, variables)["data_center"] == "US-1"
    assert "data_center" not in location_facts(None, [], sampler, {})


def test_the_public_ip_is_an_address_or_missing() -> None:
    variables = {"STOKER_PUBLIC_IP": "100.65.0.119"}
    assert public_ip_fact(None, variables) == {"public_ip": "100.65.0.119"}
    assert public_ip_fact("10.0.0.1", variables) == {"public_ip": "10.0.0.1"}
    assert public_ip_fact(None, {}) == {}
    with pytest.raises(CliError, match="--public-ip must be an IPv4 address; got 'gpu-1'"):
        public_ip_fact("gpu-1", {})


def test_a_value_may_hold_what_it_wants() -> None:
    assert labels_of(["a=b=c", "b="], "--label") == {"a": "b=c", "b": ""}


@pytest.mark.parametrize("text", ["gold", "=gold", "a b=c", "-a=b", "x" * 64 + "=1"])
def test_what_is_no_label_is_refused_in_a_message(text: str) -> None:
    with pytest.raises(CliError, match=r"--label: .* is not a label; one reads name=value"):
        labels_of([text], "--label")
