"""Where a token that control is started with came from, as its name in the store and as advice.

`stoker up` hands tokens on in variables, whatever it had them from: it tells the file in a second variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.cli import dotenv

API_KEY, JOIN_TOKEN = "STOKER_API_KEY", "STOKER_JOIN_TOKEN"
_WORDS = {API_KEY: "API key", JOIN_TOKEN: "join token"}


@dataclass(frozen=True, slots=True)
class Source:
    """`file` is None for a variable of the environment, which only its owner can change."""

    variable: str
    file: Path | None = None

    @classmethod
    def told(cls, variable: str, given: Mapping[str, str]) -> Source:
        file = given.get(f"{variable}_SOURCE")
        return cls(variable, Path(file) if file else None)

    def tell(self) -> dict[str, str]:
        """What `told` understands."""
        return {} if self.file is None else {f"{self.variable}_SOURCE": str(self.file)}

    @property
    def name(self) -> str:
        """As `stoker key list` shows the token."""
        return "environment" if self.file is None else f"file {self.file.name}"

    @property
    def where(self) -> str:
        if self.file is None or self.file.name == dotenv.FILE:
            return f"{self.variable} in {self.file or 'the environment'}"
        return str(self.file)

    @property
    def revoked(self) -> str:
        gone = "was revoked, or has expired"
        if self.file is None:
            return f"{self.variable} {gone}: take it out of the environment, or set another"
        if self.file.name == dotenv.FILE:
            return f"{self.variable} in {self.file} {gone}: take the line out, or set another"
        what = _WORDS[self.variable]
        return f"the {what} in {self.file} {gone}: remove the file, and `stoker up` makes another"
