"""The resources of local workers while any process of theirs lives: a user, a home, a cgroup, a sandbox plan.

    take ── user ── home ── volume's folder ── plan (agent.host.sandbox.isolation) ── cgroup ──> Allocation
    give_back, when nothing of the worker is left: home and cgroup removed, the user free for the next

A zygote holds a user and a home, too. The user is its workers' as well; the home stays as long as one of
them lives, for what its imports wrote down of it is theirs: some look there for their caches. What an earlier
agent of the same folder left goes at the start.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

import stoker
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.process_tree.cgroups import Cgroup, Cgroups
from stoker.agent.host.process_tree.tree import kill_all, of_users
from stoker.agent.host.sandbox.isolation import (
    Host,
    SandboxPaths,
    SandboxPlan,
    User,
    decide,
    groups,
    unforkable,
)
from stoker.agent.host.sandbox.user_orphans import remove_orphans
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.host.storage import volumes
from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.workers.processes.environment import package_folder, present, working_folder
from stoker.agent.workers.processes.program_folder import own_folder
from stoker.agent.workers.processes.running_process import Confinement
from stoker.agent.workers.processes.spawn_request import Program
from stoker.wire.messages import WorkerSpec


class Allocation(Struct, frozen=True):
    """The resources that a process holds. It starts in `folder`. `shared` is its zygote's home."""

    worker: str
    user: User | None
    home: Path
    folder: Path
    plan: SandboxPlan
    cgroup: Cgroup | None = None
    shared: Path | None = None


