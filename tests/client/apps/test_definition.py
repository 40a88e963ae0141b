"""The decorator: what it takes, what it leaves alone, and its sentences."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client import endpoint
from stoker.client.apps.definition import MARK, Definition, DefinitionError

OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True),
    "gpu": st.sampled_from([True, "NVIDIA L4", ["NVIDIA L4", "NVIDIA A40"]]),
    "gpu_count": st.integers(1, 64),
    "workers": st.integers(1, 1000) | st.integers(0, 9).map(lambda n: (n, n + 1)),
    "dependencies": st.lists(st.sampled_from(["numpy", "pillow>=12", "a[b] @ https://x/y.whl"])),
    "system_dependencies": st.lists(st.sampled_from(["ffmpeg", "libsndfile1=1.2-1"])),
    "env": st.dictionaries(st.sampled_from(["A", "_b"]), st.text(st.characters(exclude_characters="\0"))),
    "idle_timeout": st.integers(1, 3600),
    "execution_timeout_ms": st.sampled_from([0, 5000, 604_800_000]),
    "volume": st.just("vol-1"),
    "max_concurrency": st.integers(1, 1000),
}


@given(st.fixed_dictionaries({}, optional=OPTIONS))
def test_a_definition_is_the_same_after_json(options: dict[str, Any]) -> None:
    made = Definition.of(options)
    assert Definition.from_json(made.as_json()) == made
    assert endpoint(**options).definition == made


def test_functions_and_classes_stay_as_they_are() -> None:
    def caption(text: str) -> str:
        return text.upper()

    class Model:
        def embed(self, text: str) -> int:
            return len(text)

    assert endpoint(name="a", cpu=True)(caption) is caption
    assert endpoint()(Model) is Model
    assert caption("hello") == "HELLO"
    assert Model().embed("hello") == 5
    assert getattr(caption, MARK) == Definition(name="a", cpu=())


def test_a_route_leaves_its_function_alone() -> None:
    api = endpoint()

    def item(id: int) -> int:  # noqa: A002
        return id

    assert api.get("/items/{id}")(item) is item
    assert api.routes == [("GET", "/items/{id}", item)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "no spaces"}, ("name", "'no spaces'", "letters, digits and dashes")),
        ({"gpu": 3}, ("gpu", "3", "NVIDIA L4")),
        ({"cpu": "large"}, ("cpu", "'large'", "cpu3c-8-16")),
        ({"cpu": True, "gpu": True}, ("gpu and cpu", "exclude")),
        ({"cpu": True, "gpu_count": 2}, ("gpu_count", "2")),
        ({"workers": (3, 1)}, ("workers", "(3, 1)", "fewest, most")),
        ({"workers": True}, ("workers", "True")),
        ({"dependencies": "numpy"}, ("dependencies", "'numpy'", "list")),
        ({"dependencies": ["--index-url=https://evil"]}, ("dependencies", "--index-url")),
        ({"dependencies": ["a\n--pre"]}, ("dependencies", "--pre")),
        ({"system_dependencies": ["-o=x"]}, ("system_dependencies", "-o=x")),
        ({"env": {"A": 1}}, ("env", "A is 1")),
        ({"env": {"STOKER_FUNCTIONS_0": "x"}}, ("env", "STOKER_FUNCTIONS")),
        ({"idle_timeout": 0}, ("idle_timeout", "1 to 3600", "got 0")),
        ({"execution_timeout_ms": 100}, ("execution_timeout_ms", "5000", "or 0", "got 100")),
        ({"max_concurrency": 1.5}, ("max_concurrency", "1.5")),
        ({"volume": 3}, ("volume", "3")),
        ({"worker": 3}, ("no option worker", "workers")),
    ],
)
def test_a_wrong_option_is_a_sentence(options: dict[str, Any], says: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError) as refused:
        Definition.of(options)
    for words in says:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("items", 'begin with "/"'),
        ("/execute", "own"),
        ("/a b", "'a b'"),
        ("/{a}/{a}", "differ"),
        ("//", "''"),
    ],
)
def test_a_wrong_path_is_a_sentence(path: str, says: str) -> None:
    with pytest.raises(DefinitionError, match="path") as refused:
        endpoint().post(path)
    assert says in str(refused.value)


def test_two_routes_of_one_shape_are_refused() -> None:
    api = endpoint()
    api.get("/items/{id}")(len)
    api.post("/items/{id}")(len)
    with pytest.raises(DefinitionError, match="twice"):
        api.get("/items/{name}")(len)


def test_a_module_of_an_app_needs_no_httpx2() -> None:
    code = "import sys; sys.modules['httpx2'] = None\n"
    code += "from stoker.client import endpoint; print(endpoint().definition)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{Definition()}\n"), done.stderr
