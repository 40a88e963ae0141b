"""A request finds its route, and its arguments are bound by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker.functions.routing import BadCall, Request, Route, bind, find, read_routes

ROUTES = (
    Route("GET", "/items/{id}", "app", "item"),
    Route("GET", "/items/new", "app", "new"),
    Route("POST", "/items", "app", "add"),
    Route("GET", "/", "app", "root"),
)


@pytest.mark.parametrize(
    ("method", "path", "name", "names"),
    [
        ("GET", "/items/3", "item", {"id": "3"}),
        ("HEAD", "/items/a%2Fb", "item", {"id": "a/b"}),
        ("GET", "/items/new", "new", {}),
        ("GET", "/", "root", {}),
    ],
)
def test_a_route_is_found(method: str, path: str, name: str, names: dict[str, str]) -> None:
    for order in (ROUTES, ROUTES[::-1]):
        route, found = find(order, method, path)
        assert (route.callable, found) == (name, names)


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("DELETE", "/items", 405, "takes POST"),
        ("GET", "/items/", 404, "no route"),
        ("GET", "/x", 404, "GET /items/new"),
    ],
)
def test_no_route_is_a_sentence(method: str, path: str, status: int, says: str) -> None:
    with pytest.raises(BadCall, match=says) as refused:
        find(ROUTES, method, path)
    assert refused.value.status == status


@given(st.text(), st.sampled_from(["GET", "POST"]))
def test_any_path_is_found_or_refused(path: str, method: str) -> None:
    try:
        route, names = find(ROUTES, method, path)
    except BadCall:
        return
    assert route.path.count("{") == len(names)


def request(query: str = "", body: bytes = b"", kind: str = "application/json") -> Request:
    return Request("POST", "/", query, {"content-type": kind} if body else {}, body)


def item(id: int, q: str = "", *, tags: list[int] | None = None, deep: bool = False) -> None:  # noqa: A002
    """A function of a route."""


def takes(item: dict[str, Any]) -> None: ...


def holds(image: bytes, name: str, n: int = 1) -> None: ...


def keeps(**rest: Any) -> None: ...


MULTIPART = "multipart/form-data; boundary=x"
TAGGED = json.dumps({"image": {"$stoker": "bytes", "data": "AAE="}, "name": "x"}).encode()
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
    b"Content-Type: image/png\r\n\r\n\x89PNG\r\n\x00\xff\r\n"
    b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nd\xc3\xa9j\xc3\xa0\r\n'
    b'--x\r\nContent-Disposition: form-data; name="n"\r\n\r\n3\r\n--x--\r\n'
)


@pytest.mark.parametrize(
    ("function", "names", "given_request", "bound"),
    [
        (item, {"id": "3"}, request("q=a%20b&x=1"), {"id": 3, "q": "a b"}),
        (item, {"id": "3"}, request("tags=1&tags=2&deep=true"), {"id": 3, "tags": [1, 2], "deep": True}),
        (item, {"id": "3"}, request("id=9&q=a&q=b"), {"id": 3, "q": "b"}),
        (item, {"id": "3"}, request("", b'{"q": "x", "tags": [1]}'), {"id": 3, "q": "x", "tags": [1]}),
        (takes, {}, request("", b'{"a": 1}'), {"item": {"a": 1}}),
        (takes, {}, request("", b'{"item": {"a": 1}}'), {"item": {"a": 1}}),
        (takes, {}, request("", b"[1]"), {"item": [1]}),
        (holds, {}, request("", FORM, MULTIPART), {"image": b"\x89PNG\r\n\x00\xff", "name": "déjà", "n": 3}),
        (holds, {}, request("name=x", b"\x00", "image/png"), {"image": b"\x00", "name": "x"}),
        (holds, {}, request("", TAGGED), {"image": b"\x00\x01", "name": "x"}),
        (keeps, {}, request("", b'{"a": 1}'), {"a": 1}),
    ],
)
def test_arguments_are_bound(
    function: Any, names: dict[str, str], given_request: Request, bound: Any
) -> None:
    assert bind(function, names, given_request) == bound


@pytest.mark.parametrize(
    ("function", "names", "given_request", "says"),
    [
        (item, {"id": "x"}, request(), "id must be int; got 'x'"),
        (item, {"id": "1"}, request("deep=maybe"), "deep must be bool"),
        (item, {}, request(), "missing a required argument: 'id'"),
        (item, {"id": "1"}, request("", b'{"z": 1}'), "unexpected keyword argument 'z'"),
        (item, {"id": "1"}, request("", b"{"), "not JSON"),
        (item, {"id": "1"}, request("", b"[1]"), "must be an object with q, tags, deep"),
        (takes, {}, request("", b'{"$stoker": "x"}'), "neither bytes"),
        (holds, {}, request("", b"x", "multipart/form-data"), "not multipart"),
        (item, {"id": "1"}, request("", b"x", "image/png"), "type bytes"),
    ],
)
def test_arguments_that_do_not_fit_are_a_sentence(
    function: Any, names: dict[str, str], given_request: Request, says: str
) -> None:
    with pytest.raises(BadCall, match=says) as refused:
        bind(function, names, given_request)
    assert refused.value.status in (415, 422)


@given(
    st.binary(max_size=60),
    st.sampled_from(["", "application/json", MULTIPART, "a/b"]),
)
def test_any_body_is_bound_or_refused(body: bytes, kind: str) -> None:
    with contextlib.suppress(BadCall):
        bind(holds, {}, Request("POST", "/", "", {"content-type": kind}, body))


def test_routes_that_are_none_are_refused() -> None:
    for wrong in (None, [{}], [3]):
        with pytest.raises(BadCall, match="routes must be"):
            read_routes(wrong)
