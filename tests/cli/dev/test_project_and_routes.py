"""What is served of an app, at which paths, and how it is described."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from fastapi.openapi.models import OpenAPI

from stoker.cli.consoles import plain_console
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.local_server.openapi import document
from stoker.cli.dev.local_server.requests import BodyRefused, arguments
from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.project import checked, load, named
from stoker.cli.errors import CliError
from tests.cli.dev.written_apps import BALANCED, ONE, SEVERAL, app

BROKEN = ONE.replace("def caption(", "def caption(((")


def paths(folder: Path) -> list[str]:
    return [f"{one.method} {one.path}" for one in local_routes(load(folder))[0]]


def test_a_function_alone_in_its_file_has_the_path_of_the_file(tmp_path: Path) -> None:
    assert paths(app(tmp_path, a=ONE, b__c=ONE.replace("caption", "other"))) == [
        "POST /a/runsync",
        "POST /b/c/runsync",
    ]


def test_several_have_their_names_and_equal_names_their_class(tmp_path: Path) -> None:
    assert paths(app(tmp_path, w=SEVERAL)) == [
        "POST /w/first/runsync",
        "POST /w/embed/runsync",
        "POST /w/Model.first/runsync",
    ]


def test_routes_of_an_api_are_below_the_file(tmp_path: Path) -> None:
    assert paths(app(tmp_path, lb=BALANCED)) == ["GET /lb/items/{id}", "POST /lb/items"]


def test_a_path_that_two_have_is_a_problem_and_the_first_is_served(tmp_path: Path) -> None:
    routes, problems = local_routes(
        load(app(tmp_path, lb=BALANCED + BALANCED.replace("api", "b").replace("shop", "two")))
    )
    assert [one.served.name for one in routes] == ["shop", "shop"]
    assert [one.message for one in problems] == [
        "GET /lb/items/{id} is also the path of item in lb.py, line 7; only that one is served",
        "POST /lb/items is also the path of add in lb.py, line 12; only that one is served",
    ]


def test_a_syntax_error_is_told_with_its_line_and_the_other_modules_are_served(tmp_path: Path) -> None:
    project = load(app(tmp_path, a=BROKEN, b=ONE.replace("caption", "other")))
    assert [one.name for one in project.endpoints] == ["other"]
    (problem,) = project.problems
    assert (problem.path, problem.line) == ("a.py", 5)
    assert "def caption(((" in str(problem)
    assert project.problem_of("a") == problem
    assert project.problem_of("b") is None


def test_of_two_with_one_name_the_first_is_served(tmp_path: Path) -> None:
    project = load(app(tmp_path, a=ONE, b=ONE))
    assert [one.endpoint.path for one in project.endpoints] == ["a.py"]
    assert [str(one) for one in project.problems if "caption is taken by caption in a.py, line" in str(one)]
    assert len(project.problems) == 1


def test_computed_options_are_those_that_the_module_makes(tmp_path: Path) -> None:
    computed = ONE.replace('name="caption"', 'name="-".join(["a", "b"])')
    project = load(app(tmp_path, a=computed, b=ONE.replace("caption", "a-b", 1)))
    assert [one.name for one in project.endpoints] == ["a-b"]
    assert "the name a-b is taken" in project.problems[0].message


def test_a_module_with_computed_options_that_cannot_be_imported_is_a_problem(tmp_path: Path) -> None:
    project = load(app(tmp_path, a="import nothing_of_this_name\nN = 3\n" + ONE.replace("(0, 1)", "(0, N)")))
    assert project.endpoints == ()
    assert "nothing_of_this_name" in project.problems[0].message


def test_a_folder_without_endpoints_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    with pytest.raises(CliError, match="is not a project"):
        checked(tmp_path)
    assert checked(app(tmp_path, b=BROKEN)).problems


def test_names_choose_endpoints(tmp_path: Path) -> None:
    project = load(app(tmp_path, a=SEVERAL))
    assert [one.name for one in named(project, ("model",))] == ["model"]
    assert [one.name for one in named(project, ())] == ["first", "model"]
    with pytest.raises(CliError, match="no endpoint x; it has first, model"):
        list(named(project, ("x",)))


def test_the_table_shows_endpoints_routes_and_first_lines(tmp_path: Path) -> None:
    routes, _ = local_routes(load(app(tmp_path, a=ONE, lb=BALANCED, w=SEVERAL)))
    printed = io.StringIO()
    Display(plain_console(file=printed, width=120)).endpoints(routes, "http://localhost:8888")
    lines = [" ".join(line.split()) for line in printed.getvalue().splitlines()]
    assert "live-caption CPU POST /a/runsync Says it louder." in lines
    assert "live-shop CPU GET /lb/items/{id} One item." in lines
    assert "POST /lb/items" in lines, "the name is shown once"
    assert "live-model NVIDIA L4 POST /w/embed/runsync Embeds." in lines
    assert "http://localhost:8888/docs" in printed.getvalue()
    assert "The rest" not in printed.getvalue()


def test_the_document_is_valid_and_has_the_first_lines(tmp_path: Path) -> None:
    routes, _ = local_routes(load(app(tmp_path, a=ONE, lb=BALANCED, w=SEVERAL)))
    made = json.loads(json.dumps(document(routes)))
    OpenAPI.model_validate(made)
    caption = made["paths"]["/a/runsync"]["post"]
    assert caption["summary"] == "Says it louder."
    wrapped = caption["requestBody"]["content"]["application/json"]["schema"]
    assert wrapped["required"] == ["input"]
    assert wrapped["properties"]["input"] == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    }
    item = made["paths"]["/lb/items/{id}"]["get"]
    assert [(one["name"], one["in"], one["required"]) for one in item["parameters"]] == [
        ("id", "path", True),
        ("language", "query", False),
    ]
    added = made["paths"]["/lb/items"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert added["properties"]["price"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}
    assert "input" not in added["properties"], "a route has no wrapper"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON"),
        (b"[1]", "input is required and missing"),
        (b'{"text": "a"}', 'input is required and missing; the body is {"input": {...}}'),
        (b'{"input": "a"}', "input must be an object, with the parameters of caption"),
        (b'{"input": {}}', "input.text is required and missing; caption takes text, times"),
        (b'{"input": {"text": {"$stoker": "x"}}}', "input.text has a $stoker that is neither"),
        (b'{"input": {"text": "a", "n": 1}}', "input.n is unknown; caption takes text, times"),
        (
            b'{"input": {"txt": "a", "n": 1}}',
            "input.text is required and missing, and input.txt, input.n are unknown; caption takes text,",
        ),
    ],
)
def test_a_wrong_body_is_refused_by_its_field(tmp_path: Path, body: bytes, message: str) -> None:
    (route,), _ = local_routes(load(app(tmp_path, a=ONE)))
    with pytest.raises(BodyRefused) as refused:
        arguments(body, route.function)
    assert message in str(refused.value)


def test_arguments_are_the_fields_of_input(tmp_path: Path) -> None:
    (route,), _ = local_routes(load(app(tmp_path, a=ONE)))
    body = b'{"input": {"text": {"$stoker": "bytes", "data": "aGk="}, "times": [1]}}'
    assert arguments(body, route.function) == {"text": b"hi", "times": [1]}


def test_a_function_with_keyword_arguments_takes_any_name(tmp_path: Path) -> None:
    takes_any = ONE.replace("times: int = 1", "**more: int").replace("* times", "+ str(more)")
    (route,), _ = local_routes(load(app(tmp_path, a=takes_any)))
    assert arguments(b'{"input": {"text": "a", "n": 1}}', route.function) == {"text": "a", "n": 1}
    with pytest.raises(BodyRefused, match=r"input\.text is required and missing; caption takes text"):
        arguments(b'{"input": {"n": 1}}', route.function)
