"""Requests to the platform's store, which control signs: asked, kept while it is away, refused."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused
from stoker.wire.messages import WANTED_MOST, Grant, SignAnswer, Signed, Uploading, Wanted

SCRIPT = b'{"files": [{"name": "a.png", "content": "picture"}], "output": [{"$file": 0}]}'
GRANT = Grant("http://s3", "http://public", "eu", "bucket", "e1/j1/1/", "", job="j1", attempt=1)


@pytest.fixture
def signed_job(a_job):
    """A job with the right to have requests signed, and no credentials."""
    return lambda name, script=SCRIPT: a_job(
        name, script, grant=replace(GRANT, prefix=f"e1/{name}/1/", job=name)
    )


async def next_request(signing):
    while not (requests := signing.take()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    (request,) = requests
    return request


def test_a_job_with_a_file_asks_and_one_without_asks_nothing(play, a_worker, signed_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(signed_job("j0", b'{"output": 1}'))
        await host.control.outcome("j0")
        assert host.control.asks == []
        host.objects._signer = host.signing
        await host.control.assign(signed_job("j1"))
        assert (await host.control.outcome("j1")).end == "completed"
        assert host.objects.blobs["bucket", "e1/j1/1/0-a.png"] == b"picture"
        assert [(request.job, request.attempt) for request in host.control.asks] == [("j1", 1)] * 2
        assert [request.wanted[0].verb for request in host.control.asks] == ["put", "link"]
        (put,) = host.control.asks[0].wanted
        assert (put.key, put.size, put.media_type) == ("e1/j1/1/0-a.png", 7, "application/octet-stream")

    play(story)


def test_a_result_waits_for_control_to_be_back_and_is_requested_again(play, a_worker, signed_job):
    async def story(host):
        host.objects._signer = host.signing
        await host.control.ready(a_worker())
        host.control.signs = False
        await host.control.assign(signed_job("j1"))
        await host.control.until(lambda: host.control.about(Uploading, "j1") and host.control.asks)
        host.control.up = False
        host.control.stream.cut()
        await asyncio.sleep(600)
        assert [held.phase for held in host.agent.attempts.held()] == ["uploading"]
        host.control.up = host.control.signs = True
        assert (await host.control.outcome("j1")).end == "completed"
        assert [request.number for request in host.control.asks[:2]] == [1, 1]

    play(story)


def test_what_control_never_signs_is_given_up_at_the_ttl(play, a_worker, signed_job):
    async def story(host):
        host.objects._signer = host.signing
        await host.control.ready(a_worker())
        host.control.signs = False
        await host.control.assign(replace(signed_job("j1"), ttl_s=100.0))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("failed", False)
        assert "ttl" in outcome.error
        assert host.signing._requests == {}

    play(story)


def test_a_refusal_is_control_s_message_and_what_may_help_later_is_tried_again(in_time):
    async def story():
        signing = SigningRequests()
        for retryable, error in ((False, ObjectStoreRefused), (True, ObjectStoreDown)):
            asking = asyncio.create_task(signing.sign(GRANT, [Wanted("link", "e1/j1/1/a")]))
            request = await next_request(signing)
            assert signing.take() == ()
            signing.answered(SignAnswer(request.number + 100, "of another"))
            signing.answered(SignAnswer(request.number, "this node does not hold it", retryable))
            with pytest.raises(error, match="does not hold it"):
                await asking
            signing.answered(SignAnswer(request.number, "late"))

    in_time(story())


def test_many_are_requested_in_several_messages_and_come_in_their_order(in_time):
    async def story():
        signing, woken = SigningRequests(), []
        wanted = [Wanted("link", f"e1/j1/1/{n}") for n in range(2 * WANTED_MOST + 1)]
        asking = asyncio.create_task(signing.sign(GRANT, wanted))
        sizes = []
        while not asking.done():
            await asyncio.sleep(0)
            if signing.wake.is_set():
                signing.wake.clear()
                woken.append(True)
            for request in signing.take():
                sizes.append(len(request.wanted))
                signed = tuple(Signed(one.key) for one in request.wanted)
                signing.answered(SignAnswer(request.number, signed=signed))
        assert [one.url for one in asking.result()] == [one.key for one in wanted]
        assert (sizes, len(woken)) == ([WANTED_MOST, WANTED_MOST, 1], 3)

    in_time(story())


def test_an_answer_of_another_length_is_none(in_time):
    async def story():
        signing = SigningRequests()
        asking = asyncio.create_task(signing.sign(GRANT, [Wanted("link", "e1/j1/1/a")]))
        signing.answered(SignAnswer((await next_request(signing)).number))
        with pytest.raises(ObjectStoreRefused, match="another number"):
            await asking

    in_time(story())