class WorkerResources:
    """The resources of workers: users, homes, cgroups. `folder` is the agent's data folder. `writable` are
    folders outside the homes that workers may write to in a sandbox."""

    def __init__(
        self,
        folder: Path,
        users: WorkerUsers,
        host: Host,
        cgroups: Cgroups | None,
        writable: Sequence[Path],
    ) -> None:
        self._folder, self._users, self._host, self._cgroups = folder, users, host, cgroups
        self._writable = tuple(writable)
        self._taken = 0
        self._home_users: Counter[Path] = Counter()

    def clear(self) -> None:
        """Clears at the agent's start: removes what an earlier agent left."""
        if self._host.user_range is not None:
            kill_all(of_users(*self._host.user_range))
            remove_orphans(*self._host.user_range)
        remove_tree(self._folder / "homes")

    def take(
        self,
        spec: WorkerSpec,
        program: Program | None,
        undo: contextlib.ExitStack,
        zygote: Allocation | None,
    ) -> Allocation:
        """Allocates the resources of one process; `undo` gives them back. A forked one has its zygote's
        user."""
        user = self._user(spec.worker, zygote)
        undo.callback(self._users.free, spec.worker, user)
        home = self._home(spec.worker, user)
        undo.callback(self._leave, home)
        shared = None if zygote is None else zygote.home
        if shared is not None:
            self._home_users[shared] += 1
            undo.callback(self._leave, shared)
        folder = self._folder_of(spec, home, program, user)
        plan = decide(
            self._host,
            spec,
            self._paths(home, folder, program),
            user=user,
            volume=self._volume(spec),
            forked=zygote is not None,
        )
        return Allocation(spec.worker, user, home, folder, plan, self._cgroup(home.name, plan, undo), shared)

    def _user(self, worker: str, zygote: Allocation | None) -> User | None:
        if zygote is not None and zygote.user is not None:
            return self._users.join(worker, zygote.user)
        return self._users.take(worker)

    def unforkable(self, spec: WorkerSpec) -> str:
        """Returns why a fork would not do for this worker on this host; "" where it would."""
        return unforkable(self._host, spec)

    def _paths(self, home: Path, folder: Path, program: Program | None) -> SandboxPaths:
        source = folder if program is None or program.folder == Path() else program.folder
        others = [path for path in self._writable if not self._users.other or _open_to_all(path)]
        writable = (home, self._folder / "scratch", *others)
        return SandboxPaths(
            str(folder),
            tuple(str(path) for path in writable if path.is_dir()),
            (str(source), package_folder(), sys.prefix, *_parts_of_the_package()),
        )

    def _folder_of(self, spec: WorkerSpec, home: Path, program: Program | None, user: User | None) -> Path:
        try:
            if program is None:
                return working_folder(spec.handler, home)
            if program.folder == Path():
                return home
            return own_folder(present(program.folder), home, user)
        except OSError as error:
            raise SpawnFailed(f"the worker for {spec.handler} cannot be started: {error}") from None

    def _volume(self, spec: WorkerSpec) -> str:
        """Returns the volume's folder, which its workers' group may write to; "" without a volume."""
        if not spec.volume:
            return ""
        root = Path(self._host.volume_root) if self._host.volume_root else None
        return str(volumes.shared(root, spec.volume, self._users.group_of(spec.volume)))

    def _cgroup(self, name: str, plan: SandboxPlan, undo: contextlib.ExitStack) -> Cgroup | None:
        if self._cgroups is None or plan.cgroup is None:
            return None
        try:
            made = self._cgroups.make(name, plan.cgroup)
        except OSError as error:
            raise SpawnFailed(f"no cgroup for the worker: {error}") from None
        undo.callback(made.remove)
        return made

    def bounds(self, spec: WorkerSpec, kept: Allocation, *, forked: bool) -> Confinement:
        return Confinement(
            cgroup=kept.cgroup,
            uid=kept.user[0] if kept.user is not None and self._users.own and not forked else None,
            wrapped=bool(kept.plan.wrapper),
            memory_bytes=None if spec.limits is None else spec.limits.memory_bytes,
            watched=kept.plan.watched is not None,
        )

    def _home(self, worker: str, user: User | None) -> Path:
        """Makes the process's HOME. A worker that is started again gets another."""
        self._taken += 1
        home = self._folder / "homes" / f"{worker}.{self._taken}"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if user is not None:
                home.parent.chmod(0o711)
                os.chown(home, *user)
        except OSError as error:
            raise SpawnFailed(f"no home for worker {worker}: {error}") from None
        self._home_users[home] += 1
        return home

    def _leave(self, home: Path) -> None:
        self._home_users[home] -= 1
        if not self._home_users[home]:
            del self._home_users[home]
            remove_tree(home)

    def for_zygote(self, spec: WorkerSpec) -> tuple[Allocation, Callable[[], None]]:
        """Returns what a zygote holds, and the function that gives it back. Raises SpawnFailed."""
        bare = spec.worker.rstrip("-")
        user = self._users.take(bare)
        try:
            home = self._home(bare, user)
        except BaseException:
            self._users.free(bare, user)
            raise
        plan = SandboxPlan(user=user, groups=groups(self._host, spec), rlimits={"CORE": (0, 0)})
        kept = Allocation(spec.worker, user, home, home, plan)
        return kept, lambda: self.give_back(replace(kept, worker=bare))

    def give_back(self, kept: Allocation) -> None:
        self._leave(kept.home)
        if kept.shared is not None:
            self._leave(kept.shared)
        if kept.cgroup is not None:
            kept.cgroup.remove()
        self._free(kept.worker, kept.user)

    def _free(self, worker: str, user: User | None) -> None:
        self._users.free(worker, user)
        if user is not None and self._users.own and not self._users.in_use(user):
            kill_all(of_users(user[0], user[0]))  # of a zygote's: those of workers were looked for
            remove_orphans(user[0], user[0])


def _open_to_all(path: Path) -> bool:
    """Returns whether any user may pass into this path. A sandbox cannot be made with what a worker could not
    reach."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in (path, *path.parents) if above.exists())


def _parts_of_the_package() -> list[str]:
    """Returns the real path of the package and its parts: in a checkout its parts are links that lead out of
    it."""
    package = Path(stoker.__file__).parent
    return [str(package), *sorted(str(part.resolve()) for part in package.iterdir() if part.is_dir())]
