"""A process that imports a user's file and prints, as JSON, the schema that its handler declares.

    python -P -m stoker.cli.control.schema_process /handlers/ours.py:Ours
    {"schema": {"type": "object", ...}}     {"schema": null}     {"error": "why it cannot be known"}

A handler declares one as `input_schema()`, a class method: see `stoker.models.text_to_image.handler`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from stoker.cli.processes.parents import end_with_parent
from stoker.worker.errors import RegistrationError, describe
from stoker.worker.setup.registration import load


def main() -> None:
    end_with_parent(os.environ)
    with contextlib.redirect_stdout(sys.stderr):
        text = json.dumps(_declared(sys.argv[1]))
    print(text, flush=True)
    os._exit(0)  # threads that the file started must not hold up the answer


def _declared(handler: str) -> dict[str, Any]:
    try:
        declares = getattr(load(handler).target, "input_schema", None)
        schema = None if declares is None else declares()
        json.dumps(schema)
    except RegistrationError as error:
        return {"error": _first_line(str(error))}
    except BaseException as error:  # the user's code may raise anything
        return {"error": f"input_schema() raised {_first_line(describe(error))}"}
    return {"schema": schema}


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


if __name__ == "__main__":
    main()
