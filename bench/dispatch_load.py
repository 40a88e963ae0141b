"""Load on several services: drives them with wrk in turns of one second, and measures the CPU time of their
processes in each turn. All services run at once, so other load on the machine affects them alike."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

REFUSALS_MOST = 0.05
"""The share of responses that may be refusals."""

SCRIPT = """
wrk.method = "POST"
wrk.body = os.getenv("BENCH_BODY")
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = os.getenv("BENCH_KEY")
local expected, kept, bad = os.getenv("BENCH_EXPECT"), os.getenv("BENCH_ANSWERS"), 0
local refusal = os.getenv("BENCH_REFUSAL")
local answers = kept and io.open(kept, "a")
function response(status, headers, body)
  if answers then answers:write(body, "\\n") end
  if status ~= 200 and refusal ~= "" and body:find(refusal, 1, true) then return end
  if status ~= 200 or not body:find(expected, 1, true) then
    bad = bad + 1
    if bad == 1 then io.stderr:write("unexpected answer: " .. status .. " " .. body .. "\\n") end
  end
end
"""


@dataclass(frozen=True)
class Service:
    """`expect` is a part of every correct response, `refusal` one of those that say it is full, if it sends
    some below its limit: they are no jobs. `processes`: the processes whose CPU time counts, by name."""

    name: str
    url: str
    expect: str
    processes: Callable[[], Mapping[str, Sequence[psutil.Process]]]
    key: str = "none"
    body: str = '{"input":{"ms":0}}'
    refusal: str = ""


@dataclass(frozen=True)
class Turn:
    """Latencies in milliseconds; `cpu_us` is CPU time per request, by process."""

    p50: float
    p99: float
    per_second: float
    requests: int
    cpu_us: dict[str, float]


@dataclass(frozen=True)
class Turns:
    """All turns of one service with one number of connections."""

    service: str
    connections: int
    turns: list[Turn] = field(default_factory=list)

    def median(self, figure: Callable[[Turn], float]) -> float:
        return statistics.median(figure(turn) for turn in self.turns)

    @property
    def p50(self) -> float:
        return self.median(lambda turn: turn.p50)

    @property
    def p99(self) -> float:
        return self.median(lambda turn: turn.p99)

    @property
    def per_second(self) -> float:
        return self.median(lambda turn: turn.per_second)

    @property
    def cpu_us(self) -> float:
        return self.median(lambda turn: sum(turn.cpu_us.values()))

    @property
    def cpu_by_process(self) -> dict[str, float]:
        names = self.turns[0].cpu_us
        return {name: statistics.median(turn.cpu_us[name] for turn in self.turns) for name in names}


def in_turns(services: Sequence[Service], connections: int, rounds: int, seconds: int = 1) -> list[Turns]:
    """Drives each service once per round; another service is first in each round."""
    done = [Turns(service.name, connections) for service in services]
    for number in range(rounds):
        for at in range(len(services)):
            which = (at + number) % len(services)
            done[which].turns.append(drive(services[which], connections, seconds))
    return done


def drive(service: Service, connections: int, seconds: int, answers: Path | None = None) -> Turn:
    """Runs wrk once and checks every response; writes the responses to the file `answers`, if given."""
    env = {"BENCH_BODY": service.body, "BENCH_KEY": service.key, "BENCH_EXPECT": service.expect}
    env["BENCH_REFUSAL"] = service.refusal
    if answers is not None:
        env["BENCH_ANSWERS"] = str(answers)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script.name]
        before = cpu_seconds(service)
        done = subprocess.run(
            [*command, service.url], capture_output=True, text=True, check=True, env={**os.environ, **env}
        )
        after = cpu_seconds(service)
    requests, refused = int(found(r"(\d+) requests in", done.stdout)), refusals(done.stdout)
    if "unexpected answer" in done.stderr or refused > REFUSALS_MOST * requests:
        raise SystemExit(f"{service.name} did not answer as it should:\n{done.stderr}{done.stdout}")
    requests, share = requests - refused, 1 - refused / max(requests, 1)
    return Turn(
        milliseconds(found(r"\n\s+50%\s+(\S+)", done.stdout)),
        milliseconds(found(r"\n\s+99%\s+(\S+)", done.stdout)),
        share * float(found(r"Requests/sec:\s+(\S+)", done.stdout)),
        requests,
        {name: (after[name] - before[name]) / max(requests, 1) * 1e6 for name in before},
    )


def refusals(printed: str) -> int:
    """How many responses had a status of failure, of which wrk says nothing where there is none."""
    counted = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    return int(counted[1]) if counted else 0


def cpu_seconds(service: Service) -> dict[str, float]:
    return {name: sum(map(_cpu_seconds, group)) for name, group in service.processes().items()}


def _cpu_seconds(process: psutil.Process) -> float:
    """Reads the scheduler's nanoseconds: clock ticks are too coarse for a turn."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def idle_gaps_ms(answers: Path) -> list[float]:
    """The times between the end of a job and the start of the next one on the same worker, from the
    responses.

    The output of each response is `{"began": s, "ended": s, "pid": n}`, by the monotonic clock.
    """
    jobs: dict[int, list[tuple[float, float]]] = {}
    for line in answers.read_text().splitlines():
        output = json.loads(line)["output"]
        jobs.setdefault(output["pid"], []).append((output["began"], output["ended"]))
    gaps = []
    for spans in jobs.values():
        spans.sort()
        gaps += [(after[0] - before[1]) * 1e3 for before, after in pairwise(spans)]
    if not gaps:
        raise SystemExit("no worker ran two jobs, one after the other; increase --seconds")
    return sorted(gaps)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk printed nothing like {pattern!r}:\n{text}")
    return match.group(1)


def milliseconds(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise SystemExit(f"wrk printed {text!r} where a duration belongs")
