"""Every command of docs/operations is run by a test: typed as it stands on the page, or by a test named here,
which runs the same with other arguments. For what needs a service manager, an engine or a cluster, that is
the test of its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation.command_lines import lines
from tests.documentation.pages import Page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "operations"
DATABASES, PROCESSES = "tests/cli/database/test_operations_page.py", "tests/system/test_operations_pages.py"
TYPED = {
    "back-up": DATABASES,
    "certificates": PROCESSES,
    "first-key": PROCESSES,
    "graphs": PROCESSES,
    "replace-a-host": PROCESSES,
    "restore": DATABASES,
    "rotate": DATABASES,
    "upgrade": DATABASES,
}
"""The pages of which a test types all commands."""

ELSEWHERE = {
    r"(systemctl|useradd|install|python3 -m venv) .*": "tests/deploy/test_units.py",
    r"pip install .*": ".ci/package.py",
    r"docker build .*": "tests/agent/workers/containers/images/test_built_control.py",
    r"(python deploy/compose/make_env.py|docker compose .*)": "tests/deploy/test_compose.py",
    r"(kubectl|helm) .*": "tests/deploy/test_chart.py",
    r"stoker ca init .*": "tests/cli/manage/test_ca_commands.py",
    r"stoker doctor.*": "tests/system/test_doctor.py",
    r"stoker control --config stoker.toml": "tests/system/stack.py",
    r"stoker control .*--standby": "tests/system/faults/test_standby.py",
    r"STOKER_DATABASE_URL=\S+ stoker control": "tests/system/test_postgres.py",
    r"OTEL_EXPORTER_OTLP_ENDPOINT=\S+ stoker control": "tests/system/test_one_job_seen.py",
    r"stoker --version": "tests/cli/test_missing_extras.py",
    r"stoker up .*--reload": "tests/system/test_up.py",
    r"stoker agent .*--reclaim-notices aws": "tests/cli/agent/test_reclaims.py",
    r"stoker node .*": PROCESSES,
    r"stoker (audit|endpoint get) .*": "tests/cli/manage/test_resource_commands.py",
    r"stoker weights list": "tests/cli/manage/test_weights_commands.py",
    r"curl .*/health .*": "tests/control/http/calls/test_operations.py",
    r"stoker job (list|logs|attempts) .*": "tests/cli/jobs/test_job_commands.py",
    r"(stoker logs|curl .*/workers/WORKER_ID/logs) .*": "tests/system/workers/test_logs_of_workers.py",
}
"""Of the other pages, by what the whole command is like."""

FOUND = [
    (page.stem, re.sub(r"\s+#.*", "", text))
    for page in sorted(FOLDER.glob("*.md"))
    for block in Page.read(page).blocks("sh")
    for _, text in lines(block)
    if page.stem not in TYPED
]


@pytest.mark.parametrize(("page", "command"), FOUND)
def test_a_command_of_the_pages_is_run(page: str, command: str) -> None:
    named = [path for pattern, path in ELSEWHERE.items() if re.fullmatch(pattern, command)]
    assert named, f"name the test that runs the command of {page}"
    if ours := re.match(r"(?:\w+=\S+ )?stoker (\S+)", command):
        word = ours[1].removeprefix("--")
        assert any(re.search(rf"\b{word}\b", (ROOT / path).read_text("utf-8")) for path in named), named


def test_the_tests_that_are_named_are_there_and_needed() -> None:
    for page, path in TYPED.items():
        assert f'"{page}"' in (ROOT / path).read_text(encoding="utf-8"), page
    for pattern, path in ELSEWHERE.items():
        assert (ROOT / path).is_file(), path
        assert any(re.fullmatch(pattern, command) for _, command in FOUND), f"no page has {pattern}"


def test_no_command_hides_in_a_list() -> None:
    """Blocks that are indented are not parsed, and so not checked."""
    for page in FOLDER.glob("*.md"):
        assert re.findall(r"(?m)^ +```", page.read_text(encoding="utf-8")) == [], page.name
