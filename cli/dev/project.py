"""An app as it is on the disk: the endpoints that can be called, the code of each, and what is wrong with it.

    scan ──> computed options: the module is imported, in a process of its own ──> code ──> Project

What is wrong with one endpoint is a problem of that endpoint alone; the others can be called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stoker.cli.errors import CliError
from stoker.client.apps.bundle import Bundle, BundleError, bundle
from stoker.client.apps.definition import Definition
from stoker.client.apps.importing import ImportFailed, definition
from stoker.client.apps.scan import scan
from stoker.client.apps.scanned import Endpoint, Problem


@dataclass(frozen=True, slots=True)
class AppEndpoint:
    """An endpoint that can be called. `definition` are its checked options, and `code` is what it ships."""

    endpoint: Endpoint
    definition: Definition
    code: Bundle

    @property
    def name(self) -> str:
        return self.endpoint.name


@dataclass(frozen=True, slots=True)
class Project:
    root: Path
    endpoints: tuple[AppEndpoint, ...] = ()
    problems: tuple[Problem, ...] = ()

    def problem_of(self, prefix: str) -> Problem | None:
        """Returns the problem of the file that serves paths below `prefix`."""
        return next((one for one in self.problems if one.path.removesuffix(".py") == prefix), None)


def load(root: Path) -> Project:
    """Reads the app below `root`. Imports only modules whose options are computed."""
    app = scan(root)
    problems = list(app.problems)
    endpoints: dict[str, AppEndpoint] = {}
    for found in app.endpoints:
        served = _served(root, found, problems)
        if served is None:
            continue
        other = endpoints.setdefault(served.name, served)
        if other is not served and not _is_reported(found, problems):
            problems.append(_taken(served.endpoint, other.endpoint))
    return Project(root, tuple(endpoints.values()), tuple(problems))


def checked(root: Path) -> Project:
    """Returns the project, for a command that is of no use without one. Raises CliError."""
    project = load(root)
    if not project.endpoints and not project.problems:
        raise CliError(
            f"{root} is not a project: no Python file in or below it has a function under @endpoint(...) of"
            " stoker.client; go to the project's folder, or make one with: stoker init"
        )
    return project


def _served(root: Path, found: Endpoint, problems: list[Problem]) -> AppEndpoint | None:
    try:
        options = definition(root, found) if found.dynamic else found.definition
        if options is None:
            return None  # its options are wrong, which the scan has reported
        return AppEndpoint(replace(found, definition=options), options, bundle(root, found.path))
    except (ImportFailed, BundleError) as error:
        problems.append(Problem(found.path, found.line, str(error)))
        return None


def _is_reported(endpoint: Endpoint, problems: list[Problem]) -> bool:
    return any((one.path, one.line) == (endpoint.path, endpoint.line) for one in problems)


def _taken(endpoint: Endpoint, other: Endpoint) -> Problem:
    return Problem(
        endpoint.path,
        endpoint.line,
        f"the name {endpoint.name} is taken by {other.target} in {other.path}, line {other.line}; give one of"
        " them another name=",
    )


def named(project: Project, names: tuple[str, ...]) -> Iterator[AppEndpoint]:
    """Yields the endpoints with these names, or all without names. Raises CliError for a name that is not
    there."""
    known = {one.name: one for one in project.endpoints}
    for name in names or known:
        if name not in known:
            raise CliError(
                f"the project has no endpoint {name}; it has {', '.join(known) or 'none that can be used'}"
            )
        yield known[name]
