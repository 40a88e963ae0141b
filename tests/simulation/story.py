"""One story for each seed: callers ask, things break, all is mended; then everything must come to its end.

What the witness cannot see while it happens is asked when all is calm: every job ended, or was overtaken by
its time; every caller answered; nothing held by agents; counters that add up; no object that nothing names.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

from stoker.control.rules.job_states import TERMINAL
from stoker.testing.fake_spawner import Start
from stoker.wire.messages import LockedWeights, WeightsFile
from tests.simulation.callers import OWN, Caller, look_around, named, purge
from tests.simulation.faults import WATCHED_S, breaks, hosts_with_waiting, mend
from tests.simulation.idle_hands import watch_for_idle_hands
from tests.simulation.two_controls.world import TwoControls, on_the_server
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wishes import Request, draw
from tests.simulation.witness import Tale, Violation
from tests.simulation.world import World, shrink

STEPS = 400_000
"""A story has about ten thousand; one with more runs in circles."""

TURNS = "turns"
"""An endpoint whose jobs are short until they are long."""

WEIGHTS = LockedWeights("flux", "folder", files=(WeightsFile("model.safetensors", 9, "ab" * 32),))

SHORT: dict[str, Any] = {"run_s": 0.004}
LONG: dict[str, Any] = {"run_s": 30.0}

CALLERS_S = 400.0
CALM_S = 200.0
WEEK_S = 8 * 86_400.0


@dataclass
class Played:
    """How a story went."""

    seed: int
    steps: int
    seconds: float
    violation: str | None
    lines: tuple[str, ...] = ()


def play(seed: int, *, spare: bool = False, tracing: bool = False) -> Played:
    """With `spare`, a second control waits to take over."""
    shrink()
    loop = VirtualLoop(seed, limit=STEPS)
    world = TwoControls(seed, loop) if spare else World(seed, loop)
    world.witness.tracing = tracing
    watch = _Log(world)
    logging.getLogger("stoker").addHandler(watch)
    violation: str | None = None
    try:
        with on_the_server(world.server) if isinstance(world, TwoControls) else nullcontext():
            run(loop, _story(world, Random(seed)))
    except Violation as found:
        violation = str(found)
    except Exception as error:
        violation = f"{type(error).__name__}: {error} (at {loop.time():.3f} s)"
        if tracing:
            raise
    finally:
        logging.getLogger("stoker").removeHandler(watch)
        world.close()
    return Played(seed, loop.steps, loop.time(), violation, tuple(world.witness.lines))


class _Log(logging.Handler):
    """What the service itself calls an error that it did not expect is one."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self.world.loop.over:
            return
        witness = self.world.witness
        witness.note("logged: {}", record.getMessage())
        if record.exc_info and not witness.poisoned:
            witness.fail(f"logged with a traceback: {record.getMessage()}: {record.exc_info[1]!r}")


async def _story(world: World, rng: Random) -> None:
    _endpoints(world, rng)
    await world.start_control()
    for host in world.hosts:
        delay = rng.random() * 5.0  # their beats are not in step
        world.loop.call_later(delay, world.start_agent, host, context=world.context)
    if rng.random() < 0.3:
        await asyncio.sleep(WATCHED_S)
    idle = asyncio.ensure_future(watch_for_idle_hands(world))
    breaking = asyncio.ensure_future(breaks(world, Random(rng.random())))
    names = [endpoint.id for endpoint in world.endpoints]
    requests = [draw(rng, number, names) for number in range(rng.choice([6, 10, 14]))]
    world.witness.keyed = {one.number for one in requests if one.key is not None}
    programs = [asyncio.ensure_future(_caller(world, one, Random(rng.random()))) for one in requests]

    def ask(
        plan: list[dict[str, Any]],
        timeout_s: float = 30.0,
        endpoint: str = names[0],
        *,
        urgent: bool = False,
    ) -> None:
        one = Request(len(requests), endpoint, plan, ttl_s=7200.0, timeout_s=timeout_s, urgent=urgent)
        requests.append(one)
        programs.append(asyncio.ensure_future(_caller(world, one, Random(one.number), within_s=0.01)))

    world.ask = ask
    done = asyncio.Event()
    if TURNS in names:
        await _short_jobs_turn_long(world, Random(rng.random()))
    around = asyncio.ensure_future(look_around(world, Random(rng.random()), names, done))
    if rng.random() < 0.15:
        await asyncio.sleep(rng.random() * 10.0)
        await purge(world, rng, rng.choice(names), requests)
    await breaking
    await _mended(world)
    in_line_s = LONG["run_s"] * sum(LONG in one.plan for one in requests)  # all may wait for one device
    await _within(world, CALLERS_S + in_line_s, asyncio.gather(*programs), "the callers")
    done.set()
    await _within(world, CALM_S, around, "whoever looks around")
    await _ends(world, requests)
    idle.cancel()
    await _calm(world)
    await _accounts(world, requests, names)
    world.witness.ledger.check()
    await _webhooks_sent(world, requests)
    await _tidy(world)
    if _objects(world) or rng.random() < 0.2:
        await _a_week_later(world)


