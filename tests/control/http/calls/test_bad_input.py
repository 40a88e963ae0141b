"""Bad input: each row gets the documented code and a message with field, value and what is allowed."""

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.submissions import parse_submission
from tests.control.http.calls.fake_plane import KEY, FakePlane
from tests.profiles import examples

S3 = {"accessId": "a", "accessSecret": "hush", "bucketName": "b", "endpointUrl": "https://s3.example"}


def body(**fields: object) -> bytes:
    return json.dumps({"input": {}} | fields).encode()


def policy(**fields: object) -> bytes:
    return body(policy=fields)


BODIES = [
    (b"", ["not valid JSON"]),
    (b"{", ["not valid JSON"]),
    (b"\xff\xfe", ["not valid JSON"]),
    (b'{"input": NaN}', ["not valid JSON"]),
    (b'{"input": {"x": ' + b"[" * 500 + b"]" * 500 + b"}}", ["not valid JSON"]),
    (b"[]", ["the body", "JSON object", "[]"]),
    (b"3", ["the body", "JSON object", "3"]),
    (b"null", ["the body", "null"]),
    (b"{}", ["input is missing", "an object"]),
    (b'{"Input": {}}', ["input is missing"]),
    (b'{"input": null}', ["input", "null", "an object"]),
    (b'{"input": "x"}', ["input", '"x"', "an object"]),
    (b'{"input": [1]}', ["input", "[1]", "an object"]),
    (b'{"input": {"x": 1e999}}', ["input", "too large"]),
    (body(webhook=3), ["webhook", "3", "http or https URL"]),
    (body(webhook=""), ["webhook", '""', "http or https URL"]),
    (body(webhook="ftp://x/"), ["webhook", "ftp://x/", "http or https URL"]),
    (body(webhook="https://"), ["webhook", "https://", "http or https URL"]),
    (body(webhook="http://a:b/"), ["webhook", "http or https URL"]),
    (body(webhook="http://[::1/"), ["webhook", "http or https URL"]),
    (body(webhook="http://a b/"), ["webhook", "http or https URL"]),
    (body(webhook="http://a/" + "x" * 3000), ["webhook", "2048"]),
    (body(policy=[]), ["policy", "[]", "an object"]),
    (policy(executionTimeout=4_999), ["policy.executionTimeout", "4999", "5000 to 604800000"]),
    (policy(executionTimeout=604_800_001), ["policy.executionTimeout", "604800001", "5000 to 604800000"]),
    (policy(executionTimeout="60000"), ["policy.executionTimeout", '"60000"', "integer"]),
    (policy(executionTimeout=True), ["policy.executionTimeout", "true", "integer"]),
    (policy(executionTimeout=5000.5), ["policy.executionTimeout", "5000.5", "integer"]),
    (policy(executionTimeout=10**40), ["policy.executionTimeout", "1000", "604800000"]),
    (policy(ttl=9_999), ["policy.ttl", "9999", "10000 to 604800000"]),
    (policy(ttl=604_800_001), ["policy.ttl", "604800001", "10000 to 604800000"]),
    (policy(ttl=-1), ["policy.ttl", "-1", "10000 to 604800000"]),
    (policy(lowPriority="yes"), ["policy.lowPriority", '"yes"', "true or false"]),
    (policy(startBy=999), ["policy.startBy", "999", "1000 to 604800000"]),
    (policy(deadline="soon"), ["policy.deadline", '"soon"', "integer"]),
    (policy(priority="high"), ["policy.priority", '"high"', "urgent or normal or low"]),
    (policy(priority=["low"]), ["policy.priority", '["low"]', "urgent or normal or low"]),
    (policy(priority="urgent", lowPriority=True), ["policy.priority", "lowPriority", "send one of them"]),
    (policy(lowPriority=1), ["policy.lowPriority", "1", "true or false"]),
    (body(s3Config="x"), ["s3Config", '"x"', "an object"]),
    *(
        (
            body(s3Config={key: value for key, value in S3.items() if key != name}),
            [f"s3Config.{name} is missing"],
        )
        for name in S3
    ),
    (body(s3Config=S3 | {"bucketName": ""}), ["s3Config.bucketName is empty"]),
    (body(s3Config=S3 | {"accessSecret": 3}), ["s3Config.accessSecret is of type int"]),
    (body(s3Config=S3 | {"endpointUrl": "s3://x"}), ["s3Config.endpointUrl", "s3://x", "http or https URL"]),
    (body(s3Config=S3 | {"objectPath": 1}), ["s3Config.objectPath", "1", "a string"]),
    (body(s3Config=S3 | {"objectPath": "x" * 1025}), ["s3Config.objectPath", "at most 1024 characters"]),
    (body(s3Config=S3 | {"region": "eu west"}), ["s3Config.region", '"eu west"', "such as eu-west-1"]),
    (body(s3Config=S3 | {"region": 1}), ["s3Config.region", "1", "such as eu-west-1"]),
    (body(s3Config=S3 | {"accessId": "x" * 1025}), ["s3Config.accessId has 1025 characters", "1024"]),
    (body(webhook="https://me:hush@x/"), ["webhook must not hold a user name or a password"]),
    (
        body(s3Config=S3 | {"endpointUrl": "https://hush@x/"}),
        ["s3Config.endpointUrl must not hold a user name"],
    ),
]


