"""Holds the source to the shape that DESIGN.md draws: `rooms.py --check` compares, `rooms.py --write` draws.

- Each folder of source has three to twenty files.
- No module imports itself by way of others, nor do the folders of `NO_RING`: imports inside functions and for
  the type checker count, too.
- A module whose docstring says "Pure" imports no clock, no loop and nothing of the system.
- The drawing of the rooms in DESIGN.md is the one that the code makes.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("worker", "models", "wire", "outbound", "client", "page", "agent", "control", "cli", "testing")
NO_RING = ("agent", "control", "models", "page", "worker")
"""Parts whose folders import each other in one direction only. A module beside other folders stands for
itself."""
FEWEST, MOST = 3, 20
IMPURE = {
    *("asyncio", "datetime", "logging", "os", "random", "select", "socket", "sqlite3", "ssl"),
    *("subprocess", "tempfile", "threading", "time"),
}
BEGIN, END = "<!-- rooms: drawn by .ci/rooms.py -->", "<!-- end of rooms -->"


def sources() -> dict[str, ast.Module]:
    """Every module of the product by its dotted name, a package by its own; generated stubs are left out."""
    found = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            if "_pb2" not in path.name:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[str, str]]:
    """Module and name of each import, of the whole file unless `nodes` are given."""
    for node in nodes or ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def at_start(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs as the module is imported: no body of a function, nothing for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from at_start(node)


def arrows(modules: dict[str, ast.Module], *, later: bool = False) -> dict[str, set[str]]:
    """Which of our modules each imports as it is imported; with `later` those in functions and for the type
    checker, too."""
    found: dict[str, set[str]] = {}
    for name, tree in modules.items():
        found[name] = set()
        for module, member in imported(tree, None if later else at_start(tree)):
            whole = f"{module}.{member}".removeprefix("stoker.")
            other = whole if whole in modules else module.removeprefix("stoker.")
            if module.startswith("stoker.") and other in modules and other != name:
                found[name].add(other)
    return found


def between_folders(to: dict[str, set[str]], part: str) -> dict[str, set[str]]:
    """Which folders of a part import which."""
    found: dict[str, set[str]] = {}
    for name, others in to.items():
        if name.startswith(f"{part}."):
            room = found.setdefault(room_of(name), set())
            room |= {room_of(other) for other in others if other.startswith(f"{part}.")}
            room.discard(room_of(name))
    return found


def room_of(name: str) -> str:
    folder = ROOT / Path(*folder_of(name).split("."))
    return name if any(folder.glob("*/__init__.py")) else folder_of(name)


def circle(to: dict[str, set[str]]) -> list[str] | None:
    """Modules that import each other in a ring; None where there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in sorted(to[name]):
                if found := walk(other, [*path, name]):
                    return found
            done.add(name)
        return None

    return next((found for name in to if (found := walk(name, []))), None)


def impure(modules: dict[str, ast.Module]) -> Iterator[str]:
    for name, tree in modules.items():
        if re.search(r"\bPure\b", ast.get_docstring(tree) or ""):
            wrong = {module.partition(".")[0] for module, _ in imported(tree)} & IMPURE
            if wrong:
                yield f"{name} says that it is pure and imports {', '.join(sorted(wrong))}"


def sizes(modules: dict[str, ast.Module]) -> Iterator[str]:
    for folder, files in folders(modules).items():
        if len(files) > MOST:
            yield f"{folder}/ has {len(files)} files; at most {MOST} are allowed"
        rooms = [name for name in folders(modules) if Path(name).parent == Path(folder)]
        if len(files) - 1 + len(rooms) < FEWEST:
            yield f"{folder}/ has {len(files) - 1} files; fewer than {FEWEST} are not a folder of their own"


def folders(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The modules of each folder, its own first."""
    found: dict[str, list[str]] = {}
    for name in modules:
        found.setdefault(folder_of(name).replace(".", "/"), []).append(name)
    return found


def folder_of(name: str) -> str:
    return name if (ROOT / Path(*name.split("."))).is_dir() else name.rpartition(".")[0]


def drawing(modules: dict[str, ast.Module]) -> str:
    """Each folder: what it is for, how many modules it has, and which folders it imports."""
    to, lines = arrows(modules), ["```text"]
    for folder, names in folders(modules).items():
        room = folder.replace("/", ".")
        says = (ast.get_docstring(modules[room]) or "").partition("\n\n")[0].replace("\n", " ")
        beyond = {folder_of(other) for name in names for other in to[name]} - {room}
        indent = "    " * folder.count("/")
        lines.append(
            f"{indent}{Path(folder).name}/ ({len(names) - 1})  {says.partition('. ')[0].rstrip('.')}"
        )
        if beyond:
            lines.append(f"{indent}    -> {', '.join(sorted(shortened(other, room) for other in beyond))}")
    return "\n".join([*lines, "```"])


def shortened(other: str, room: str) -> str:
    """A folder of the same part begins with a dot."""
    part, _, rest = other.partition(".")
    return f".{rest}" if rest and part == room.partition(".")[0] else other


def main(mode: str) -> int:
    modules = sources()
    design = ROOT / "DESIGN.md"
    before, begin, rest = design.read_text(encoding="utf-8").partition(BEGIN)
    drawn, end, after = rest.partition(END)
    if not end:
        print(f"DESIGN.md has no lines {BEGIN!r} and {END!r}", file=sys.stderr)
        return 1
    made = f"\n{drawing(modules)}\n"
    if mode == "--write":
        design.write_text(f"{before}{begin}{made}{end}{after}", encoding="utf-8")
        return 0
    faults = [*sizes(modules), *impure(modules)]
    to = arrows(modules, later=True)
    rings = [circle(to), *(circle(between_folders(to, part)) for part in NO_RING)]
    faults += [f"these import each other in a ring: {' -> '.join(ring)}" for ring in rings if ring]
    if drawn != made:
        faults.append("the drawing of the rooms in DESIGN.md is not what the code makes: run make rooms")
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
