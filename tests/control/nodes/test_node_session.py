"""One session alone: what it makes of messages that come together, of a silent agent, and of its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from stoker.control.auth.secret_references import SecretValues
from stoker.control.config.settings import PlaneSettings
from stoker.control.nodes.assigned import AssignedToNode
from stoker.control.nodes.session import CERTIFY_EVERY_S, SILENCE_S, NodeSession
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.desired_pods import DesiredPods, DesiredState, DesiredVolumes
from stoker.testing.memory_stream import memory_pair
from stoker.wire.messages import (
    Beat,
    CertificateAnswer,
    FromAgent,
    Released,
    Report,
)
from stoker.wire.streams import ControlStream
from tests.control.plane_world import story


def nothing_assigned() -> AssignedToNode:
    cluster = ClusterState()
    pods = DesiredPods(cluster, SecretValues().fill, PlaneSettings())
    return AssignedToNode("n", cluster, DesiredState(SecretValues(), pods, DesiredVolumes(cluster)), {})


def report(number: int) -> FromAgent:
    return FromAgent(reports=(Report(number, Released("job", number)),))


class NoAnswers:
    """Fails where a session asks for an answer."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asked for {name}")


def made(stream: ControlStream, handler: Handler, answers: Any = None) -> NodeSession:
    return NodeSession("n", 1, "token", stream, handler, nothing_assigned(), answers or NoAnswers())


class Handler:
    """Handles each batch for so many seconds, and notes which reports it had."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches: list[list[int]] = []
        self.done = 0

    async def __call__(self, _: NodeSession, reports: Sequence[Report], beat: Beat | None) -> None:
        self.batches.append([report.number for report in reports])
        await asyncio.sleep(self.seconds)
        self.done += 1


@story
async def test_what_comes_while_one_batch_is_handled_makes_up_the_next() -> None:
    agent, control = memory_pair()
    handler = Handler(1.0)
    running = asyncio.create_task(made(control, handler).run())
    await agent.send(report(1))
    await asyncio.sleep(0.5)
    for number in (2, 3, 4):
        await agent.send(report(number))
    message = await agent.receive()
    while message.ack is None or message.ack.report < 4:
        message = await agent.receive()
    assert handler.batches == [[1], [2, 3, 4]]
    agent.end("left")
    assert await running == "left"


@story
async def test_an_agent_that_says_nothing_for_a_minute_is_gone() -> None:
    agent, control = memory_pair()
    session = made(control, Handler(0.0))
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(session.run())
    await asyncio.sleep(SILENCE_S - 1)
    await agent.send(FromAgent(beat=Beat(1)))
    received_at = loop.time()
    assert await running == "no message for 60 s"
    assert SILENCE_S <= loop.time() - received_at < SILENCE_S + 1


@story
async def test_a_slow_store_is_not_the_agents_silence() -> None:
    agent, control = memory_pair()
    handler = Handler(3 * SILENCE_S)
    running = asyncio.create_task(made(control, handler).run())
    await agent.send(report(1))
    await asyncio.sleep(3 * SILENCE_S + 1)
    assert handler.done == 1
    assert not running.done()
    agent.end("left")
    await running


@story
async def test_a_batch_is_handled_to_its_end_and_no_other_is_begun() -> None:
    agent, control = memory_pair()
    handler = Handler(5.0)
    session = made(control, handler)
    running = asyncio.create_task(session.run())
    await agent.send(report(1))
    await asyncio.sleep(1.0)
    await agent.send(report(2))
    session.end("a newer session took over")
    assert await running == "a newer session took over"
    assert (handler.batches, handler.done) == ([[1]], 1)


@story
async def test_a_session_that_is_cancelled_waits_for_what_is_being_committed() -> None:
    agent, control = memory_pair()
    handler = Handler(5.0)
    running = asyncio.create_task(made(control, handler).run())
    await agent.send(report(1))
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    assert handler.done == 1


@story
async def test_a_flood_of_requests_for_certificates_is_one_signature_a_second() -> None:
    agent, control = memory_pair()
    signed: list[bytes] = []

    class Signs(NoAnswers):
        def certificate(self, node: str, credential: str, request: bytes) -> CertificateAnswer:
            signed.append(request)
            return CertificateAnswer(request)

    handler = Handler(0.0)
    session = made(control, handler, Signs())
    running = asyncio.create_task(session.run())
    for number in range(20):
        await agent.send(FromAgent(certificate_ask=b"%d" % number))
        await asyncio.sleep(CERTIFY_EVERY_S / 8)
    assert len(signed) == 3
    answers = [await agent.receive() for _ in range(3)]
    while sum(answer.certificate is not None for answer in answers) < 3:
        answers.append(await agent.receive())
    agent.end("left")
    assert await running == "left"
