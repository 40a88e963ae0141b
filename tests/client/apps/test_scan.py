"""Endpoints are found in source, without importing it; what is wrong is told with its line."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.apps import importing
from stoker.client.apps.bundle import bundle
from stoker.client.apps.definition import Definition
from stoker.client.apps.scan import scan
from stoker.client.apps.scanned import Parameter, default_name
from stoker.client.apps.source import scan_source

APP = dedent(
    '''
    import sys
    from stoker.client import endpoint as runs_there

    sys.exit("this must not be imported")

    @runs_there(name="caption", cpu=2, dependencies=["numpy"])
    async def caption(text: str, n: int = 2, *, loud: bool = False) -> str:
        """Says it.

        And more.
        """

    @runs_there(workers=int("2"))
    class Model:
        """A model."""

        def embed(self, text):
            """Embeds."""
            def inner():
                yield 1

        def words(self, text): yield text

        @staticmethod
        def plain(text): ...

        def _hidden(self): ...

    api = runs_there(name="shop")

    @api.get("/items/{id}")
    def item(id: int, q: str = ""):
        """One item."""

    @api.post("/items")
    async def add(item: dict): ...
    '''
)


def test_what_is_found_without_importing() -> None:
    (caption, model, shop), problems = scan_source(APP, "03_mixed/cpu_worker.py")
    assert problems == ()
    assert (caption.module, caption.prefix, caption.folder) == (
        "03_mixed.cpu_worker",
        "03_mixed/cpu_worker",
        "03_mixed",
    )
    assert (caption.name, caption.kind, caption.summary) == ("caption", "queue", "Says it.")
    assert caption.definition == Definition(name="caption", cpu=2, dependencies=("numpy",))
    (function,) = caption.functions
    assert function.parameters == (
        Parameter("text", "str"),
        Parameter("n", "int", required=False, default=2),
        Parameter("loud", "bool", required=False, default=False),
    )
    assert (model.dynamic, model.definition) == (("workers",), None)
    assert model.name == "03-mixed-cpu-worker-model"
    assert [(one.qualname, one.generator) for one in model.functions] == [
        ("Model.embed", False),
        ("Model.words", True),
        ("Model.plain", False),
    ]
    assert [len(one.parameters) for one in model.functions] == [1, 1, 1]
    assert [(one.method, one.path, one.function.summary) for one in shop.routes] == [
        ("GET", "/items/{id}", "One item."),
        ("POST", "/items", ""),
    ]
    assert shop.kind == "load_balanced"


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("x = 1\ndef f(:", 2, "syntax error"),
        ("\n@endpoint(workers=(3, 1))\ndef f(): ...", 2, "workers"),
        ("@endpoint\ndef f(): ...", 1, "brackets"),
        ("@endpoint()\ndef f(*texts): ...", 2, "without a name"),
        ("@endpoint()\nclass A:\n    def _f(self): ...", 2, "no public method"),
        ("api = endpoint()", 1, "no routes"),
        ("api = endpoint()\n@api.get('/ping')\ndef f(): ...", 2, "/ping"),
        ("api = endpoint()\n@api.get('/{id}')\ndef f(): ...", 2, "parameter id"),
        ("api = endpoint()\n@api.get(P)\ndef f(): ...", 2, "as a text"),
        ("api = endpoint()\n@api.head('/x')\ndef f(): ...", 2, "api.get"),
        ("api = endpoint()\n@api.get('/a')\ndef f(): ...\n@api.get('/a')\ndef g(): ...", 4, "twice"),
        ("@endpoint('name')\ndef f(): ...", 1, "by name"),
        ("x = '\0'", 1, "null"),
    ],
)
def test_what_is_wrong_has_its_line(source: str, line: int, says: str) -> None:
    offset = 0 if source.startswith("x = ") else 1
    text = source if not offset else f"from stoker.client import endpoint\n{source}"
    _, problems = scan_source(text, "app.py")
    assert [(one.line - offset if one.line > 1 else one.line, says in one.message) for one in problems] == [
        (line, True)
    ], problems


@given(st.text(alphabet="@endpoint(api).get/{}\n def:=,'\"x[]*", max_size=200))
def test_any_text_is_scanned(text: str) -> None:
    scan_source(f"from stoker.client import endpoint\n{text}", "app.py")


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_default_name_is_a_name(module: str, target: str) -> None:
    name = default_name(module, f"x{target}")
    Definition.of({"name": name})


def test_a_folder_is_scanned_but_for_environments(tmp_path: Path) -> None:
    for place in ("a.py", "b/c.py", ".venv/d.py", "node_modules/e.py"):
        file = tmp_path / place
        file.parent.mkdir(exist_ok=True)
        file.write_text("from stoker.client import endpoint\n@endpoint(name='same')\ndef f(): ...\n")
    (tmp_path / "latin.py").write_bytes(b"# endpoint \xe9\n")
    app = scan(tmp_path)
    assert [one.path for one in app.endpoints] == ["a.py", "b/c.py"]
    assert [(one.path, one.line) for one in app.problems] == [("latin.py", 1), ("b/c.py", 3)]
    assert "taken by f in a.py, line 3" in str(app.problems[1])


def test_computed_options_are_those_of_the_imported_module(tmp_path: Path) -> None:
    folder = tmp_path / "01_x"
    folder.mkdir()
    (folder / "near.py").write_text("MOST = 7\n")
    (folder / "w.py").write_text(
        "from stoker.client import endpoint\nfrom near import MOST\nprint('noise')\n"
        "@endpoint(workers=MOST)\ndef f(): ...\n"
        "api = endpoint(workers=MOST + 1)\n@api.get('/')\ndef g(): ...\n"
    )
    function, api = scan(tmp_path).endpoints
    assert importing.definition(tmp_path, function, python=sys.executable).workers == (0, 7)
    assert importing.definition(tmp_path, api).workers == (0, 8)
    for early in ("import sys; sys.exit()", "import atexit; atexit.register(print, 'bye')"):
        (folder / "near.py").write_text(f"MOST = 7\n{early}\n")
        with pytest.raises(importing.ImportFailed, match="did not let its options be read"):
            importing.definition(tmp_path, function)
    (folder / "near.py").write_text("import missing_module\n")
    with pytest.raises(importing.ImportFailed, match="missing_module"):
        importing.definition(tmp_path, function)


def test_a_file_may_begin_with_a_mark_of_its_encoding_and_have_form_feeds(tmp_path: Path) -> None:
    source = "\ufefffrom stoker.client import endpoint\nimport near\n\f\n@endpoint(cpu=0)\ndef f(): ...\n"
    (tmp_path / "w.py").write_text(source, encoding="utf-8")
    (tmp_path / "near.py").write_text("\ufeffx = 1\n", encoding="utf-8")
    (problem,) = scan(tmp_path).problems
    assert (problem.line, problem.text) == (4, "@endpoint(cpu=0)")
    assert bundle(tmp_path, "w.py").files["near.py"] == "x = 1\n"
