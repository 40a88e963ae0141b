"""What a driver does with its test: one JSON line in (`{"do": name, "given": {...}}`), one JSON line out.

Runs in the interpreter of the stock clients and imports nothing else than the standard library. Whatever the
clients print goes to stderr. A connection that would leave loopback is an error, wherever it is tried.
"""

import ipaddress
import json
import sys
from collections.abc import Callable
from typing import Any

Scenario = Callable[..., Any]


def _stays_on_loopback(event: str, details: tuple[Any, ...]) -> None:
    if event not in {"socket.connect", "socket.sendto"}:
        return
    address = details[1]
    if isinstance(address, tuple) and not ipaddress.ip_address(address[0]).is_loopback:
        raise RuntimeError(f"{event} to {address} would leave loopback")


def stay_on_loopback() -> None:
    """To be called before the first import of a client."""
    sys.addaudithook(_stays_on_loopback)


def converse(scenarios: dict[str, Scenario]) -> None:
    """Answers until stdin ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": scenarios[asked["do"]](**asked["given"])}
        except Exception as error:
            status = getattr(error, "status_code", None)
            answer = {"raised": type(error).__name__, "text": str(error), "status": status}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
