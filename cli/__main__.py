"""The start of the `stoker` command, also as `python -m stoker.cli`. Explains which libraries are missing."""

from __future__ import annotations

import sys
from typing import Any

from stoker.cli import extras


def main() -> Any:
    try:
        from stoker.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("stoker"):
            raise
        print(f"stoker: {extras.missing_module_message(error.name, sys.argv[1:])}", file=sys.stderr)
        sys.exit(1)
    return run()


if __name__ == "__main__":
    main()
