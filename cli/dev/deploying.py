"""`stoker deploy` and `stoker undeploy`: an app's endpoints, to stay, found again by their names.

The code is part of an endpoint's version. So changed code is rolled out as any new version: an old worker
runs until a new one is ready, and running jobs end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from stoker.cli.access import open_client
from stoker.cli.dev.project import AppEndpoint, Project, checked, load, named
from stoker.cli.errors import CliError
from stoker.cli.tables import show
from stoker.cli.terminal import plain_console
from stoker.client import Client, ClientError
from stoker.client.apps.bundle import BundleError
from stoker.client.apps.resources import endpoint_body, endpoint_changes, template_body, template_changes

COLUMNS = ("endpoint", "id", "version", "", "call it with")


def deploy(url: str, data_dir: Path, names: tuple[str, ...]) -> None:
    """Deploys these endpoints of the app in the current folder, or all. Raises CliError, at first for
    problems: then nothing is deployed."""
    project = checked(Path.cwd())
    _check_problems(project)
    rows, failed = [], []
    with open_client(url, data_dir) as stoker:
        for served in named(project, names):
            try:
                rows.append(_deployed(stoker, served, url))
            except (ClientError, BundleError) as error:
                failed.append(f"{served.name}: {error}")
    show(COLUMNS, rows, [dict(zip(COLUMNS, row, strict=True)) for row in rows], as_json=False)
    if failed:
        raise CliError("not deployed: " + "; ".join(failed))


def undeploy(url: str, data_dir: Path, names: tuple[str, ...], *, sure: bool) -> None:
    """Deletes these deployed endpoints, or those of the app in the current folder. Raises CliError."""
    names = names or tuple(one.name for one in load(Path.cwd()).endpoints)
    with open_client(url, data_dir) as stoker:
        found = {name: one for name, one in _deployed_endpoints(stoker).items() if name in names}
        if not found:
            raise CliError(f"none of these is deployed: {', '.join(names) or 'the app has no endpoints'}")
        if not sure:
            typer.confirm(f"Delete {', '.join(found)}, and cancel their waiting jobs?", abort=True, err=True)
        templates = stoker.manage.templates.list(includeEndpointBoundTemplates=True)
        for name, one in found.items():
            stoker.manage.endpoints.delete(one["id"])
            for template in templates:
                if template["id"] == one["templateId"] and template["name"] == name:
                    stoker.manage.templates.delete(template["id"])
            plain_console(stderr=True).print(f"{name} ({one['id']}) is deleted", soft_wrap=True)


def _check_problems(project: Project) -> None:
    """Half an app is not deployed."""
    if project.problems:
        raise CliError("nothing is deployed: " + "\n".join(map(str, project.problems)))


def _deployed(stoker: Client, served: AppEndpoint, url: str) -> tuple[str, ...]:
    """Creates or updates the endpoint, and returns its row."""
    name = served.name
    existing = _deployed_endpoints(stoker).get(name)
    template = template_body(served.endpoint, served.definition, name=name, live=False, bundle=served.code)
    template_id = _put_template(stoker, name, template)
    body = endpoint_body(served.endpoint, served.definition, name=name, template_id=template_id)
    if existing is None:
        made, verb = stoker.manage.endpoints.create(body), "created"
    else:
        _check_change(existing, body)
        made = stoker.manage.endpoints.update(existing["id"], endpoint_changes(body))
        verb = "unchanged" if made["version"] == existing["version"] else "updated"
    operation = "runsync" if body["type"] == "QUEUE" else served.endpoint.routes[0].path.lstrip("/")
    address = f"{url.rstrip('/')}/v2/{made['id']}/{operation}"
    return name, str(made["id"]), str(made["version"]), verb, address


def _put_template(stoker: Client, name: str, template: Mapping[str, Any]) -> str:
    for one in stoker.manage.templates.list(includeEndpointBoundTemplates=True):
        if one["name"] == name:
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


def _deployed_endpoints(stoker: Client) -> dict[str, Any]:
    """The endpoints that stay, by name; the newest of several with one name."""
    return {
        one["name"]: one
        for one in stoker.manage.endpoints.list()
        if one["origin"] == "api" and not one.get("temporary")
    }
