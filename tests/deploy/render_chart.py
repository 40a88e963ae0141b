"""The chart as Helm's own engine renders it, and what Kubernetes' schemas say of it, by the Python of
.peers/charts. Reads a list of values from standard input; writes for each its documents or Helm's refusal."""

from __future__ import annotations

import json
import sys
from typing import Any

import helm_python as helm
import kubernetes_validate
import yaml

VERSIONS = ("1.29", "1.37")
"""The oldest that the chart is for, and the newest whose schemas are here."""


def rendered(chart: str, values: dict[str, Any]) -> dict[str, Any]:
    findings = helm.lint(chart, values, strict=True)["messages"]
    try:
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(values)
            files = loaded.render(values, name="mine", namespace="prod")
    except helm.HelmError as error:
        return {"refused": str(error), "lint": findings}
    documents = [
        document
        for name, text in files.items()
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    return {"documents": documents, "lint": findings, "faults": [*faults(documents)]}


def faults(documents: list[dict[str, Any]]) -> list[str]:
    """Returns what the schemas refuse, unknown fields too. Resources of operators have no schema here."""
    found = []
    for document in documents:
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{version}: {document['kind']}: {error.message} at {list(error.path)}")
    return found


if __name__ == "__main__":
    json.dump([rendered(sys.argv[1], values) for values in json.load(sys.stdin)], sys.stdout)
