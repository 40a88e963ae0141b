"""`stoker deploy` and `stoker undeploy`: an app's endpoints, to stay, found again by their names.

The code is part of an endpoint's version. So changed code is rolled out as any new version: an old worker
runs until a new one is ready, and running jobs end. Endpoints and templates of others stay as they
are, whatever their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from stoker.cli.access import open_client
from stoker.cli.consoles import plain_console
from stoker.cli.dev.project import AppEndpoint, checked, load, named
from stoker.cli.errors import CliError
from stoker.cli.tables import show
from stoker.client import Client, ClientError, Unreachable
from stoker.client.apps.bundle import BundleError
from stoker.client.apps.resources import (
    IMAGE,
    endpoint_body,
    endpoint_changes,
    template_body,
    template_changes,
)

COLUMNS = ("endpoint", "id", "version", "", "call it with")


def deploy(url: str, data_dir: Path, names: tuple[str, ...]) -> None:
    """Deploys these endpoints of the app in the current folder, or all. Raises CliError, at first for
    problems: then nothing is deployed."""
    project = checked(Path.cwd())
    if project.problems:  # half an app is not deployed
        raise CliError("nothing is deployed: " + "\n".join(map(str, project.problems)))
    rows, failed = [], []
    with open_client(url, data_dir) as stoker:
        for served in named(project, names):
            try:
                rows.append(_deployed(stoker, served, url))
            except Unreachable:
                raise
            except (ClientError, BundleError) as error:
                failed.append(f"{served.name}: {error}")
    show(COLUMNS, rows, [dict(zip(COLUMNS, row, strict=True)) for row in rows], as_json=False)
    if failed:
        raise CliError("not deployed: " + "; ".join(failed))


def undeploy(url: str, data_dir: Path, names: tuple[str, ...], *, sure: bool) -> None:
    """Deletes these deployed endpoints, or those of the app in the current folder. Raises CliError."""
    names = names or tuple(one.name for one in load(Path.cwd()).endpoints)
    with open_client(url, data_dir) as stoker:
        templates = _templates(stoker)
        found = {name: one for name, one in _deployed_endpoints(stoker, templates).items() if name in names}
        if not found:
            raise CliError(f"none of these is deployed: {', '.join(names) or 'the app has no endpoints'}")
        if not sure:
            typer.confirm(f"Delete {', '.join(found)}, and cancel their waiting jobs?", abort=True, err=True)
        for name, one in found.items():
            stoker.manage.endpoints.delete(one["id"])
            if templates[one["templateId"]]["name"] == name:
                stoker.manage.templates.delete(one["templateId"])
            plain_console(stderr=True).print(f"{name} ({one['id']}) is deleted", soft_wrap=True)


def _deployed(stoker: Client, served: AppEndpoint, url: str) -> tuple[str, ...]:
    """Creates or updates the endpoint, and returns its row."""
    name, templates = served.name, _templates(stoker)
    existing = _deployed_endpoints(stoker, templates).get(name)
    template = template_body(served.endpoint, served.definition, name=name, live=False, bundle=served.code)
    body = endpoint_body(served.endpoint, served.definition, name=name, template_id="")
    if existing is not None:
        _check_change(existing, body)
    body["templateId"] = _put_template(stoker, template, templates)
    if existing is None:
        made, verb = stoker.manage.endpoints.create(body), "created"
    else:
        made = stoker.manage.endpoints.update(existing["id"], endpoint_changes(body))
        verb = "unchanged" if made["version"] == existing["version"] else "updated"
    operation = "runsync" if body["type"] == "QUEUE" else served.endpoint.routes[0].path.lstrip("/")
    address = f"{url.rstrip('/')}/v2/{made['id']}/{operation}"
    return name, str(made["id"]), str(made["version"]), verb, address


def _put_template(stoker: Client, template: Mapping[str, Any], templates: Mapping[str, Any]) -> str:
    """Creates or updates the template and returns its id. Raises ClientError if the template with this name
    is not an app's."""
    for one in templates.values():
        if one["name"] == template["name"]:
            if one["imageName"] != IMAGE:
                raise ClientError(
                    f"the template {one['name']} ({one['id']}) runs {one['imageName']}, and is not an app's;"
                    " give the endpoint another name="
                )
            return str(stoker.manage.templates.update(one["id"], template_changes(template))["id"])
    return str(stoker.manage.templates.create(template)["id"])


def _check_change(existing: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Raises ClientError for a change that no endpoint can make."""
    for field in ("type", "computeType"):
        if body.get(field) is not None and body[field] != existing[field]:
            raise ClientError(
                f"{field} of a deployed endpoint cannot change from {existing[field]} to {body[field]};"
                f" undeploy it first: stoker undeploy {existing['name']}"
            )


def _templates(stoker: Client) -> dict[str, Any]:
    """Returns the templates by id."""
    found = stoker.manage.templates.list(includeEndpointBoundTemplates=True)
    return {one["id"]: one for one in found}


def _deployed_endpoints(stoker: Client, templates: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the endpoints of apps that stay, by name; the newest of several with one name."""
    apps = {id_ for id_, one in templates.items() if one["imageName"] == IMAGE}
    return {
        one["name"]: one
        for one in stoker.manage.endpoints.list()
        if one["origin"] == "api" and not one.get("temporary") and one.get("templateId") in apps
    }
