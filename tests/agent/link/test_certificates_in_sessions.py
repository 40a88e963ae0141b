"""Certificates in the session: requested with the Hello that joins, and renewed without an end of it."""

from __future__ import annotations

from stoker.wire.messages import CertificateAnswer

SIGNED = CertificateAnswer(b"certificate", b"authorities")


def test_a_node_that_joins_gets_its_certificate_with_its_credential(play):
    async def story(host):
        host.control.gives = ["nk_1_2"]
        host.control.certificate, host.certificates.due = SIGNED, True
        await host.control.until(lambda: host.control.sessions)
        assert host.credentials == ["nk_1_2"]
        assert host.certificates.kept == [SIGNED]

    play(story)


def test_a_node_that_cannot_keep_its_credential_keeps_no_certificate_for_it(play):
    async def story(host):
        host.full = True
        host.control.gives = ["nk_1_2"]
        host.control.certificate, host.certificates.due = SIGNED, True
        await host.control.until(lambda: len(host.control.hellos) > 2)
        assert host.certificates.kept == []
        host.full = False
        await host.control.until(lambda: host.control.sessions)
        assert host.certificates.kept == [SIGNED]

    play(story)


def test_a_certificate_is_renewed_in_the_session_and_jobs_go_on(play, a_worker, a_job):
    async def story(host):
        host.control.certifies, host.control.certificate = True, SIGNED
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 30}'))
        await host.holds_work()
        for renewals in (1, 2):
            host.certificates.due = True
            await host.until(lambda renewals=renewals: len(host.certificates.kept) == renewals)
        assert (await host.control.outcome("j1")).end == "completed"
        assert host.control.sessions == 1
        assert len(host.control.certificate_asks) == 2

    play(story)


def test_an_answer_that_does_not_come_is_awaited_and_asked_for_once(play):
    async def story(host):
        host.control.certifies = host.certificates.due = True
        await host.control.until(lambda: len(host.control.beats) > 4)
        assert len(host.control.certificate_asks) == 1
        host.control.certificate = SIGNED
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.certificate_asks) == 2)
        await host.until(lambda: host.certificates.kept == [SIGNED])

    play(story)


def test_a_control_that_signs_none_is_not_asked_in_a_session(play):
    async def story(host):
        host.certificates.due = True
        await host.control.until(lambda: len(host.control.beats) > 3)
        assert host.control.certificate_asks == []

    play(story)
