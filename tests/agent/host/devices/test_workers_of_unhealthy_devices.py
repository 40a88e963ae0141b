"""Devices that become unhealthy, and memory that is not freed: what an agent stops, starts and reports."""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from stoker.agent.host.devices.health import Answered, Lost, Missed
from stoker.agent.host.process_tree.memory import WorkerMemory
from stoker.wire.messages import Device, PodSpec

GIB = 1 << 30
GPUS = (Device("GPU-0", "gpu", "H200", 0), Device("GPU-1", "gpu", "H200", 1))
LONG = b'{"run_s": 500}'
STUCK = b'{"run_s": 500, "ignore_cancel": true, "ignore_term": true}'


def last_problem(host, uuid="GPU-0"):
    """What the last beat with samples said of the device."""
    samples = [s for _, beat in host.control.beats for s in beat.samples if s.uuid == uuid]
    return samples[-1].ill if samples else ""


def on(a_worker, n, **more):
    return a_worker(f"w{n}", devices=(f"GPU-{n}",), **more)


def test_an_xid_ends_what_runs_there_at_once_and_nothing_elsewhere(play, a_worker, a_job):
    async def story(host):
        loop = asyncio.get_running_loop()
        await host.control.ready(on(a_worker, 0), on(a_worker, 1))
        await host.control.assign(a_job("j0", LONG, on="w0"), a_job("j1", b'{"run_s": 1}', on="w1"))
        await host.until(lambda: len(host.agent.attempts.held()) == 2)
        at, beats = loop.time(), len(host.control.beats)
        host.sampler.report_xid("GPU-0", 79)
        outcome = await host.control.outcome("j0")
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert "GPU-0 is unhealthy: Xid 79" in outcome.error
        await host.control.until(lambda: len(host.control.beats) > beats)
        assert loop.time() - at < 0.5  # neither the ladder nor the next beat was waited for
        assert last_problem(host).startswith("Xid 79")
        assert last_problem(host, "GPU-1") == ""
        assert (await host.control.outcome("j1")).end == "completed"

    play(story, devices=GPUS)


def test_nothing_is_started_on_an_unhealthy_device(play, a_worker):
    async def story(host):
        host.sampler.health["GPU-0"] = Lost("the GPU is lost")
        await host.control.until(lambda: last_problem(host))
        await host.control.desire(on(a_worker, 0), on(a_worker, 1))
        await host.control.worker_is("w1", "ready")
        await asyncio.sleep(100)
        assert [process.spec.worker for process in host.spawner.spawned] == ["w1"]

    play(story, devices=GPUS)


def test_a_driver_that_answers_again_gets_its_workers_back(play, a_worker):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        host.sampler.health["GPU-0"] = Missed()
        await host.control.worker_is("w0", "starting")
        assert last_problem(host)
        assert not host.spawner.processes
        del host.sampler.health["GPU-0"]
        await host.control.worker_is("w0", "ready")
        assert last_problem(host) == ""

    play(story, devices=GPUS)


