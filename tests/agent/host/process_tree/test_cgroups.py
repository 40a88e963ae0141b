"""Cgroups of workers: on a folder that stands for the kernel's where the files are what matters, and on the
kernel's own where it is who dies."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from stoker.agent.host.process_tree import cgroups
from stoker.agent.host.process_tree.cgroups import Cgroups, NoCgroups, find_own
from stoker.agent.host.process_tree.tree import life


def a_tree(path: Path, controllers: str = "cpu memory pids") -> Path:
    """Of a kernel with cgroup.kill; a plain folder takes any write, and makes no files by itself."""
    path.mkdir()
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.kill").touch()
    return path


def proc(path: Path, cgroup: str, mounts: str) -> Path:
    path.mkdir()
    (path / "cgroup").write_text(cgroup)
    (path / "mountinfo").write_text(mounts)
    return path


def test_its_own_cgroup_is_found(tmp_path: Path) -> None:
    (tmp_path / "sys" / "system.slice" / "stoker").mkdir(parents=True)
    mount = f"30 23 0:26 / {tmp_path}/sys rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    other = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    found = proc(tmp_path / "1", "4:memory:/x\n0::/system.slice/stoker\n", other + mount)
    assert find_own(found) == tmp_path / "sys" / "system.slice" / "stoker"
    inside = f"30 23 0:26 /docker/abc {tmp_path}/sys rw - cgroup2 cgroup rw\n"
    assert find_own(proc(tmp_path / "2", "0::/docker/abc\n", inside)) == tmp_path / "sys"
    with pytest.raises(NoCgroups, match="no cgroups of version 2 are mounted"):
        find_own(proc(tmp_path / "3", "4:memory:/x\n", other))
    with pytest.raises(NoCgroups, match="no cgroups of version 2 are mounted"):
        find_own(proc(tmp_path / "4", "0::/elsewhere\n", inside))
    gone = f"30 23 0:26 / {tmp_path}/gone rw - cgroup2 cgroup2 rw\n"
    with pytest.raises(NoCgroups, match="is not writable"):
        find_own(proc(tmp_path / "5", "0::/\n", gone))


def test_limits_are_written_before_anybody_is_in(tmp_path: Path) -> None:
    own = a_tree(tmp_path / "own")
    made = Cgroups(tmp_path / "data", own)
    assert made.path.parent == own
    assert made.path.name.endswith(life())
    worker = made.make("w1.1", {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "5"})
    assert {file.name: file.read_text() for file in worker.path.iterdir()} == {
        "memory.max": "1000",
        "pids.max": "5",
    }, "without swap there is no file for it"
    assert "stoker-" in str(worker.procs)


@pytest.mark.parametrize("others", ["", "1\n"])
def test_limits_are_set_where_no_other_process_is_in_the_cgroup(tmp_path: Path, others: str) -> None:
    own = a_tree(tmp_path / "own")
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n{others}")
    made = Cgroups(tmp_path / "data", own)
    there = {path.relative_to(own).as_posix() for path in own.rglob("*")}
    if others:
        assert made.controllers == frozenset()
        assert not {path for path in there if path.endswith("subtree_control")}, "it would bar the workers"
    else:
        assert (own / "stoker-agent" / "cgroup.procs").read_text() == "0"
        assert {"cgroup.subtree_control", f"{made.path.name}/cgroup.subtree_control"} <= there


def test_cgroups_that_nobody_may_enter_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "LEFT_S", 0)
    own = a_tree(tmp_path / "own", controllers="")
    made = Cgroups(tmp_path / "data", own)
    (made.path / "cgroup.type").write_text("domain invalid\n")
    with pytest.raises(NoCgroups, match=r"own are domain invalid: no process may enter them"):
        Cgroups(tmp_path / "data", own)


def test_a_kernel_that_kills_no_cgroups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with pytest.raises(NoCgroups, match=r"the kernel has no cgroup\.kill"):
        Cgroups(tmp_path / "data", tmp_path / "own")
    assert not list((tmp_path / "own").iterdir())


def test_a_tree_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(NoCgroups, match="cannot be written to: No such file or directory"):
        Cgroups(tmp_path / "data", tmp_path / "nowhere")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """This process's, which it may step aside from."""
    try:
        own = find_own()
        Cgroups(tmp_path / "probe", own).close()
    except NoCgroups as why:
        pytest.skip(f"no cgroups here: {why}")
    return own


CHILDREN = """
setsid sleep 100 & setsid setsid sleep 100 & sleep 100 & echo started; exec sleep 100
"""


def test_one_write_kills_all_and_the_folder_goes(tmp_path: Path, own: Path) -> None:
    made = Cgroups(tmp_path / "data", own)
    cgroup = made.make("w1.1", {})
    joined = f"echo 0 > {cgroup.procs}; {CHILDREN}"
    process = subprocess.Popen(["bash", "-c", joined], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    while len(pids := cgroup.pids()) != 4:  # a setsid that leads its group forks, and ends a moment later
        pass
    assert cgroup.populated
    assert not cgroup.remove(), "somebody is in"
    fds = [os.pidfd_open(pid) for pid in pids]
    cgroup.kill()
    assert process.wait() == -signal.SIGKILL
    for fd in fds:
        os.close(fd)
    process.stdout.read()  # whose other ends the dead held
    process.stdout.close()
    made.close()
    while made.path.exists():  # the kernel says that they are gone a moment after their pipes are closed
        made.close()


def test_what_an_earlier_agent_left_is_killed_and_removed(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "LEFT_S", 60)
    earlier, other = Cgroups(tmp_path / "data", own), Cgroups(tmp_path / "other", own)
    earlier.close()
    left = earlier.path.with_name(earlier.path.name + "0")  # of another life
    (left / "w1.1" / "made by the worker").mkdir(parents=True)
    inner = left / "w1.1" / "made by the worker" / "cgroup.procs"
    process = subprocess.Popen(["bash", "-c", f"echo 0 > '{inner}'; echo in; exec sleep 100"], stdout=-1)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    process.stdout.close()
    later = Cgroups(tmp_path / "data", own)
    assert later.left == 1
    assert not left.exists()
    assert other.path.exists(), "another folder's"
    assert process.wait() == -signal.SIGKILL
    later.close()
    other.close()
    assert not later.path.exists()
