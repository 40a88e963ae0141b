"""Renames the components of the OpenAPI document as in the published one, for generated clients. Pure.

A schema is named by its title (`Pod` for the class PodResponse), and a list of a kind has a name, too.
"""

from __future__ import annotations

from typing import Any

LISTS = {
    "Pods": "Pod",
    "Endpoints": "Endpoint",
    "Templates": "Template",
    "NetworkVolumes": "NetworkVolume",
    "ContainerRegistryAuths": "ContainerRegistryAuth",
    "BillingRecords": "BillingRecord",
}
_PREFIX = "#/components/schemas/"


def published(document: dict[str, Any]) -> dict[str, Any]:
    shapes = document["components"]["schemas"]
    names = {name: shape.get("title", name) for name, shape in shapes.items() if name.endswith("Response")}
    renamed: dict[str, Any] = _renamed(document, names)
    components = {names.get(name, name): one for name, one in renamed["components"]["schemas"].items()}
    for name, member in LISTS.items():
        components[name] = {"type": "array", "title": name, "items": {"$ref": _PREFIX + member}}
    renamed["components"]["schemas"] = components
    return renamed


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """Renames every reference, and replaces a list of a kind by a reference to its own schema."""
    if isinstance(node, list):
        return [_renamed(one, names) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix(_PREFIX)
        return {**node, "$ref": _PREFIX + names.get(name, name)}
    made = {key: _renamed(value, names) for key, value in node.items()}
    if made.get("type") == "array" and "title" in made and str(made["title"]).startswith("Response"):
        member = made["items"].get("$ref", "").removeprefix(_PREFIX)
        of = {one: name for name, one in LISTS.items()}
        return {"$ref": _PREFIX + of[member]} if member in of else made
    return made