def _endpoints(world: World, rng: Random) -> None:
    most, again = rng.choice([1, 3, 3]), rng.choice([0, 0, 2])
    worn = (None, 1, 4)[world.seed % 3]  # jobs of one process
    needed = (WEIGHTS,) if world.seed % 4 == 1 else ()
    kept = {"handler_retries": again, "max_jobs": worn, "weights": needed}
    world.add_endpoint("echo", workers_min=1, workers_max=most, **kept)
    if pair := rng.random() < 0.5:
        two = {"concurrency": 2, "idle_timeout_s": 2, "max_attempts": 5, "max_jobs": worn}
        world.add_endpoint("pair", workers_min=0, workers_max=2, **two)
    if world.seed % 5 < 2:
        # Where a host was killed, two devices are left: a third endpoint gets one once another's is idle.
        world.add_endpoint(TURNS, workers_min=0 if pair else 1, workers_max=3)
    if rng.random() < 0.2:
        world.starts["echo"] = Start(ready_s=2.0)


async def _short_jobs_turn_long(world: World, rng: Random) -> None:
    """Many short jobs, of which some lie ahead of a worker; some take long, or kill their worker."""
    await asyncio.sleep(rng.random() * 10.0)
    breaks_often = rng.random() < 0.3
    for _ in range(rng.choice([1, 2])):
        for _ in range(4):  # how long they take is learnt
            world.ask([SHORT], endpoint=TURNS)
            await asyncio.sleep(0.05)
        for _ in range(rng.choice([8, 24])):
            script = rng.choice([SHORT, SHORT, SHORT, SHORT, LONG, {**SHORT, "exit": -11}])
            world.ask([script, SHORT], 100.0, endpoint=TURNS)
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.01]))
            if breaks_often and rng.random() < 0.2:
                world.network.drop(rng.choice(hosts_with_waiting(world) or world.hosts).name)
        await asyncio.sleep(rng.random() * 4.0)


async def _caller(world: World, request: Request, rng: Random, within_s: float = 12.0) -> None:
    caller = Caller(world, request, rng)
    await caller.pause(within_s)
    job = await caller.submit()
    if job is not None:
        await asyncio.gather(*(getattr(Caller(world, request, Random(rng.random())), name)(job)
                               for name in request.manner))  # fmt: skip


async def _mended(world: World) -> None:
    mend(world)
    await world.start_control()
    for host in world.hosts:
        if host.name != host.node:
            world.kill_agent(host)
        else:
            world.witness.unwell(host.name)
            if host.wanted:
                world.start_agent(host)
    if world.witness.poisoned_reports:
        await _reconnect(world)


async def _reconnect(world: World) -> None:
    """What was lost with a poisoned report comes back when its node says what it holds."""
    await asyncio.sleep(5.0)
    for host in world.hosts:
        world.network.drop(host.name)


