"""What the facts of a host mean: by example for each check, and for all facts by their properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.agent.probes import FREE_LEAST as AGENT_FREE_LEAST
from stoker.cli.doctor import checkup
from stoker.cli.doctor.facts import (
    Certificate,
    Disk,
    Engine,
    Facts,
    Gpus,
    OwnCgroup,
    Service,
    Torch,
    Tried,
)
from stoker.cli.doctor.findings import AHEAD_FAILS_S, AHEAD_WARNS_S, SOON_S, Finding, Level, failed, findings
from stoker.control.http.health.checks import FREE_LEAST
from stoker.wire.tls_files import SOON

DAY = 86_400.0
GIB = 1 << 30
ONE = Gpus(1, ("NVIDIA L4",), "580.65.06", (13, 0))
DOCKER = Engine("docker", "28.2.2", cdi_takes=True, cdi_files=("/etc/cdi/nvidia.yaml",))
WELL = Facts(
    "0.2.0",
    gpus=ONE,
    torch=Torch("2.13.0+cu129", (12, 9)),
    engine=DOCKER,
    cgroup=OwnCgroup(
        "/sys/fs/cgroup/system.slice/stoker-agent.service", frozenset({"cpu", "memory", "pids"})
    ),
    disk=Disk("/var/lib/stoker", 500 * GIB, 900 * GIB, GIB),
    configuration=Tried("/etc/stoker/stoker.toml"),
    certificates=(Certificate("TLS certificate", "cert.pem", -DAY, 90 * DAY),),
    objects=Tried("https://s3.example.com"),
    services=(Service("https://control", "", {"database": "ok"}, (), "0.2.0", 0.0),),
    doors=(Tried("control:8001"),),
)


def of(check: str, facts: Facts) -> list[Finding]:
    return [one for one in findings(facts) if one.check == check]


def test_a_host_where_all_is_well() -> None:
    found = findings(WELL)
    assert {one.level for one in found} == {Level.ok}
    assert {one.check for one in found} == {
        *("driver", "cuda", "engine", "cdi", "cgroups", "disk", "clock", "configuration", "certificates"),
        *("object store", "control"),
    }
    assert not failed(found)


@pytest.mark.parametrize(
    ("check", "level", "says", "change"),
    [
        ("driver", Level.failed, "no driver is loaded", {"gpus": Gpus(2)}),
        ("driver", Level.failed, "does not answer", {"gpus": Gpus(1, trouble="the driver does not answer")}),
        ("driver", Level.warning, "on the CPU", {"gpus": Gpus()}),
        ("driver", Level.skipped, "not installed", {"gpus": None}),
        ("cuda", Level.failed, "built for the CPU", {"torch": Torch("2.13.0+cpu", None)}),
        ("cuda", Level.failed, "CUDA 14.0, the driver has 13.0", {"torch": Torch("3.0", (14, 0))}),
        ("cuda", Level.warning, "CUDA 13.1, the driver has 13.0", {"torch": Torch("2.14", (13, 1))}),
        ("cuda", Level.ok, "CUDA 13.0, the driver has 13.0", {"torch": Torch("2.14", (13, 0))}),
        ("cuda", Level.skipped, "no driver", {"gpus": Gpus()}),
        ("cuda", Level.skipped, "not installed", {"torch": None}),
        ("engine", Level.warning, "no socket", {"engine": Engine(trouble="no socket of docker")}),
        ("cdi", Level.failed, "takes no CDI names", {"engine": Engine("docker", "20.10.24")}),
        ("cdi", Level.failed, "no file in /etc/cdi", {"engine": replace(DOCKER, cdi_files=())}),
        ("cdi", Level.skipped, "no engine with a GPU", {"gpus": Gpus()}),
        ("cgroups", Level.warning, "not writable", {"cgroup": OwnCgroup(trouble="/x is not writable")}),
        ("cgroups", Level.warning, "cpu, pids", {"cgroup": OwnCgroup("/x", frozenset({"memory"}))}),
        ("disk", Level.failed, "900 MiB of 900.0 GiB", {"disk": Disk("/d", 900 << 20, 900 * GIB, GIB)}),
        ("disk", Level.warning, "20.0 GiB of 900.0 GiB", {"disk": Disk("/d", 20 * GIB, 900 * GIB, GIB)}),
        ("configuration", Level.failed, "colour", {"configuration": Tried("x", "no field colour")}),
        ("object store", Level.failed, "no bucket", {"objects": Tried("https://s3", "no bucket images")}),
        ("object store", Level.skipped, "none is configured", {"objects": None}),
        ("control", Level.failed, "refused", {"services": (Service("http://c", "refused"),)}),
        ("control", Level.failed, "timed out", {"doors": (Tried("control:8001", "timed out"),)}),
        (
            "control",
            Level.failed,
            "http://c, disk: nearly full",
            {"services": (Service("http://c", checks={"disk": "nearly full"}),)},
        ),
        (
            "control",
            Level.warning,
            "has version 0.1.0",
            {"services": (Service("http://c", version="0.1.0"),)},
        ),
        ("control", Level.warning, "embedded", {"services": (Service("http://c", warnings=("embedded",)),)}),
    ],
)
def test_what_is_wrong_is_found(check: str, level: Level, says: str, change: dict[str, object]) -> None:
    found = [one for one in of(check, replace(WELL, **change)) if one.level is level]  # type: ignore[arg-type]
    assert len(found) == 1, findings(WELL)
    assert says in found[0].found


@pytest.mark.parametrize(
    ("begins", "ends", "level"),
    [
        (-DAY, 0.0, Level.failed),
        (-DAY, 1.0, Level.warning),
        (-DAY, 14 * DAY, Level.warning),
        (-DAY, 14 * DAY + 1.0, Level.ok),
        (1.0, 90 * DAY, Level.failed),
    ],
)
def test_a_certificate_is_judged_by_its_dates(begins: float, ends: float, level: Level) -> None:
    file = Certificate("TLS certificate", "cert.pem", begins, ends)
    assert of("certificates", replace(WELL, certificates=(file,)))[0].level is level


@given(st.floats(-1e6, 1e6))
def test_a_clock_is_judged_by_how_far_it_is_off_and_never_by_the_direction(ahead_s: float) -> None:
    there, back = (
        of("clock", replace(WELL, services=(Service("http://c", ahead_s=off),)))[0]
        for off in (ahead_s, -ahead_s)
    )
    off_s = abs(ahead_s)
    expected = Level.ok if off_s < AHEAD_WARNS_S else Level.warning if off_s < AHEAD_FAILS_S else Level.failed
    assert there.level is back.level is expected
    assert ("behind" in there.found) == (ahead_s > 0 and expected is not Level.ok)


SENTENCES = st.sampled_from(("", "it is broken"))
SIZES = st.integers(0, 1 << 45)
ENGINES = st.builds(
    Engine, st.just("docker"), st.just("28"), st.booleans(), st.sampled_from(((), ("a",))), SENTENCES
)
GPUS = st.builds(
    Gpus, st.integers(0, 8), st.sampled_from(((), ("L4",))), st.just("580"), st.none(), SENTENCES
)
ANY_FACTS = st.builds(
    Facts,
    st.just("0.2.0"),
    gpus=st.none() | GPUS,
    torch=st.none() | st.just(Torch("2", None)),
    engine=st.none() | ENGINES,
    cgroup=st.none()
    | st.builds(OwnCgroup, st.just("/x"), st.frozensets(st.sampled_from(("cpu", "pids"))), SENTENCES),
    disk=st.none() | st.builds(Disk, st.just("/d"), SIZES, SIZES, SIZES),
    configuration=st.none() | st.builds(Tried, st.just("x"), SENTENCES),
    certificates=st.tuples()
    | st.tuples(st.builds(Certificate, st.just("TLS key"), st.just("k"), trouble=SENTENCES)),
    objects=st.none() | st.builds(Tried, st.just("s3"), SENTENCES),
    services=st.tuples() | st.tuples(st.builds(Service, st.just("http://c"), SENTENCES)),
    doors=st.tuples() | st.tuples(st.builds(Tried, st.just("c:1"), SENTENCES)),
)


@given(ANY_FACTS)
def test_every_failure_says_what_to_do(facts: Facts) -> None:
    found = findings(facts)
    for one in found:
        assert one.found
        assert one.do or one.level is not Level.failed, one
        assert not (one.do and one.level in (Level.ok, Level.skipped)), one
    troubled = [
        facts.gpus,
        facts.configuration,
        facts.objects,
        *facts.certificates,
        *facts.services,
        *facts.doors,
    ]
    assert failed(found) or not any(one and one.trouble for one in troubled)


def test_the_limits_are_those_of_ready() -> None:
    assert (checkup.CONTROL_FREE, checkup.AGENT_FREE) == (FREE_LEAST, AGENT_FREE_LEAST)
    assert SOON.total_seconds() == SOON_S


def test_an_address_that_refuses_is_a_standbys_only_beside_one_that_answers() -> None:
    waits = Tried("standby:8001", "Connection refused", refused=True)
    wrong = Tried("other:8001", "its certificate is not accepted: expired")
    alone = replace(WELL, doors=(waits,))
    assert failed(findings(alone))
    assert not failed(findings(replace(WELL, doors=(*WELL.doors, waits))))
    assert failed(findings(replace(WELL, doors=(*WELL.doors, wrong))))
    down = Service("http://b", "Connection refused", refused=True)
    assert failed(findings(replace(WELL, services=(down,))))
    assert not failed(findings(replace(WELL, services=(*WELL.services, down))))


@pytest.mark.parametrize(
    ("left", "level"), [(3 * DAY, Level.ok), (1.9 * DAY, Level.warning), (-1.0, Level.failed)]
)
def test_a_nodes_certificate_is_late_once_half_of_its_life_is_over(left: float, level: Level) -> None:
    file = Certificate("certificate of the node", "node_certificate", left - 4 * DAY, left, soon_s=2 * DAY)
    (one,) = [one for one in findings(replace(WELL, certificates=(file,))) if one.check == "certificates"]
    assert one.level is level
    assert ("its agent renews it" in one.do) == (level is not Level.ok)
