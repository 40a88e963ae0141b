"""Broken copies of the pure modules: each is one plausible mistake that the tests beside it must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.auth import secret_references
from stoker.control.rules import billing, placement, pods, volumes, wanted_workers
from stoker.control.rules.inputs import narrowing
from stoker.control.scheduling import cluster_state, rollout
from tests.mutants import mutant, survives

MUTANTS = {
    "billing": {
        "each part is rounded for itself": (
            "price * ended_ms // per - price * began_ms // per",
            "price * (ended_ms - began_ms) // per",
        ),
        "every device is alike": (
            "self.gpu_second.get(device_type, self.device_second)",
            "self.device_second",
        ),
        "a processor costs nothing": (
            "self.device_second if self.cpu_second is None",
            "0 if self.cpu_second is None",
        ),
        "one GPU for all": ("* max(devices, 1) *", "*"),
        "a share pays for the whole": ("percent * round(share * SHARES)", "percent * SHARES"),
        "starting is free": (
            'case "starting":\n                return self',
            'case "starting":\n                return 0 * self',
        ),
        "waiting is running": ('case "idle":', 'case "waits":'),
        "an hour is a minute": ("* 3_600 * count", "* 60 * count"),
        "the price of nothing": ("if device_type else None", "if True else None"),
        "an hour is not cut": ("min((hour + 1) * HOUR_MS, ended_ms)", "ended_ms"),
        "weeks start on Sunday": ("(day + 3) % 7", "(day + 4) % 7"),
        "no leap year": ("(year - 1969) // 4", "(year - 1970) // 4"),
        "no century": ("- (year - 1901) // 100", ""),
        "no fourth century": ("+ (year - 1601) // 400", ""),
        "February is short": ("29 if leap else 28", "28"),
        "the last day is the next month": ("if first + length > day:", "if first + length >= day:"),
        "a year is one too early": ("while _new_year(year + 1) <= day:", "while _new_year(year + 1) < day:"),
        "what ended is still there": ("(space.ended, -space.gb)", "(space.ended, 0)"),
        "disks of all are one": (
            "max(accumulate(gb for _, gb in sorted(found)))",
            "max(gb for _, gb in found)",
        ),
        "begins come before ends": (
            "for _, gb in sorted(found)",
            "for _, gb in sorted(found, key=lambda c: (c[0], -c[1]))",
        ),
        "what was there before is not counted": (
            "first = int(space.began // HOUR_S)",
            "first = -int(-space.began // HOUR_S)",
        ),
        "the last hour wins": ("billed[1] += row.nano_usd", "billed[1] = row.nano_usd"),
    },
    "wanted_workers": {
        "never rounds up": (
            "return ceil((sample.queued + sample.in_progress) / each - 1e-9)",
            "return int((sample.queued + sample.in_progress) / each)",
        ),
        "what workers told is ignored": (
            "if self.slots else self.concurrency",
            "if False else self.concurrency",
        ),
        "the smallest worker counts for all": ("sum(self.slots) / len(self.slots)", "min(self.slots)"),
        "running jobs are no demand": (
            "ceil((sample.queued + sample.in_progress)",
            "ceil((sample.queued + 0)",
        ),
        "the scaler's value is ignored": ("max(policy.scaler_value, sample.each)", "sample.each"),
        "a worker is not filled": ("max(policy.scaler_value, sample.each)", "policy.scaler_value"),
        "the wrong scaler": ('policy.scaler == "QUEUE_DELAY"', 'policy.scaler == "DELAY"'),
        "no maximum": ("min(wanted, policy.workers_max)", "wanted"),
        "no minimum when idle": ("spare), demand, policy.workers_min)", "spare), demand)"),
        "stops what is needed": ("spare), demand, policy", "spare), policy"),
        "stops one tick early": ("idle >= policy.idle_timeout_s", "idle >= policy.idle_timeout_s - 0.2"),
        "low priority lets workers go": ("if sample.low_priority_queued:", "if False:"),
        "too many stay": ("if sample.workers > policy.workers_max:", "if False:"),
        "none starts where there is none": ("return min(sample.queued, 1)", "return 0"),
        "all start where there is none": ("return min(sample.queued, 1)", "return sample.queued"),
        "who waits on waits for ever": ("more = max(more, int(stays_late))", "pass"),
        "lateness is forgotten": (
            "since = sample.now if memory.late_since is None",
            "since = sample.now if True",
        ),
        "lateness never ends": ("late_since=since if late else None", "late_since=since"),
        "a start is no answer to lateness": (
            "late = _late(sample, policy) and not sample.starting_for",
            "late = _late(sample, policy)",
        ),
        "patience is ignored": ("sample.waited_s > policy.scaler_value", "sample.waited_s > 0"),
        "patience ends too late": (
            "sample.waited_s > policy.scaler_value",
            "sample.waited_s > policy.scaler_value + 1",
        ),
        "the cold start is ignored": ("else sample.cold_start_s) + patience", "else 0.0) + patience"),
        "an unmeasured start is overdue": ("return [0.0 for _", "return [9e9 for _"),
        "half a job is a job": ("- 0.5), 0)", "+ 0.5), 0)"),
        "unhealthy workers get another beside them": (
            "if not sample.slots and not sample.starting_for:",
            "if False:",
        ),
        "no hysteresis": ("if wanted < min(soon, sample.workers):", "if False:"),
        "a lone job is a rate": ("if rate * (sample.cold_start_s or 0.0) <= 1:", "if rate <= 0:"),
        "the rate keeps all": (
            "return max(ceil(rate * (sample.job_time_s or 0.0) / sample.each), 1)",
            "return sample.workers",
        ),
        "the rate keeps one": (
            "return max(ceil(rate * (sample.job_time_s or 0.0) / sample.each), 1)",
            "return 1",
        ),
        "the rate never ends": ("if 0 <= passed < 2 * window else 0", "if True else 0"),
        "the window before does not fade": ("memory.before * left +", "memory.before +"),
        "the window never ends": ("if 0 <= passed < window:", "if True:"),
        "those that start do not count": ("taken += sample.each * sum(", "taken += 0 * sum("),
        "those that start count for one slot": ("taken += sample.each * sum(", "taken += sum("),
        "the overdue count as new": ("abs(sample.cold_start_s - age)", "max(sample.cold_start_s - age, 0)"),
        "those that run free nobody": ("sum(begun(abs(job - age)) for age in sample.running_for)", "0"),
        "those that run free all at once": (
            "sum(begun(abs(job - age)) for age in sample.running_for)",
            "sum(begun(0.0) for age in sample.running_for)",
        ),
        "what is overdue ends at once": ("begun(abs(job - age))", "begun(max(job - age, 0))"),
        "a free slot is not seen": ("taken = free * begun(0.0) +", "taken ="),
        "one job that runs is half of one": ("2 * max(sample.running_for)", "max(sample.running_for)"),
        "the youngest tells": ("2 * max(sample.running_for)", "2 * min(sample.running_for)"),
        "too late is in time": ("if free_in < horizon else 0.0", "if True else 0.0"),
        "one more for each job": ("/ (sample.each * (1 + patience / job))", "/ 1"),
    },
    "rollout": {
        "the shortest idle stop": ("(-_ease(worker), worker.name)", "(_ease(worker), worker.name)"),
        "an old one goes before a new one can": (
            'if worker.state == "ready")\n    leaving',
            "if True)\n    leaving",
        ),
        "the busy are stopped": ("if name not in busy)),", ")),"),
        "nobody retires": ("retire=tuple(name for name in victims if name in busy)", "retire=()"),
        "what does not serve stays": ("stop=(*useless, *(", "stop=(*useless[:0], *("),
        "all at a time": ("max(ceil(workers_max / PARTS), 1)", "max(workers_max, 1)"),
        "none at a time": ("max(ceil(workers_max / PARTS), 1)", "workers_max // PARTS"),
        "what is under way does not count": ("_share(workers_max) - under_way", "_share(workers_max)"),
        "those that retire do not count": (
            "len(new) - ready + len(leaving) + stopping",
            "len(new) - ready + stopping",
        ),
        "those that stop do not count": (
            "len(new) - ready + len(leaving) + stopping",
            "len(new) - ready + len(leaving)",
        ),
        "more than is wanted": ("staying, wanted - len(new))", "staying)"),
        "demand waits for the roll-out": (
            "start=0 if broken else max(lacking, replaced, 0)",
            "start=0 if broken else max(replaced, 0)",
        ),
        "a broken version is tried on": ("broken = bool(old and failing) and not ready", "broken = False"),
        "where nothing is old there is no retry": ("bool(old and failing)", "bool(failing)"),
        "one that starts is no proof": ("bool(old and failing) and not ready", "bool(old and failing)"),
        "at once is as ever": ("(0 if at_once else max(wanted - ready, 0))", "max(wanted - ready, 0)"),
        "at once exceeds the maximum": ("    if at_once:\n", "    if False:\n"),
        "at once waits for what is broken": ("and not at_once", "and True"),
        "room is made for each": (
            'if any(worker.state == "stopping" or (worker.new and worker.state != "ready")'
            " for worker in workers):",
            "if False:",
        ),
        "the busy go first": ("return -0.5 if worker.retiring else -float(worker.jobs)", "return inf"),
        "others retire at each look": (
            "return -0.5 if worker.retiring else -float(worker.jobs)",
            "return -float(worker.jobs)",
        ),
        "the idle go before those that do not serve": (
            'if worker.state == "ready" else inf',
            "if True else inf",
        ),
    },
    "placement": {
        "an ill device is used": ("and device.uuid not in room.unhealthy and", "and"),
        "a drained node is used": ("if room.closed or room.weights", "if room.weights"),
        "a later type wins": (
            "for choice in _choices(needs):\n        found",
            "for choice in _choices(needs)[::-1]:\n        found",
        ),
        "types are tried on one node": ("for room in rooms for one in", "for room in rooms[:1] for one in"),
        "a parent's name means its slices": (
            "_plain(device.name) == self.name",
            "_plain(device.name).startswith(self.name)",
        ),
        "names are compared letter by letter": ('" ".join(name.split())', "name"),
        "an unnamed need splits over slices": ("    if needs.gpu_count == 1:\n", "    if True:\n"),
        "a GPU's work falls to a CPU": (' == "" and not _needs_gpu(needs):', ' == "":'),
        "GPU means any": ('if needs.compute == "" and not', "if not"),
        "a CPU endpoint takes a GPU": (
            "        return [_CPU]\n",
            '        return [_Choice(("gpu",)), _CPU]\n',
        ),
        "fewer than asked for": ("if len(chosen) == _count(needs, choice):", "if chosen:"),
        "several of any name": (
            "if device.name == name]\n        if needs.share",
            "]\n        if needs.share",
        ),
        "a GPU is shared": ("        return needs.share\n", "        return needs.share / 2\n"),
        "a full device takes one more": (
            "+ takes(device, needs, room.facts) <= 1.0 + _ROUNDING",
            "+ takes(device, needs, room.facts) < 2.0",
        ),
        "closed nodes have capacity": ("for room in rooms if not room.closed)", "for room in rooms)"),
        "pairs of any name": ("number // needs.gpu_count", "number / needs.gpu_count"),
        "GPU work takes no CPU": ("if cpu is not None and found and", "if False and"),
        "two GPUs take as much CPU as one": ("(1 if needs.vcpus else len(found))", "1"),
        "memory is not counted": (
            'if device.kind == "cpu" and _memory_left(room) + _ROUNDING <',
            "if False and 0.0 <",
        ),
        "too much memory may come": ("return _of_memory(needs, room.facts) <= 1.0", "return True or 1.0"),
        "anything runs beside GPUs": ("if choice.without_gpus and", "if False and"),
        "CPUs beside GPUs come first": ('scarce = "cpu" in choice.kinds and', "scarce = not"),
        "rounding counts": ("_ROUNDING = 1e-9", "_ROUNDING = 0.0"),
        "every CPU worker is the same": ("if needs.vcpus is None or not vcpus else", "if True else"),
        "shares spread": ("key=lambda device: -room.taken", "key=lambda device: room.taken"),
        "the emptiest is shared first": ("fullest = -room.taken", "fullest = room.taken"),
        "the fullest node first": ("taken = sum(", "taken = -sum("),
        "versions are text": ("tuple(int(part) for part in parts)", "tuple(parts)"),
        "the minimum is too little": (
            "_version(cuda) < _version(needs.min_cuda)",
            "_version(cuda) <= _version(needs.min_cuda)",
        ),
        "an unknown version will do": (" and not _version(cuda):", " and False:"),
        "any version is allowed": (
            "if needs.cuda_versions and _version(cuda) not in",
            "if False and _version(cuda) not in",
        ),
        "anywhere will do": ("if needs.data_centers and where not in", "if where and where not in"),
        "labels are not read": (" != value:\n", " != value and False:\n"),
        "unknown memory will do": ("device.memory_total is not None and", "device.memory_total is None or"),
        "memory above the need": ("device.memory_total >= least", "device.memory_total > least"),
        "blind nodes share": (
            """facts.get("gpu_sharing") != "yes":""",
            """facts.get("gpu_sharing", "").startswith("no"):""",
        ),
        "an engine that cannot is asked": ("if device.uuid in room.unfit or takes", "if takes"),
        "nothing is for ever": ('reason = "no capacity" if all(', 'reason = "no capacity" if not all('),
        "every name is enough": ("if count == 1 or not devices:", "if True:"),
    },
    "cluster_state": {
        "the cold worker first": ("load, -worker.last_used", "load, worker.last_used"),
        "shares before spreading": ("first = -has if has <= pack else has", "first = 0"),
        "what is given does not count": (
            "has = worker.jobs + assigned[worker.worker]",
            "has = worker.jobs",
        ),
        "what runs does not count": (
            "has = worker.jobs + assigned[worker.worker]",
            "has = assigned[worker.worker]",
        ),
        "the room decides": ("first = -has if has <= pack else has", "first = -worker.free"),
        "warm before an idle node": ("load, -worker.last_used", "-worker.last_used, load"),
        "large nodes seem busy": (
            "jobs[worker.node] / max(loads[worker.node].devices, 1)",
            "jobs[worker.node]",
        ),
        "a node fills up": ("jobs[worker.node] += 1", "pass"),
        "one slot for two jobs": ("< rooms[worker.worker]:", "<= rooms[worker.worker]:"),
        "more than is asked for": ("len(order) < most", "len(order) <= most"),
        "the first to come wins": (
            "-worker.last_used, worker.worker\n",
            "-worker.last_used, str(assigned)\n",
        ),
    },
    "pods": {
        "a late word counts": (
            "    if (state.version, state.restarts) != (pod.version, pod.restarts):",
            "    if False:",
        ),
        "starting again is no news": ('wish="RUNNING", restarts=pod.restarts + 1)', 'wish="RUNNING")'),
        "a container that ended is thought to run": ("and pod.now_seen.state not in ENDED:", "and True:"),
        "a reset keeps the container": (
            '"Reset by User", now, version=pod.version + 1)',
            '"Reset by User", now, restarts=pod.restarts + 1)',
        ),
        "a lock locks nothing": ('if pod.body.locked and action != "start":', "if False:"),
        "a lock cannot be taken off": (
            "if anew and pod.body.locked and body.locked:",
            "if anew and pod.body.locked:",
        ),
        "a new lock makes the container anew": (
            "replace(body, locked=pod.body.locked) != pod.body",
            "body != pod.body",
        ),
        "a stopped pod is restarted": ('if pod.wish != "RUNNING":\n', "if False:\n"),
        "what was removed from outside is thought removed by the node": (
            'ContainerReport() if pod.seen.state == "gone" else pod.seen',
            "pod.seen",
        ),
        "a deleted pod is forgotten before it is gone": ('or self.seen.state == "gone")', "or True)"),
        "devices are free while the container ends": (
            '(self.wish == "RUNNING" or self.seen.state in ("creating", "running"))',
            '(self.wish == "RUNNING")',
        ),
        "other devices, same container": ("version=pod.version + elsewhere", "version=pod.version"),
        "a first place is a move": ("elsewhere = bool(pod.node) and ", "elsewhere = "),
        "a stop is told as an end by itself": ('and pod.wish == "RUNNING":\n', "and True:\n"),
        "every word is the start": ('and before != "running":', "and True:"),
        "an old report counts for a new container": (
            "return self.seen if current else ContainerReport()",
            "return self.seen",
        ),
        "what ended reads RUNNING": ('or seen.state in ENDED else "RUNNING"', 'else "RUNNING"'),
        "a node that is away runs on": ("    if not connected:\n", "    if False:\n"),
        "a Hello without the pod changes nothing": ("    if found is None:\n", "    if False:\n"),
        "ports of a container that ended": ('state.ports if state.state == "running" else ()', "state.ports"),
    },
    "secret_references": {
        "one spelling only": ("(?:STOKER|RUNPOD)_SECRET_", "STOKER_SECRET_"),
        "white space matters": (r"([^\s{}]*)\s*\}\}", r"([^\s{}]*) \}\}"),
        "a bad name is no reference": (r"([^\s{}]*)", "([A-Za-z_][A-Za-z0-9_]*)"),
        "an unknown one is left": ("if name not in secrets:", "if False:"),
        "only the first of a value is looked at": (
            "for name in names:\n            if",
            "for name in names[:1]:\n            if",
        ),
        "values are templates": (
            "lambda found: secrets[found[1]]",
            'secrets[names[0]] if (names := references[variable]) else ""',
        ),
        "the rest is lost": ("Filled({**env, **filled}", "Filled({**filled}"),
        "what was filled in is told": (
            'HIDDEN = ("env", "hidden")',
            'HIDDEN = ("hidden",)',
        ),
        "logs show it": ("tuple(used))", "())"),
    },
    "volumes": {
        "any node will do": ('.startswith("no"):', '.startswith("never"):'),
        "a node without a label is elsewhere": (
            "if there and volume.data_center and",
            "if volume.data_center and",
        ),
        "labels do not count": ("there != volume.data_center", "False"),
        "a full one is closed": (
            "volume.used_bytes > volume.size_bytes",
            "volume.used_bytes >= volume.size_bytes",
        ),
        "an overfull one is open": ("volume.used_bytes > volume.size_bytes", "False"),
        "it shrinks": ("if size_gb < volume.size_gb:", "if False:"),
        "it stays": ("replace(volume, size_gb=size_gb)", "volume"),
        "a closed room opens": ("closed=room.closed or unfit(", "closed=unfit("),
        "no volume is a volume": ("    if not name:", "    if False:"),
    },
    "narrowing": {
        "any maximum": ("if value > before:", "if False:"),
        "any minimum": ("if value < before:", "if False:"),
        "any step": ("if _exact(value) % _exact(before):", "if False:"),
        "what the handler requires is forgotten": (
            '(*declared.get("required", ()), *own.get("required", ()))',
            'own.get("required", ())',
        ),
        "withdrawn fields stay": (
            'named if own.get("additionalProperties") is False else',
            "named if False else",
        ),
        "names that the handler does not know": ("if name not in rules and others is False:", "if False:"),
        "a default stays outside": ('return found | {"default": default}', "return found"),
        "the default goes to the far side": ("abs(one - _exact(default))", "-abs(one - _exact(default))"),
        "no integer is a number": ('["integer"] if "number" in taken else []', "[]"),
        "bounds that leave nothing": ("if least > most and", "if False and"),
        "lists are not looked into": (
            'return _merged(before or {}, value, f"{field}[]", root)',
            "return value",
        ),
    },
}
CONTROL = Path(__file__).parents[1]
MODULES = {
    "wanted_workers": ("rules/test_wanted_workers.py", wanted_workers),
    "billing": ("rules/test_billing.py", billing),
    "rollout": ("scheduling/test_rollout.py", rollout),
    "placement": ("rules/test_placement.py", placement),
    "cluster_state": ("scheduling/test_cluster_state.py", cluster_state),
    "narrowing": ("rules/inputs/test_narrowing.py", narrowing),
    "pods": ("rules/test_pods.py", pods),
    "secret_references": ("auth/test_secret_references.py", secret_references),
    "volumes": ("rules/test_volumes.py", volumes),
}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}: {description}")
        for name, mutants in MUTANTS.items()
        for description, (old, new) in mutants.items()
    ],
)
def test_a_mutant_is_killed(name: str, old: str, new: str) -> None:
    file, module = MODULES[name]
    assert not survives(CONTROL / file, mutant(module, old, new))


QUICK = ("cluster_state", "pods", "volumes")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODULES]
)
def test_the_original_lives(name: str) -> None:
    file, module = MODULES[name]
    assert survives(CONTROL / file, module)