@pytest.mark.parametrize("operation", ["run", "runsync"])
@pytest.mark.parametrize(("content", "parts"), BODIES)
async def test_a_wrong_body_is_a_400_that_says_what_is_wrong(
    http: httpx2.AsyncClient, plane: FakePlane, operation: str, content: bytes, parts: list[str]
) -> None:
    response = await http.post(f"/v2/echo/{operation}", content=content)
    assert response.status_code == 400
    found = response.json()
    assert set(found) == {"error", "status", "title", "detail"}
    assert (found["status"], found["title"]) == (400, "Bad Request")
    for word in parts:
        assert word in found["error"]
    assert len(found["error"]) < 1_000
    assert "hush" not in found["error"]
    assert plane.submitted == []


async def test_a_secret_is_not_repeated(http: httpx2.AsyncClient) -> None:
    response = await http.post("/v2/echo/run", content=body(s3Config=S3 | {"accessSecret": ["hush"]}))
    assert response.status_code == 400
    assert "hush" not in response.text


IMAGE_INPUTS: list[tuple[dict[str, object], list[str]]] = [
    ({}, ["prompt is required and missing"]),
    ({"prompt": ""}, ["prompt must not be empty", '""']),
    ({"prompt": 3}, ["prompt must be a string", "3"]),
    ({"prompt": "x" * 10_001}, ["prompt must have at most 10000 characters", "..."]),
    ({"width": 1000}, ["width must be divisible by 64", "1000", "256 to 1536 in steps of 64"]),
    ({"width": 64}, ["width must be at least 256", "64", "256 to 1536 in steps of 64"]),
    ({"width": 1600}, ["width must be at most 1536", "1600", "256 to 1536 in steps of 64"]),
    ({"width": "512"}, ["width must be an integer", '"512"']),
    ({"width": True}, ["width must be an integer", "true"]),
    ({"num_inference_steps": 0}, ["num_inference_steps", "0", "1 to 50"]),
    ({"num_inference_steps": 51}, ["num_inference_steps", "51", "1 to 50"]),
    ({"guidance": -1}, ["guidance", "-1", "0.0 to 10.0"]),
    ({"guidance": None}, ["guidance must be a number", "null"]),
    ({"seed": 1.5}, ["seed must be an integer", "1.5"]),
    ({"seed": -2}, ["seed", "-2", "-1"]),
    ({"seed": 10**30}, ["seed", "9223372036854775807"]),
    ({"image_format": "gif"}, ["image_format", '"gif"', '"png" or "jpeg"']),
    ({"widht": 512}, ["widht is not a known field", "512", "width"]),
]


@pytest.mark.parametrize("operation", ["run", "runsync"])
@pytest.mark.parametrize(("job_input", "parts"), IMAGE_INPUTS)
async def test_a_hosted_models_bad_parameter_is_a_failed_record(
    http: httpx2.AsyncClient,
    plane: FakePlane,
    operation: str,
    job_input: dict[str, object],
    parts: list[str],
) -> None:
    sent = job_input if not job_input else {"prompt": "a cat"} | job_input
    response = await http.post(f"/v2/text-to-image/{operation}", json={"input": sent})
    assert response.status_code == 400
    found = response.json()
    assert set(found) == {"id", "status", "error"}
    assert found["status"] == "FAILED"
    assert found["id"].startswith("sync-") == (operation == "runsync")
    for word in parts:
        assert word in found["error"]
    assert (await http.get(f"/v2/text-to-image/status/{found['id']}")).status_code == 404
    assert plane.submitted == []


