"""What a good body becomes."""

import json

import pytest
from msgspec.structs import replace

from stoker.control.errors import BadRequest
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.submissions import S3Config, Submission, abbreviated, parse_submission


def parsed(**fields: object) -> Submission:
    return parse_submission(json.dumps({"input": {"a": 1}} | fields).encode())


def test_only_an_input() -> None:
    assert parsed() == Submission(b'{"a":1}')


def test_all_fields() -> None:
    submission = parsed(
        webhook="https://caller.example/done?x=1",
        policy={"executionTimeout": 5_000, "ttl": 10_000, "lowPriority": True},
        s3Config={
            "accessId": "a",
            "accessSecret": "hush",
            "bucketName": "b",
            "endpointUrl": "http://s3.example:9000",
            "objectPath": "up",
            "region": "eu-west-1",
        },
    )
    assert submission == Submission(
        input=b'{"a":1}',
        webhook="https://caller.example/done?x=1",
        execution_timeout_ms=5_000,
        ttl_ms=10_000,
        priority=Priority.LOW,
        s3=S3Config("a", "hush", "b", "http://s3.example:9000", "up", "eu-west-1"),
    )
    assert "hush" not in repr(submission)


def test_bounds_are_allowed_and_kept() -> None:
    week = 604_800_000
    submission = parsed(policy={"executionTimeout": week, "ttl": week})
    assert (submission.execution_timeout_ms, submission.ttl_ms) == (week, week)


def test_null_reads_as_absent_as_typed_clients_send_it() -> None:
    assert parsed(webhook=None, policy=None, s3Config=None) == parsed()
    assert parsed(policy={}, s3Config={}) == parsed()
    named = {"accessId": "a", "accessSecret": "s", "bucketName": "b", "endpointUrl": "http://s3.example"}
    assert parsed(s3Config=named | {"region": None}) == parsed(s3Config=named | {"region": ""})
    assert parsed(policy={"priority": None}) == parsed()
    assert parsed(policy={"ttl": None, "executionTimeout": None, "lowPriority": None}) == parsed()


def test_unknown_keys_are_ignored_and_named() -> None:
    found = parsed(webhookV2=[3], policy={"future": 1, "ttl": None}, batchId="b", id=None)
    assert replace(found, ignored=()) == parsed()
    assert found.ignored == ("webhookV2", "policy.future", "batchId", "id")
    s3 = {"accessId": "a", "accessSecret": "s", "bucketName": "b", "endpointUrl": "https://x", "prefix": "eu"}
    assert parsed(s3Config=s3).ignored == ("s3Config.prefix",)


def test_an_empty_input_stays_empty() -> None:
    assert parse_submission(b'{"input": {}}').input == b"{}"


def test_numbers_and_characters_arrive_as_they_were_sent() -> None:
    sent = b'{"big":123456789012345678901234567890,"f":0.1,"one":1.0,"s":"\xc3\xa9Infinity\\n"}'
    assert parse_submission(b'{"input":' + sent + b"}").input == sent


def test_a_long_value_is_cut() -> None:
    assert len(abbreviated("x" * 500)) == 100


@pytest.mark.parametrize("name", Priority)
def test_a_class_is_named_and_low_priority_is_an_older_name(name: Priority) -> None:
    assert parsed(policy={"priority": str(name), "lowPriority": False}).priority is name
    assert parsed(policy={"lowPriority": True}) == parsed(policy={"priority": "low", "lowPriority": True})
    if name is not Priority.LOW:
        with pytest.raises(BadRequest, match=r"policy\.priority and policy\.lowPriority contradict"):
            parsed(policy={"priority": str(name), "lowPriority": True})
