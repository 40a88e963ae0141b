"""The variables that tell a worker or a pod about its node, in the field's names. Pure.

What the node does not tell is left out. The agent adds what it alone knows: devices, published ports.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.control.rules.volumes import GB


def of_worker(facts: Mapping[str, str], cpus: float | None) -> dict[str, str]:
    """Returns the variables of a worker. `cpus`: as many as the worker is held to, where it is."""
    variables = {}
    count = facts.get("vcpus") if cpus is None else cpus
    if count is not None:
        variables["RUNPOD_CPU_COUNT"] = str(max(int(float(count)), 1))
    if "data_center" in facts:
        variables["RUNPOD_DC_ID"] = facts["data_center"]
    return variables


def of_pod(facts: Mapping[str, str], cpus: float | None) -> dict[str, str]:
    """Returns the variables of a pod. Its memory is all of its node's: pods are given no limit of their
    own."""
    variables = of_worker(facts, cpus)
    if "memory_bytes" in facts:
        variables["RUNPOD_MEM_GB"] = str(int(facts["memory_bytes"]) // GB)
    if "public_ip" in facts:
        variables["RUNPOD_PUBLIC_IP"] = facts["public_ip"]
    return variables