async def _within(world: World, seconds: float, work: Any, who: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        waiting = [tale for tale in world.witness.tales.values() if not _over(tale)]
        cluster = list(world.plane.cluster.workers.values()) if world.plane else []
        world.witness.fail(
            f"{who} were not done after {seconds:.0f} s; not ended: {waiting}; the cluster: {cluster}"
        )


def _over(tale: Tale) -> bool:
    return tale.gone or tale.state in TERMINAL


async def _ends(world: World, requests: list[Request]) -> None:
    witness = world.witness

    async def all_over() -> None:
        while not all(map(_over, witness.tales.values())):  # noqa: ASYNC110
            await asyncio.sleep(2.0)  # virtual time; asked from outside

    await _within(world, CALM_S, all_over(), "jobs")
    witness.check_made()
    for tale in witness.tales.values():
        _plausible(world, tale, requests[tale.request])
    for request in requests:
        made = witness.jobs_of.get(request.number, [])
        if len(made) > 1:
            witness.fail(f"request {request.number} with key {request.key} was made {len(made)} jobs: {made}")
        if request.answered and not made:
            witness.fail(f"request {request.number} was answered, and there is no job of it")


def _plausible(world: World, tale: Tale, request: Request) -> None:
    """Whether a job may have ended so."""
    for end in tale.ends:
        script = request.script(end.attempt) if end.attempt else {}
        error = end.error or ""
        match end.state:
            case "COMPLETED":
                fine = "error" not in script and "exit" not in script
            case "FAILED":
                fine = error == script.get("error") or _is_infrastructure(error)
            case "TIMED_OUT":
                waited = request.sync and request.must_end and "for which /runsync waits" in error
                fine = waited or "ttl" in error or script.get("run_s", 0.0) >= request.timeout_s
            case _:
                fine = request.cancelled or request.purged
        if not fine:
            world.witness.fail(f"{tale.id} ended as {end}, of {request}")


def _is_infrastructure(error: str) -> bool:
    return "gave up after" in error or "uploaded before the job's ttl" in error


async def _calm(world: World) -> None:
    """Every agent is connected and holds nothing, and control's cluster state knows it."""
    witness = world.witness

    async def settled() -> None:
        while not (all(_idle(host) for host in world.hosts) and _nothing_is_busy(world)):  # noqa: ASYNC110
            await asyncio.sleep(1.0)

    try:
        async with asyncio.timeout(CALM_S):
            await settled()
    except TimeoutError:
        held = [(host.name, host.agent.attempts.held(), host.agent.reports._box.items)
                for host in world.hosts if host.up and host.agent is not None]  # fmt: skip
        busy = list(world.plane.cluster.workers.values()) if world.plane else []
        witness.fail(f"no calm after {CALM_S:.0f} s; agents hold {held}; control has {busy}")
    for key in list(witness.running):
        witness.check_run(key)
        witness.fail(f"{key} still runs when all is over")


def _idle(host: Any) -> bool:
    if not host.up:
        return not host.wanted
    agent = host.agent
    return bool(
        agent.reports.empty
        and not agent.attempts.held()
        and not agent.attempts._attempts
        and not host.scratch.folders
        and not host.spawner_jobs
    )


def _nothing_is_busy(world: World) -> bool:
    """Nothing busy, nothing reserved, and every agent that is up is seen."""
    plane = world.plane
    if plane is None:
        return False
    seen = {host.node for host in world.hosts if host.up}
    workers = plane.cluster.workers.values()
    return seen <= set(plane.cluster.nodes) and all(not w.busy and not w.reserved for w in workers)


async def _accounts(world: World, requests: list[Request], names: list[str]) -> None:
    witness = world.witness
    caller = Caller(world, requests[0], Random(0))
    found = dict.fromkeys(("completed", "failed", "cancelled", "retried"), 0)
    for name, value in world.store.writer.raw.execute("SELECT name, value FROM counters").fetchall():
        found[name] = found.get(name, 0) + value
    wanted = {**witness.counts(), "retried": witness.retried}
    if found != wanted:
        witness.fail(f"the counters say {found}; what was seen is {wanted}")
    for name in names:
        health = await caller.insist(lambda plane, n=name: plane.queries.health(named(plane, n)))  # type: ignore[misc]
        if health.in_queue or health.in_progress or health.running:
            witness.fail(f"all is over, and the health of {name} is {health}")


async def _webhooks_sent(world: World, requests: list[Request]) -> None:
    """Every end was told to whoever wanted a webhook, or tried as often as it may be."""
    world.receivers.bad = 0.0
    for _ in range(40):
        if not world.store.writer.raw.execute("SELECT 1 FROM webhooks").fetchone():
            break
        await asyncio.sleep(5.0)
    for tale in world.witness.tales.values():
        world.receivers.check(tale, requests[tale.request], crashes=world.crashes > 0 or world.was_full)


# ---- the object store ---------------------------------------------------------------------------

_NAMED = """
SELECT ref_key FROM inputs WHERE ref_key IS NOT NULL UNION ALL
SELECT ref_key FROM results WHERE ref_key IS NOT NULL UNION ALL
SELECT ref_key FROM chunks WHERE ref_key IS NOT NULL UNION ALL
SELECT ref_key FROM saves WHERE ref_key IS NOT NULL UNION ALL
SELECT input_key FROM webhooks WHERE input_key IS NOT NULL UNION ALL
SELECT output_key FROM webhooks WHERE output_key IS NOT NULL UNION ALL
SELECT key FROM artifacts
"""


def _named(world: World) -> set[str]:
    return {key for (key,) in world.store.writer.raw.execute(_NAMED)}


def _objects(world: World) -> set[str]:
    """Ours: a caller's own bucket is not ours to tidy."""
    return {key for bucket, key in world.shop.blobs if bucket != OWN.bucket}


async def _tidy(world: World) -> None:
    """Once the sweeper had time, every object is named, or goes with the record of a job that is there."""
    for _ in range(30):
        await asyncio.sleep(3.0)
        objects, named = _objects(world), _named(world)
        noted = dict(world.store.writer.raw.execute("SELECT name, not_before FROM leftovers").fetchall())
        astray = {key for key in objects - named if _is_astray(world, key)}
        due = [name for name, at in noted.items() if at <= world.clock()]
        if not due and not astray - noted.keys() and named <= objects:
            return
    world.witness.fail(
        f"not tidy: nothing names {sorted(astray)}, named and gone are {sorted(named - objects)}, "
        f"still to be deleted {due}"
    )


def _is_astray(world: World, key: str) -> bool:
    """Whether it will not even go with its job's record, or should have gone as the job was completed."""
    _, job, rest = key.split("/", 2)
    tale = world.witness.tales.get(job)
    if tale is None or tale.gone:
        return True
    attempt = rest.split("/")[0]
    return tale.state == "COMPLETED" and attempt.isdigit() and int(attempt) < tale.attempt


async def _a_week_later(world: World) -> None:
    """Everything has had its time, and goes soon."""
    world.jump(WEEK_S)
    for _ in range(15):
        await asyncio.sleep(5.0)
        left = world.store.writer.raw.execute("SELECT id, state FROM jobs").fetchall()
        kept = {key for key in _objects(world) if _is_astray(world, key)}
        if not left and not kept:
            return
    world.witness.fail(f"a week later there are still {left} and {sorted(kept)}")
