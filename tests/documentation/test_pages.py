"""README and docs/ say what holds: their commands parse, and paths, links, settings and code are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.testing import LocalFile, LocalJob
from tests.documentation.command_lines import ROOT
from tests.documentation.page_checks import faults
from tests.documentation.pages import Block, Page

PAGES = [*sorted(set(ROOT.glob("*.md")) - {ROOT / "CHANGELOG.md"}), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_right(path: Path, tmp_path: Path) -> None:
    assert faults(Page.read(path), tmp_path) == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        path = todo.pop()
        if path.suffix == ".md" and path not in reached:
            reached.add(path)
            targets = (target.partition("#")[0] for _, target in Page.read(path).links())
            todo += [(path.parent / one).resolve() for one in targets if one and "://" not in one]
    assert reached >= set(PAGES)


# -- the handlers of the pages do what the pages say

JOBS: dict[str, tuple[Any, Callable[[LocalJob], bool]]] = {
    "handlers/caption.py": (
        {"text": "hello"},
        lambda done: done.output["result"].read_bytes() == b"HELLO" and len(done.chunks) == 10,
    ),
    "handlers/words.py": ({"text": "one two"}, lambda done: done.chunks == ["one", "two"]),
    "handlers/words_at_once.py": ({"text": "one two"}, lambda done: done.output == ["one", "two"]),
    "handlers/model.py": ({"n": 20}, lambda done: done.output == {"answer": 42}),
    "handlers/checked.py": ({"n": 2}, lambda done: done.output == {"half": 1}),
    "handlers/digest.py": (
        {"url": "data:text/plain,hello"},
        lambda done: done.output["size"] == 5 and done.output["type"] == "text/plain",
    ),
    "handlers/transcribe.py": (
        {"openai_input": {"file": "data:audio/wav;base64,UklGRiQAAABXQVZFZm10IA==", "language": "en"}},
        lambda done: done.output == {"text": "16 bytes in en"},
    ),
    "handlers/many.py": ({"n": 1}, lambda done: done.output == {"n": 1}),
    "handlers/film.py": (
        {"scenes": 4},
        lambda done: done.output == {"sum": 14} and [save.upto for save in done.saves] == [1, 2, 3, 4],
    ),
    "handlers/chapters.py": (
        {"chapters": 2},
        lambda done: done.output == {"book": "chapter 0, after 0 others\nchapter 1, after 1 others"},
    ),
}


def handlers(page: Page) -> list[Block]:
    return [block for block in page.blocks("python") if block.title.startswith("handlers/")]


@pytest.mark.parametrize(
    "path", [path for path in PAGES if handlers(Page.read(path))], ids=lambda path: path.name
)
def test_the_handlers_of_a_page_run(path: Path) -> None:
    for block in handlers(Page.read(path)):
        made: dict[str, Any] = {"__name__": "handler_of_a_page"}
        exec(compile(block.text, block.title, "exec"), made)
        job_input, holds = JOBS[block.title]
        assert holds(LocalJob(made.get("handler") or made["Handler"], job_input).run()), block.title


def test_the_handler_of_the_page_that_saves_goes_on_from_each_save() -> None:
    (film,) = [
        one for one in handlers(Page.read(ROOT / "docs" / "handlers.md")) if one.title.endswith("film.py")
    ]
    assert len(film.text.strip().splitlines()) <= 15
    made: dict[str, Any] = {}
    exec(film.text, made)
    whole = LocalJob(made["handler"], {"scenes": 4}).run()
    for save in whole.saves:
        rest = LocalJob(made["handler"], {"scenes": 4}, saved=save).run()
        assert (rest.output, rest.metrics) == (whole.output, {"scenes": 4})
        assert rest.chunks == whole.chunks[save.upto :]


def test_the_handler_of_the_page_that_reads_its_kept_chunks_goes_on_or_begins_again() -> None:
    (chapters,) = [
        one for one in handlers(Page.read(ROOT / "docs" / "handlers.md")) if one.title.endswith("chapters.py")
    ]
    made: dict[str, Any] = {}
    exec(chapters.text, made)
    whole = LocalJob(made["handler"], {"chapters": 5}).run()
    for save in whole.saves:
        for kept in (save.kept, None):
            rest = LocalJob(made["handler"], {"chapters": 5}, saved=replace(save, kept=kept)).run()
            assert rest.output == whole.output
            assert rest.chunks == whole.chunks[save.upto :]


def test_the_local_run_of_the_page_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page.read(ROOT / "docs" / "handlers.md")
    first = handlers(page)[0]
    (local,) = [block for block in page.blocks("python") if "LocalJob(" in block.text]
    made: dict[str, Any] = {}
    exec(first.text, made)
    exec(local.text, made)
    assert LocalFile.__name__ in capsys.readouterr().out


# -- wrong lines are found

RIGHT = """# A page