async def test_a_hosted_models_missing_input_is_a_failed_record_too(http: httpx2.AsyncClient) -> None:
    found = (await http.post("/v2/text-to-image/runsync", json={"input": 3})).json()
    assert set(found) == {"id", "status", "error"}
    assert "input must be an object; got 3" in found["error"]


async def test_an_endpoint_of_ones_own_with_a_schema_answers_in_the_common_shape(
    http: httpx2.AsyncClient,
) -> None:
    response = await http.post("/v2/sized/runsync", json={"input": {"prompt": "x", "width": 1000}})
    assert response.status_code == 400
    assert "width must be divisible by 64" in response.json()["detail"]


async def test_a_whole_number_written_as_a_float_is_an_integer(http: httpx2.AsyncClient) -> None:
    response = await http.post("/v2/text-to-image/run", json={"input": {"prompt": "x", "seed": 1.0}})
    assert response.status_code == 200


KEYS = [
    ({}, "no token provided"),
    ({"Authorization": ""}, "no token provided"),
    ({"Authorization": "Bearer "}, "no token provided"),
    ({"Authorization": "Bearer"}, "no token provided"),
    ({"Authorization": "Bearer sk-wrong"}, "invalid api key"),
    ({"Authorization": "sk-wrong"}, "invalid api key"),
    ({"Authorization": f"Basic {KEY}"}, "invalid api key"),
]

OPERATIONS = [
    ("POST", "/v2/echo/run"),
    ("POST", "/v2/echo/runsync"),
    ("GET", "/v2/echo/status/x"),
    ("POST", "/v2/echo/status-sync/x"),
    ("GET", "/v2/echo/stream/x"),
    ("POST", "/v2/echo/cancel/x"),
    ("POST", "/v2/echo/retry/x"),
    ("POST", "/v2/echo/purge-queue"),
    ("GET", "/v2/echo/requests"),
    ("GET", "/v2/echo/logs/x"),
    ("GET", "/v2/echo/attempts/x"),
    ("GET", "/v2/echo/input/x"),
    ("GET", "/v2/echo/health"),
]


@pytest.fixture
async def without_key(plane: FakePlane) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(make_app(plane))
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker") as client:
        yield client


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize(("headers", "detail"), KEYS)
async def test_without_the_right_key_nothing_is_answered(
    without_key: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str], detail: str
) -> None:
    response = await without_key.request(method, path, headers=headers, content=body())
    assert response.status_code == 401
    assert response.json() == {"error": detail, "status": 401, "title": "Unauthorized", "detail": detail}
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", [f"Bearer {KEY}", f"bearer {KEY}", KEY, f"  {KEY} "])
async def test_a_key_is_taken_with_bearer_and_bare(without_key: httpx2.AsyncClient, key: str) -> None:
    response = await without_key.get("/v2/echo/health", headers={"Authorization": key})
    assert response.status_code == 200


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_an_unknown_endpoint_is_a_404(http: httpx2.AsyncClient, method: str, path: str) -> None:
    response = await http.request(method, path.replace("echo", "nobody"), content=body())
    assert response.status_code == 404
    assert "nobody" in response.json()["error"]


@pytest.mark.parametrize(("method", "path"), [row for row in OPERATIONS if row[1].endswith("/x")])
async def test_an_unknown_job_is_a_404(http: httpx2.AsyncClient, method: str, path: str) -> None:
    response = await http.request(method, path)
    assert response.status_code == 404
    assert "x" in response.json()["error"]


async def test_another_endpoints_job_is_a_404(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    view = plane.add(endpoint="sized")
    assert (await http.get(f"/v2/echo/status/{view.id}")).status_code == 404


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_wrong_method_is_a_405_in_our_shape(http: httpx2.AsyncClient, method: str, path: str) -> None:
    response = await http.request("DELETE", path)
    both = path.split("/")[3] in ("status", "status-sync", "stream")
    allowed = "GET, POST" if both else method
    assert (response.status_code, response.headers["allow"], response.json()["status"]) == (405, allowed, 405)
    assert response.json()["error"] == f"DELETE is not allowed here; allowed: {allowed}"


@pytest.mark.parametrize(
    ("path", "allowed"), [("/ping", "GET, HEAD"), ("/docs", "GET, HEAD"), ("/openapi.json", "GET, HEAD")]
)
async def test_what_is_no_operation_reports_its_methods_too(
    http: httpx2.AsyncClient, path: str, allowed: str
) -> None:
    response = await http.delete(path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert response.json()["error"] == f"DELETE is not allowed here; allowed: {allowed}"


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v2/echo",
        "/v2/echo/",
        "/v2/echo/walk",
        "/v2/echo/run/",
        "/v2/echo/run/x",
        "/v2//run",
        "/v2/echo/status",
        "/v2/echo/status/",
        "/v2/echo/status/a/b",
        "/v1/echo/run",
        "/v2/echo/run%2Fx",
    ],
)
async def test_an_unknown_path_is_a_404_in_our_shape(http: httpx2.AsyncClient, path: str) -> None:
    response = await http.get(path)
    assert response.status_code == 404
    assert set(response.json()) == {"error", "title", "detail"}  # a `status` would read as a job's


