"""Holds docstrings to plain English: `words.py` prints each that begins in another way, and fails.

- The docstring of a function begins with a verb in the third person: "Returns", "Stores". A property's and a
  fixture's may name what they are.
- The docstring of a class or module begins with a noun: no word that refers to something named elsewhere. A
  class says what it is before it explains a field.
- A text says "is not a", and not "is no": "there is no" and "is no longer" are other words.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "worker",
    "models",
    "wire",
    "outbound",
    "client",
    "page",
    "agent",
    "control",
    "cli",
    "testing",
    "training",
)
REFUSED = {
    *("What", "How", "Whether", "Why", "Who", "Which", "When", "Where"),
    *("One", "Those", "Its", "It", "This", "Of", "By", "As", "At", "In", "To"),
}
"""First words of a clause, after which a reader still asks: of what?"""
VERB = re.compile(r"[A-Z][a-z]*s\b")
IS_NO = re.compile(
    r"(?<!here )\b(?:is|are|was) no (?!longer\b|more\b|process\b|guidance\b|output\b|response\b)\w+"
)


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yields each definition of a module, and the module itself, with its docstring."""
    defined = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, defined) and (text := ast.get_docstring(node)):
            yield node, text


def is_property(node: ast.AST) -> bool:
    return any("property" in ast.unparse(one) for one in getattr(node, "decorator_list", ()))


def fault(node: ast.AST, text: str) -> str | None:
    """Returns what is wrong with the first word of a docstring."""
    first = text.split(maxsplit=1)[0].strip("`\"'.,:;()")
    if first in REFUSED:
        return f'begins with "{first}"'
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if is_function and not is_property(node) and not VERB.match(text):
        return f'begins with "{first}", which is not a verb in the third person'
    if isinstance(node, ast.ClassDef) and text.startswith("`"):
        return f'begins with the field "{first}": say first what the class is'
    return None


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line of each text of a module that says "is no", and the words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, one[0]) for one in IS_NO.finditer(node.value))


def main() -> int:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {why}: {text.splitlines()[0]}"
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        if "_pb2" not in path.name
        for node, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if (why := fault(node, text))
    ]
    found += [
        f"{path.relative_to(ROOT)}:{line}: says {words!r}: write that it is not a"
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        if "_pb2" not in path.name
        for line, words in texts(ast.parse(path.read_text(encoding="utf-8")))
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