```sh
make demo
stoker agent --control control.example.com:8001 --tls-ca ca.pem --grace 60
curl -s localhost:8000/v2/caption/status/ID?ttl=60000
python -P bench/unauthenticated.py --seconds 60
```

```python
from stoker.client import Client

with Client() as stoker:
    stoker.wait("caption", "id", timeout_s=60)
```

```toml
[retention]
async_s = 60
```

| `[retention]` | default | meaning |
|---|---|---|
| `async_s` | 1800 | of `/run` |
| `sync_s` | 60 | of `/runsync` |

| `stoker agent` | default | meaning |
|---|---|---|
| `--grace` | 30.0 | seconds |

`stoker up --reload`, `STOKER_GRACE_S`, `POST /run`, `GET /requests?status=`, `control/http/calls`,
[a link](#a-page).
"""

WRONG = [
    ("make demo", "make demon", "no target demon"),
    ("--grace 60", "--grease 60", "No such option"),
    ("--grace 60", "--grace soon", "not a valid float"),
    ("stoker agent --control control.example.com:8001", "stoker agent", "Missing option '--control'"),
    ("stoker agent", "stoker agents", "no command stoker agents"),
    ("/v2/caption/status/ID", "/v2/caption/state/ID", "no OpenAPI document has the path"),
    ("ttl=60000", "life=60000", "no query parameter life"),
    ("curl -s", "curl -s -X DELETE", "not DELETE"),
    ("bench/unauthenticated.py", "bench/authenticated.py", "no file bench/authenticated.py"),
    ("--seconds 60", "--minutes 1", "no option --minutes"),
    ("import Client", "import Clients", "has no Clients"),
    ("stoker.wait", "stoker.await_", "the client has no await_"),
    ("timeout_s=60", "timeout=60", "unexpected keyword argument 'timeout'"),
    ("async_s = 60", "asynch_s = 60", "not a known field"),
    ("| 1800 |", "| 3600 |", "the default of async_s is 1800"),
    ("| `sync_s` |", "| `synch_s` |", "there is no field synch_s"),
    ("| 30.0 |", "| 60.0 |", "the default of --grace is 30.0"),
    ("| `--grace` |", "| `--grease` |", "stoker agent has no option --grease"),
    ("stoker up --reload", "stoker up --reloaded", "no option --reloaded"),
    ("STOKER_GRACE_S", "STOKER_GRACE_MS", "no program reads STOKER_GRACE_MS"),
    ("`POST /run`", "`GET /run`", "takes POST, not GET"),
    ("?status=", "?state=", "no query parameter state"),
    ("`control/http/calls`", "`control/apis`", "no control/apis in the tree"),
    ("(#a-page)", "(#b-page)", "no heading b-page"),
    ("(#a-page)", "(pages.md)", "leads nowhere"),
    ("```toml", "```yaml", "not checked by anything"),
]


def test_a_page_that_is_right_has_no_faults(tmp_path: Path) -> None:
    assert faults(Page(tmp_path / "page.md", RIGHT), tmp_path) == []


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_a_wrong_line_of_a_page_is_found(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    assert right in RIGHT
    found = faults(Page(tmp_path / "page.md", RIGHT.replace(right, wrong)), tmp_path)
    assert any(message in problem for problem in found), found