@pytest.mark.parametrize("operation", ["runsync", "status-sync/x", "stream/x"])
@pytest.mark.parametrize("wait", ["999", "300001", "-1", "1e4", "soon", "", "1000.5", "٣٠٠٠", "9" * 5000])
async def test_a_wait_out_of_bounds_is_a_400(
    http: httpx2.AsyncClient, plane: FakePlane, operation: str, wait: str
) -> None:
    plane.add(id="x")
    response = await http.post(f"/v2/echo/{operation}", params={"wait": wait}, content=body())
    assert response.status_code == 400
    assert "wait must be an integer from 1000 to 300000" in response.json()["error"]


NUMBERS = ["-1", "1e4", "soon", "", "1000.5", "٣٠٠٠", "9" * 5000, "+5", " 5", "5 ", "1_000", "0x10"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("ttl", ["0", "999", "604800001", *NUMBERS])
async def test_a_ttl_out_of_bounds_is_a_400(
    http: httpx2.AsyncClient, plane: FakePlane, method: str, ttl: str
) -> None:
    plane.add(id="x")
    response = await http.request(method, "/v2/echo/status/x", params={"ttl": ttl})
    assert response.status_code == 400
    assert "ttl must be an integer from 1000 to 604800000 (milliseconds)" in response.json()["error"]
    assert plane.ttls == []


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("limit", value, "an integer from 1 to 1000") for value in ["0", "1001", *NUMBERS]),
        *(
            ("since", value, "an integer from 0 to 253402300799999")
            for value in ["253402300800000", *NUMBERS]
        ),
        *(
            ("until", value, "an integer from 0 to 253402300799999")
            for value in ["253402300800000", *NUMBERS]
        ),
        *((name, "", "1 to 200 characters") for name in ("worker", "node", "error")),
        *(("error", value, "1 to 200 characters") for value in ["x" * 201, "\0"]),
        *(
            ("cursor", value, "an integer from 1 to 9223372036854775807")
            for value in ["0", str(2**63), *NUMBERS]
        ),
        *(
            ("status", value, "one of IN_QUEUE, IN_PROGRESS")
            for value in ["", "RUNNING", "in_queue", "COMPLETED "]
        ),
    ],
)
async def test_a_listing_is_requested_within_bounds(
    http: httpx2.AsyncClient, plane: FakePlane, name: str, value: str, allowed: str
) -> None:
    if value == "+5":  # a plus reads as a blank in a query
        value = "%2B5"
    response = await http.get(f"/v2/echo/requests?{name}={quote(value, safe='%')}")
    assert response.status_code == 400
    assert f"{name} must be {allowed}" in response.json()["error"]
    assert len(response.json()["error"]) < 300
    assert plane.listings == []


@pytest.mark.parametrize("operation", ["run", "runsync"])
@pytest.mark.parametrize("key", [b"", b"x" * 256, b"two words", b"\xc3\xa9", b"a\tb", b"\x7f"])
async def test_an_idempotency_key_that_is_none_is_a_400(
    http: httpx2.AsyncClient, plane: FakePlane, operation: str, key: bytes
) -> None:
    headers = [(b"idempotency-key", key)]
    response = await http.post(f"/v2/echo/{operation}", content=body(), headers=headers)
    assert response.status_code == 400
    assert "Idempotency-Key must be 1 to 255 visible ASCII characters" in response.json()["error"]
    assert plane.submitted == []


# -- size


async def test_a_length_that_no_number_holds_is_too_long(http: httpx2.AsyncClient) -> None:
    response = await http.post("/v2/echo/run", content=body(), headers={"Content-Length": "9" * 5_000})
    assert response.status_code == 413
    assert len(response.json()["error"]) < 200