def test_a_program_s_own_fault_changes_nothing(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await host.control.assign(a_job("j0", b'{"run_s": 20}', on="w0"))
        for number in (13, 31, 43, 45):
            host.sampler.report_xid("GPU-0", number)
        assert (await host.control.outcome("j0")).end == "completed"
        assert len(host.spawner.spawned) == 1

    play(story, devices=GPUS)


def test_an_xid_of_no_list_makes_it_look_at_once(play):
    async def story(host):
        await host.control.until(lambda: host.control.stream is not None)
        await asyncio.sleep(0.5)
        at = asyncio.get_running_loop().time()
        host.sampler.health["GPU-0"] = Answered(action=1)
        host.sampler.report_xid("GPU-0", 154)
        await host.control.until(lambda: last_problem(host) == "the driver asks for a reset")
        assert asyncio.get_running_loop().time() - at < 0.5

    play(story, devices=GPUS)


def test_a_hello_reports_unhealthy_devices(play):
    async def story(host):
        host.sampler.health["GPU-1"] = Lost("the GPU is lost")
        await host.until(lambda: host.agent.watch.samples()[1].ill)
        await host.control.until(lambda: host.control.stream is not None)
        host.control.stream.end("cut")
        await host.control.until(lambda: len(host.control.hellos) > 1)
        assert [sample.ill for sample in host.control.hellos[-1].samples] == ["", "the GPU is lost"]

    play(story, devices=GPUS)


def test_the_first_hello_already_knows(play):
    async def story(host):
        host.sampler.health["GPU-0"] = Lost("it could not be opened")
        await host.control.until(lambda: host.control.hellos)
        assert host.control.hellos[0].samples[0].ill == "it could not be opened"

    play(story, devices=GPUS)


def test_a_worker_that_hangs_in_the_driver_keeps_no_job(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await host.control.assign(a_job("j0", STUCK, on="w0"))
        await host.holds_work()
        process = host.spawner.of("w0")
        process.kill = process.terminate = lambda: None
        host.sampler.report_xid("GPU-0", 119)
        outcome = await host.control.outcome("j0")
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert not process.gone
        del process.kill

    play(story, devices=GPUS)


# ---- memory -------------------------------------------------------------------------------------------


def test_the_next_process_waits_until_the_memory_is_back(play, a_worker):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        host.sampler.memory["GPU-0"] = 40 * GIB
        host.spawner.of("w0").exit(-9, "killed")
        await host.control.worker_is("w0", "starting")
        await asyncio.sleep(3)
        assert len(host.spawner.spawned) == 1
        host.sampler.memory["GPU-0"] = 1
        await host.control.worker_is("w0", "ready")
        assert not any(s.ill for _, beat in host.control.beats for s in beat.samples)

    play(story, devices=GPUS)


def test_memory_that_is_not_freed_makes_the_device_unhealthy_until_it_is(play, a_worker):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        host.sampler.memory["GPU-0"] = 12 * GIB
        host.spawner.of("w0").exit(-9, "killed")
        await host.control.until(lambda: last_problem(host))
        assert last_problem(host) == "12.0 GiB still in use after its worker ended"
        assert len(host.spawner.spawned) == 1
        host.sampler.memory["GPU-0"] = 1
        await host.control.worker_is("w0", "ready")
        assert last_problem(host) == ""

    play(story, devices=GPUS)


def test_what_a_host_has_in_use_holds_up_no_gpu_that_uses_its_memory(play, a_worker):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        host.sampler.memory["GPU-0"] = 40 * GIB
        await asyncio.sleep(11)
        host.spawner.of("w0").exit(-9, "killed")
        await host.control.worker_is("w0", "ready")
        samples = [s for _, beat in host.control.beats for s in beat.samples if s.uuid == "GPU-0"]
        assert samples[-1].memory_used == 40 * GIB
        assert not any(s.ill for s in samples)

    play(story, devices=(replace(GPUS[0], name="GB10", unified_memory=True), GPUS[1]))


def test_a_cancelled_job_that_leaves_nothing_keeps_its_worker(play, a_worker, a_job):
    async def story(host):
        host.sampler.memory["GPU-0"] = 0
        await host.control.ready(on(a_worker, 0))
        host.sampler.memory["GPU-0"] = 20 * GIB
        await asyncio.sleep(6)  # a look, while it is idle
        await host.control.assign(a_job("j0", LONG, on="w0"))
        await host.holds_work()
        at, measured = asyncio.get_running_loop().time(), host.sampler.measured
        await host.control.cancel("j0")
        assert (await host.control.outcome("j0")).end == "cancelled"
        assert host.sampler.measured == measured + 1
        assert asyncio.get_running_loop().time() - at < 0.1
        await host.control.assign(a_job("j1", on="w0"))
        assert (await host.control.outcome("j1")).end == "completed"
        assert len(host.spawner.spawned) == 1

    play(story, devices=GPUS)


def test_what_a_stopped_job_left_is_measured_although_another_waits(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await asyncio.sleep(6)
        await host.control.assign(a_job("j0", LONG, on="w0"))
        await host.holds_work()
        host.spawner.of("w0").pause()
        await host.control.cancel("j0")
        await asyncio.sleep(0.01)
        await host.control.assign(a_job("j1", on="w0"))
        await host.until(lambda: len(host.agent.attempts.held()) == 2)
        measured = host.sampler.measured
        host.spawner.of("w0").resume()
        assert (await host.control.outcome("j0")).end == "cancelled"
        assert host.sampler.measured == measured + 1
        assert (await host.control.outcome("j1")).end == "completed"

    play(story, devices=GPUS)


def test_a_worker_whose_stopped_job_leaves_memory_is_replaced(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await asyncio.sleep(1)
        await host.control.assign(a_job("j0", b'{"run_s": 500, "ignore_term": true}', on="w0"))
        await host.holds_work()
        host.sampler.memory["GPU-0"] = 3 * GIB + 1
        await asyncio.sleep(6)  # a look while it runs says nothing
        await host.control.cancel("j0")
        assert (await host.control.outcome("j0")).end == "cancelled"
        host.sampler.memory["GPU-0"] = 1
        stopping = [news for news in host.control.news("w0") if news.state == "stopping"]
        assert stopping[0].reason == "a stopped job left 3.0 GiB of device memory in use"
        await host.until(lambda: len(host.spawner.spawned) == 2)

    play(story, devices=GPUS)


def test_stopped_jobs_cannot_raise_the_level_bit_by_bit(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        for n in range(1, 3):
            await asyncio.sleep(6)  # a look, while it is idle
            await host.control.assign(a_job(f"j{n}", LONG, on="w0"))
            await host.holds_work()
            host.sampler.memory["GPU-0"] = n * GIB * 9 // 10
            await host.control.cancel(f"j{n}")
            assert (await host.control.outcome(f"j{n}")).end == "cancelled"
        assert [news.state for news in host.control.news("w0")][:2] == ["ready", "stopping"]
        host.sampler.memory["GPU-0"] = 1
        await host.until(lambda: len(host.spawner.spawned) == 2)

    play(story, devices=GPUS)


def test_a_slow_look_that_began_while_a_job_ran_raises_no_level(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await asyncio.sleep(1)
        await host.control.assign(a_job("j0", b'{"run_s": 20}', on="w0"))
        await host.holds_work()
        host.sampler.memory["GPU-0"] = 9 * GIB
        read, began, answered = host.sampler.read, asyncio.Event(), asyncio.Event()

        async def slowly():
            found = await read()
            began.set()
            await answered.wait()
            return found

        host.sampler.read = slowly
        await began.wait()
        assert (await host.control.outcome("j0")).end == "completed"
        answered.set()
        await asyncio.sleep(1)  # it is over, and the next one has not begun
        host.sampler.memory["GPU-0"] = 5 * GIB
        await host.control.assign(a_job("j1", LONG, on="w0"))
        await host.holds_work()
        await host.control.cancel("j1")
        stopping = await host.control.worker_is("w0", "stopping")
        assert stopping.reason == "a stopped job left 5.0 GiB of device memory in use"
        host.sampler.memory["GPU-0"] = 1
        await host.until(lambda: len(host.spawner.spawned) == 2)

    play(story, devices=GPUS)


def test_memory_that_comes_back_in_time_is_waited_for(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await asyncio.sleep(1)
        await host.control.assign(a_job("j0", LONG, on="w0"))
        await host.holds_work()
        host.sampler.memory["GPU-0"] = 3 * GIB
        await host.control.cancel("j0")
        await asyncio.sleep(1)
        assert host.agent.attempts.held()
        host.sampler.memory["GPU-0"] = 1
        assert (await host.control.outcome("j0")).end == "cancelled"
        assert len(host.spawner.spawned) == 1

    play(story, devices=GPUS)


def test_a_job_that_ends_by_itself_asks_nothing(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(on(a_worker, 0))
        await asyncio.sleep(1)
        measured = host.sampler.measured
        host.sampler.memory["GPU-0"] = 60 * GIB
        for n in range(5):
            await host.control.assign(a_job(f"j{n}", on="w0"))
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        assert host.sampler.measured == measured

    play(story, devices=GPUS)


def test_a_processor_has_no_gate(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.sampler.memory["cpu-0"] = 500 * GIB
        host.spawner.of("w1").exit(-9, "killed")
        await host.control.worker_is("w1", "starting")
        await host.control.worker_is("w1", "ready")
        assert host.sampler.measured == 0

    play(story)


# ---- several devices of one worker, and several workers of one device


def test_a_worker_with_several_devices_waits_for_all_of_them(play, a_worker):
    async def story(host):
        host.sampler.health["GPU-1"] = Missed()
        await asyncio.sleep(30)
        await host.control.desire(a_worker("both", devices=("GPU-0", "GPU-1")))
        await asyncio.sleep(5)
        assert host.spawner.spawned == []
        del host.sampler.health["GPU-1"]
        await host.control.worker_is("both", "ready")

    play(story, devices=GPUS)


def test_a_worker_ends_with_any_of_its_devices(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker("both", devices=("GPU-0", "GPU-1")))
        await host.control.assign(a_job("j0", LONG, on="both"))
        await host.holds_work()
        host.sampler.report_xid("GPU-1", 79)
        assert (await host.control.outcome("j0")).end == "lost"
        await host.until(lambda: not host.spawner.processes)

    play(story, devices=GPUS)


def test_the_memory_of_each_of_a_workers_devices_must_come_back(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker("both", devices=("GPU-0", "GPU-1")))
        host.sampler.memory["GPU-1"] = 12 * GIB
        host.spawner.of("both").exit(-9, "killed")
        await asyncio.sleep(20)
        assert len(host.spawner.spawned) == 1
        host.sampler.memory["GPU-1"] = 1
        await host.control.worker_is("both", "ready")
        assert len(host.spawner.spawned) == 2

    play(story, devices=GPUS)


def test_what_a_stopped_job_left_on_the_second_device_is_seen(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker("both", devices=("GPU-0", "GPU-1")))
        await asyncio.sleep(1)
        await host.control.assign(a_job("j0", b'{"run_s": 500, "ignore_term": true}', on="both"))
        await host.holds_work()
        host.sampler.memory["GPU-1"] = 3 * GIB + 1
        await host.control.cancel("j0")
        assert (await host.control.outcome("j0")).end == "cancelled"
        stopping = [news for news in host.control.news("both") if news.state == "stopping"]
        assert stopping[0].reason == "a stopped job left 3.0 GiB of device memory in use"

    play(story, devices=GPUS)


def test_a_device_that_is_not_there_is_named(play, a_worker):
    async def story(host):
        await asyncio.sleep(1)
        await host.control.desire(a_worker("both", devices=("GPU-0", "GPU-7")))
        news = await host.control.worker_is("both", "starting")
        assert "this node has no device GPU-7" in news.reason

    play(story, devices=GPUS)


def test_a_neighbours_memory_is_no_leftover(play, a_worker, a_job):
    """Two workers share a GPU: the one is killed and starts again, and its stopped jobs cost no worker."""

    async def story(host):
        small = [a_worker(name, devices=("GPU-0",), share=0.5) for name in ("w0", "w1")]
        await host.control.ready(small[0])
        await host.control.ready(*small)
        host.sampler.memory["GPU-0"] = 40 * GIB
        host.spawner.of("w1").exit(-9, "killed")
        await host.control.worker_is("w1", "starting")
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("j0", LONG, on="w0"))
        await host.holds_work()
        host.sampler.memory["GPU-0"] = 60 * GIB
        await host.control.cancel("j0")
        assert (await host.control.outcome("j0")).end == "cancelled"
        assert len(host.spawner.spawned) == 3
        await host.control.desire()
        await host.until(lambda: not host.spawner.processes)
        host.sampler.memory["GPU-0"] = 9 * GIB
        await asyncio.sleep(20)
        assert "still in use" in last_problem(host), "with the last of them the device is measured"

    play(story, devices=GPUS)


def test_growth_of_a_worker_that_shares_is_what_its_own_processes_hold(play):
    async def story(host):
        memory, gpu = WorkerMemory(host.sampler), GPUS[0]
        own, another = os.getpid(), os.getpid() + 1
        host.sampler.memory["GPU-0"] = 40 * GIB
        host.sampler.process_memory = {("GPU-0", own): 3 * GIB, ("GPU-0", another): 9 * GIB}
        assert await memory._of(gpu, [own], True) == 3 * GIB
        assert await memory._of(gpu, [own], False) == 40 * GIB
        assert await memory._of(gpu, [], True) is None, "whose processes are hidden is not guessed at"

    play(story, devices=GPUS)


def test_a_pods_memory_is_no_leftover_of_a_worker_and_is_waited_for_like_one(play, a_worker):
    def pod(wish):
        return PodSpec("p1", 1, wish, "a/b:1", devices=("GPU-0",))

    async def story(host):
        await host.control.ready(on(a_worker, 0))
        host.control.pods = (pod("RUNNING"),)
        await host.control.desire()
        await host.until(lambda: host.pods.containers)
        await asyncio.sleep(5)
        host.sampler.memory["GPU-0"] = 40 * GIB
        await asyncio.sleep(60)
        assert last_problem(host) == ""
        host.control.pods = (pod("EXITED"),)
        await host.control.desire()
        await asyncio.sleep(30)
        await host.control.desire(on(a_worker, 0))
        await asyncio.sleep(30)
        assert "40.0 GiB still in use" in last_problem(host)
        assert len(host.spawner.spawned) == 1
        host.sampler.memory["GPU-0"] = 1
        await host.control.worker_is("w0", "ready")

    play(story, devices=GPUS)
