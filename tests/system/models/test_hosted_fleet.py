"""Hosted models on a fleet of several hosts: as many workers as fit, several pipelines at once, and each on
GPUs that have memory for it."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.nvml_stand_in import on_a_host
from tests.system.stack import START_S, Stack, until

SMALL = {"prompt": "a red boat", "width": 256, "height": 256, "num_inference_steps": 2}


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    made = Stack(tmp_path, hosted=("text-to-image",))
    made.pipelines = request.param
    try:
        made.start()
        yield made
    finally:
        made.stop()


def manage(stack: Stack, method: str, path: str, **body: object) -> dict[str, Any]:
    answer = httpx2.request(
        method,
        f"{stack.facts['http']}/v1{path}",
        headers={"Authorization": f"Bearer {stack.key}"},
        json=body or None,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def workers(stack: Stack) -> dict[str, int]:
    return dict(stack.http.get("/text-to-image/health").json()["workers"])


def all_run_at_once(stack: Stack, number: int) -> None:
    """With a worker for each job, there are as many workers as fit."""
    manage(stack, "PATCH", "/endpoints/text-to-image", scalerType="REQUEST_COUNT", scalerValue=1)
    jobs = [stack.run("text-to-image", SMALL | {"num_inference_steps": 50}) for _ in range(2 * number)]

    def has_all() -> bool:
        there = workers(stack)
        assert there["throttled"] == 0, "no more are wanted than there are places"
        return there["ready"] + there["running"] == number

    until(has_all, START_S, f"{number} workers", lambda: workers(stack))
    assert all(stack.end_of("text-to-image", job)["status"] == "COMPLETED" for job in jobs)


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["flux-tiny,flux-mini"], indirect=True)
def test_each_pipeline_has_an_endpoint_and_hosts_have_as_many_workers_as_fit(stack: Stack) -> None:
    with stack.another_agent("other"):
        drawn = {
            name: stack.runsync(name, SMALL)["output"]["pipeline"]
            for name in ("text-to-image", "flux-tiny", "flux-mini")
        }
        assert drawn == {"text-to-image": "flux-tiny", "flux-tiny": "flux-tiny", "flux-mini": "flux-mini"}
        all_run_at_once(stack, 2)


PIPELINES = '''
"""Two pipelines that say what they need of a GPU, and compute on the CPU: the test's GPUs are a stand-in."""

from dataclasses import replace

from stoker.models.interface import PipelineNeeds
from stoker.models.registry import PIPELINES
from stoker.worker.sdk import Device

Device.torch_device = property(lambda self: "cpu")
SMALL = replace(PIPELINES["flux-tiny"], name="small", needs=PipelineNeeds(gpu_memory_gb=8))
LARGE = replace(PIPELINES["flux-tiny"], name="large", needs=PipelineNeeds(gpu_memory_gb=40))
'''
METADATA = "Metadata-Version: 2.1\nName: pipelines-of-the-test\nVersion: 1\n"
ENTRIES = "[stoker.pipelines]\nsmall = pipelines_of_the_test:SMALL\nlarge = pipelines_of_the_test:LARGE\n"


def python_with_pipelines(home: Path) -> str:
    """Returns the Python of an environment that has what this one has, and these pipelines."""
    venv.create(home, with_pip=False, symlinks=True)
    (home / "bin" / "rclone").symlink_to(Path(sys.executable).with_name("rclone"))
    (site,) = home.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (site / "pipelines_of_the_test.py").write_text(PIPELINES)
    (about := site / "pipelines_of_the_test-1.dist-info").mkdir()
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(ENTRIES)
    return str(home / "bin" / "python")


@pytest.mark.slow
def test_each_gpu_gets_a_worker_and_a_pipeline_waits_for_a_gpu_with_memory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts of two GPUs with 12 GiB, and one of 80 GiB that comes later."""
    on_a_host(tmp_path, monkeypatch, "small")
    stack = Stack(tmp_path, hosted=("text-to-image",))
    stack.python, stack.pipelines = python_with_pipelines(tmp_path / "environment"), "small,large"
    try:
        stack.start()
        with stack.another_agent("second"):
            job = stack.run("large", SMALL)
            reason = lambda: stack.status("large", job).get("reason", "")  # noqa: E731
            until(lambda: "of memory" in reason(), START_S, "the reason", reason)
            all_run_at_once(stack, 4)
            assert stack.status("large", job)["status"] == "IN_QUEUE"
            with stack.another_agent("third", FAKE_NVML="alike"):
                assert stack.end_of("large", job)["output"]["pipeline"] == "large"
    finally:
        stack.stop()
