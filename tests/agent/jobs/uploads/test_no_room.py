"""No room in the object store: a result waits for it, unless it is refused for good."""

from __future__ import annotations

from stoker.outbound.errors import ObjectStoreFull, ObjectStoreRefused

SCRIPT = b'{"files": [{"name": "a.png"}], "output": [{"$file": 0}]}'


def test_a_result_waits_for_room_in_the_object_store(play, a_worker, a_job, caplog):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.fail(3, ObjectStoreFull("the bucket's quota is used up"))
        await host.control.assign(a_job("j1", SCRIPT))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, len(outcome.artifacts)) == ("completed", 1)

    play(story)
    assert caplog.text.count("could not be uploaded: the bucket's quota is used up") == 3


def test_a_result_that_is_refused_for_good_does_not_wait(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.fail(1, ObjectStoreRefused("check the access id"))
        await host.control.assign(a_job("j1", SCRIPT))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("failed", False)
        assert outcome.error.endswith("check the access id")

    play(story)