async def parts(sent: list[int], count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        sent.append(size)
        yield b" " * size


@pytest.mark.parametrize(("operation", "limit"), [("run", 10 * 2**20), ("runsync", 20 * 2**20)])
async def test_a_body_over_its_limit_is_refused_while_it_comes_in(
    http: httpx2.AsyncClient, plane: FakePlane, operation: str, limit: int
) -> None:
    sent: list[int] = []
    response = await http.post(f"/v2/echo/{operation}", content=parts(sent, 100, 2**20))
    assert response.status_code == 413
    assert str(limit) in response.json()["error"]
    assert sum(sent) <= limit + 2**20  # no more was read than it takes to know
    assert plane.submitted == []


async def test_a_body_that_declares_itself_too_long_is_not_read(http: httpx2.AsyncClient) -> None:
    sent: list[int] = []
    response = await http.post(
        "/v2/echo/run", content=parts(sent, 1, 1), headers={"Content-Length": "11000000"}
    )
    assert response.status_code == 413
    assert "11000000" in response.json()["error"]
    assert sent == []


async def test_a_body_of_ten_megabytes_is_taken(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    filled = json.dumps({"input": {"x": "y" * (10_000_000 - 20)}}).encode()
    response = await http.post("/v2/echo/run", content=filled)
    assert response.status_code == 200
    assert len(plane.submitted[0].input) == 10_000_000 - 20 + len('{"x":""}')


async def test_a_body_to_a_poll_is_bounded_too(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.add(id="x")
    assert (await http.post("/v2/echo/stream/x", content=b" " * 100_000)).status_code == 413


# -- anything at all


VALID = json.dumps(
    {
        "input": {"prompt": "a cat", "width": 512, "n": [1, 2.5, None, True, {"é": "\n"}]},
        "webhook": "https://caller.example/done",
        "policy": {"executionTimeout": 60_000, "ttl": 3_600_000, "priority": "low"},
        "s3Config": S3,
    }
).encode()

edits = st.lists(
    st.tuples(st.integers(0, len(VALID)), st.integers(0, 8), st.binary(max_size=4)), min_size=1, max_size=4
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(
    st.sampled_from(["input", "webhook", "policy", "s3Config", "extra"]),
    json_values
    | st.dictionaries(
        st.sampled_from(
            ["executionTimeout", "ttl", "lowPriority", "priority", *S3, "width", "prompt", "seed"]
        ),
        json_values,
    ),
)


def mutated(changes: list[tuple[int, int, bytes]]) -> bytes:
    content = VALID
    for at, length, put in changes:
        content = content[:at] + put + content[at + length :]
    return content


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=st.one_of(edits.map(mutated), bodies.map(lambda sent: json.dumps(sent).encode())),
    endpoint=st.sampled_from(["echo", "text-to-image", "sized"]),
)
async def test_no_body_makes_a_server_error(content: bytes, endpoint: str) -> None:
    plane = FakePlane()
    transport = httpx2.ASGITransport(make_app(plane, ApiSettings()))
    headers = {"Authorization": KEY}
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker", headers=headers) as client:
        response = await client.post(f"/v2/{endpoint}/run", content=content)
    assert response.status_code in (200, 400)
    assert response.json()["status"] in ("IN_QUEUE", "FAILED", 400)
    for submission in plane.submitted:
        # What was accepted is JSON that every later reader takes, the strictest included.
        assert parse_submission(b'{"input":' + submission.input + b"}").input == submission.input


@pytest.mark.parametrize("kind", ["x" * 2_000, "image/" + "x" * 250, "image/\xe9", "image/p\tng"])
async def test_a_content_type_that_no_object_can_have(
    http: httpx2.AsyncClient, plane: FakePlane, kind: str
) -> None:
    headers = [(b"content-type", kind.encode("latin-1"))]
    response = await http.post("/v2/echo/files", content=b"a file", headers=headers)
    assert response.status_code == 400
    assert "Content-Type must have at most 255 characters" in response.json()["error"]
    assert plane.kept == {}


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", "x" * 255])
async def test_any_other_content_type_is_kept(http: httpx2.AsyncClient, plane: FakePlane, kind: str) -> None:
    await http.post("/v2/echo/files", content=b"a file", headers={"Content-Type": kind})
    assert [media_type for _, media_type in plane.kept.values()] == [kind]
