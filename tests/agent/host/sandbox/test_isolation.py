"""Which worker is shut in with what, on which host; and what the node's record says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.isolation import Host, SandboxPaths, decide, facts, unforkable
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.wire.messages import WorkerLimits, WorkerSpec

SPEC = WorkerSpec("w", "e", 1, "/srv/handler.py:run")
PATHS = SandboxPaths("/srv", ("/data/homes/w.1",), ("/srv", "/tmp/handlers"))
WRAPS = Host(
    user_range=(100_000, 100_999),
    sandbox="auto",
    bubblewrap="/usr/bin/bwrap",
    no_bubblewrap="",
    no_own_proc="",
    top=(("bin", "usr/bin"), ("dev", ""), ("proc", ""), ("runpod-volume", ""), ("tmp", ""), ("usr", "")),
)
ALL = WorkerLimits(memory_bytes=1 << 30, cpus=1.5, pids=64, files=512)


def test_a_bare_host_gives_what_needs_nothing() -> None:
    plan = decide(Host(), SPEC, PATHS)
    assert (plan.user, plan.wrapper, plan.mount, plan.cgroup, plan.watched) == (None, (), None, None, None)
    assert plan.rlimits == {"CORE": (0, 0)}


def test_open_files_are_never_above_the_agents_own_limit() -> None:
    assert decide(Host(nofile=100), replace(SPEC, limits=ALL), PATHS).rlimits["NOFILE"] == (100, 100)
    assert decide(Host(files=(7, 9)), SPEC, PATHS).rlimits["NOFILE"] == (7, 9), "not the agent's raised one"
    assert decide(Host(), replace(SPEC, limits=ALL), PATHS).rlimits["NOFILE"] == (512, 512)


def test_processes_are_limited_by_user_only_where_the_user_is_its_own() -> None:
    limited = replace(SPEC, limits=ALL)
    assert "NPROC" not in decide(Host(), limited, PATHS).rlimits
    assert "NPROC" not in decide(Host(user=(1000, 1000)), limited, PATHS).rlimits
    own = Host(user_range=(1000, 1999))
    assert decide(own, limited, PATHS).rlimits["NPROC"] == (64, 64)
    assert "NPROC" not in decide(own, limited, PATHS, forked=True).rlimits, "it has its zygote's"


def test_a_limit_of_processes_that_only_a_user_of_its_own_keeps_is_not_lost_by_a_fork() -> None:
    limited, own = replace(SPEC, limits=ALL), Host(user_range=(1000, 1999))
    assert unforkable(own, limited).startswith("its limit of processes needs a cgroup or a user")
    assert unforkable(replace(own, controllers=frozenset({"pids"})), limited) == ""
    assert unforkable(own, replace(SPEC, limits=WorkerLimits(files=512))) == ""
    assert unforkable(own, SPEC) == unforkable(Host(), limited) == ""


def test_memory_is_the_cgroups_where_it_can_be_and_the_agents_else() -> None:
    limited = replace(SPEC, limits=ALL)
    kept = decide(Host(no_cgroups="", controllers=frozenset({"memory", "cpu"})), limited, PATHS)
    assert kept.cgroup == {
        "memory.max": "1073741824",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
    }
    assert kept.watched is None
    bare = decide(Host(no_cgroups=""), limited, PATHS)
    assert (bare.cgroup, bare.watched) == ({}, 1 << 30)
    assert not {"AS", "DATA", "RSS"} & bare.rlimits.keys()


def test_the_sandbox_of_a_worker() -> None:
    plan = decide(WRAPS, SPEC, PATHS, volume="/volumes/v")
    wrapper = " ".join(plan.wrapper)
    assert wrapper.startswith("/usr/bin/bwrap --die-with-parent")
    for part in (
        "--symlink usr/bin /bin --ro-bind /usr /usr --unshare-pid --proc /proc --dev-bind /dev /dev",
        "--dev-bind /dev /dev --tmpfs /tmp",
        "--ro-bind /tmp/handlers /tmp/handlers --bind /data/homes/w.1 /data/homes/w.1",
        "--bind /volumes/v /runpod-volume --remount-ro / --chdir /srv --",
    ):
        assert part in wrapper
    assert "--bind /proc" not in wrapper
    masked = " ".join(decide(replace(WRAPS, no_own_proc="not permitted"), SPEC, PATHS).wrapper)
    assert "--bind /proc /proc" in masked
    assert "--unshare-pid" not in masked
    assert wrapper.index("--tmpfs /tmp") < wrapper.index("/tmp/handlers")
    assert (plan.mount, plan.volume_path) == (None, "/runpod-volume")


def test_who_is_wrapped() -> None:
    def wrapped(host: Host, *, forked: bool = False) -> bool:
        return bool(decide(host, SPEC, PATHS, forked=forked).wrapper)

    assert wrapped(WRAPS)
    assert wrapped(replace(WRAPS, user_range=None, user=(65534, 65534)))
    assert not wrapped(WRAPS, forked=True)
    assert not wrapped(replace(WRAPS, user_range=None)), "what an operator's handlers write to today"
    assert wrapped(replace(WRAPS, user_range=None, sandbox="on"))
    assert not wrapped(replace(WRAPS, sandbox="off"))
    assert not wrapped(replace(WRAPS, no_bubblewrap="not installed"))


def test_a_volume_is_mounted_where_possible_and_named_by_variable_otherwise() -> None:
    mounts = Host(no_mounts="", no_mounts_in_a_fork="the kernel says no")
    plan = decide(mounts, SPEC, PATHS, volume="/v/a")
    assert plan.mount is not None
    assert (plan.mount.source, plan.volume_path) == ("/v/a", "/runpod-volume")
    forked = decide(mounts, SPEC, PATHS, volume="/v/a", forked=True)
    assert (forked.mount, forked.volume_path) == (None, "/v/a")
    assert decide(Host(), SPEC, PATHS, volume="/v/a").volume_path == "/v/a"
    assert decide(mounts, SPEC, PATHS).volume_path == ""


HOSTS = st.builds(
    Host,
    user=st.none() | st.just((65534, 65534)),
    user_range=st.none() | st.just((1000, 1999)),
    sandbox=st.sampled_from(["auto", "on", "off"]),
    bubblewrap=st.just("/usr/bin/bwrap"),
    no_bubblewrap=st.sampled_from(["", "not installed"]),
    no_own_proc=st.sampled_from(["", "not permitted"]),
    controllers=st.sets(st.sampled_from(["memory", "pids", "cpu", "io"])).map(frozenset),
    no_cgroups=st.sampled_from(["", "not mounted"]),
    no_mounts=st.sampled_from(["", "the kernel says no"]),
    no_mounts_in_a_fork=st.sampled_from(["", "the kernel says no"]),
    volume_root=st.sampled_from(["", "/volumes"]),
)


@given(host=HOSTS, forked=st.booleans(), volume=st.sampled_from(["", "/volumes/v"]))
def test_the_record_shows_what_the_plan_does(host: Host, forked: bool, volume: str) -> None:
    plan = decide(host, SPEC, PATHS, volume=volume, forked=forked)
    found = facts(host)
    assert all(value.startswith(("yes: ", "no: ")) or value == "yes" for value in found.values()), found
    assert found["isolation.bubblewrap"].startswith("yes") == bool(plan.wrapper or (forked and host.wraps))
    assert found["isolation.cgroups"].startswith("yes") == (plan.cgroup is not None)
    assert found["isolation.user"].startswith("yes") == host.other_user
    assert plan.rlimits["CORE"] == (0, 0)
    if volume and not forked and host.volume_root:
        assert ("at /runpod-volume" in found["volumes"]) == (plan.volume_path == "/runpod-volume")
    assert not (plan.mount and plan.wrapper)


# ---- whom workers run as ----------------------------------------------------------------------


def test_the_same_user_for_all_or_none() -> None:
    assert WorkerUsers().take("w") is None
    named = WorkerUsers((65534, 65534))
    assert named.take("w1") == named.take("w2") == named.of("w3") == (65534, 65534)
    named.free("w1", (65534, 65534))
    assert (named.other, named.own) == (True, False)


def test_a_user_that_is_shared_is_free_when_the_last_has_gone() -> None:
    users = WorkerUsers(between=(1000, 1000))
    zygote = users.take("zygote-1")
    assert zygote is not None
    users.join("w1", zygote)
    users.free("zygote-1", zygote)
    assert users.in_use(zygote)
    with pytest.raises(SpawnFailed, match="all worker users 1000-1000 are taken"):
        users.take("w2")
    users.free("w1", zygote)
    assert users.take("w2") == zygote


def test_a_worker_that_is_started_again_has_another_user_and_its_files_too() -> None:
    users = WorkerUsers(between=(1000, 1001))
    first, second = users.take("w"), users.take("w")
    assert first != second
    assert users.of("w") == second
    users.free("w", first)
    assert users.of("w") == second


@given(st.lists(st.integers(0, 5)))
def test_no_two_living_workers_share_a_user(events: list[int]) -> None:
    users, living = WorkerUsers(between=(1000, 1003)), {}
    for event in events:
        name = f"w{event}"
        if name in living:
            users.free(name, living.pop(name))
        elif len(living) == 4:
            with pytest.raises(SpawnFailed):
                users.take(name)
        else:
            living[name] = users.take(name)
        assert len(set(living.values())) == len(living)
        assert all(users.of(one) == user for one, user in living.items())


def test_a_sandbox_has_shared_memory_of_its_own_as_large_as_the_limit() -> None:
    host = Host(sandbox="on", bubblewrap="bwrap", no_bubblewrap="")
    plain = decide(host, SPEC, PATHS).wrapper
    assert "--unshare-ipc" in plain
    at = plain.index("/dev/shm")
    assert plain[at - 1] == "--tmpfs"
    assert at > plain.index("--dev-bind")
    assert "--size" not in plain
    sized = decide(replace(host, sizes_tmpfs=True), replace(SPEC, limits=ALL), PATHS).wrapper
    at = sized.index("/dev/shm")
    assert sized[at - 3 : at] == ("--size", str(ALL.memory_bytes), "--tmpfs")
