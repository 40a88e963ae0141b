"""The source of a token that control is started with: for the token's name in the store, and for advice.

`stoker up` passes tokens in variables, and the name of a token's file in a second variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.client import dotenv

API_KEY, JOIN_TOKEN = "STOKER_API_KEY", "STOKER_JOIN_TOKEN"
_NAMES = {API_KEY: "API key", JOIN_TOKEN: "join token"}


@dataclass(frozen=True, slots=True)
class TokenSource:
    """A variable, or the file that its value was read from. Stoker cannot change a variable."""

    variable: str
    file: Path | None = None

    @classmethod
    def from_environment(cls, variable: str, variables: Mapping[str, str]) -> TokenSource:
        file = variables.get(f"{variable}_SOURCE")
        return cls(variable, Path(file) if file else None)

    def to_environment(self) -> dict[str, str]:
        """Returns the variable that `from_environment` reads."""
        return {} if self.file is None else {f"{self.variable}_SOURCE": str(self.file)}

    @property
    def name(self) -> str:
        """The name of the token in `stoker key list`."""
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
            return f"{self.variable} {gone}: remove it from the environment, or set another"
        if self.file.name == dotenv.FILE:
            return f"{self.variable} in {self.file} {gone}: remove the line, or set another"
        what = _NAMES[self.variable]
        return f"the {what} in {self.file} {gone}: remove the file, and `stoker up` makes another"
