"""The first line of each connection to the server of an app's functions, which its agent alone knows. Pure.

    agent ──"PROOF <token>"──> server ──the same token?──> requests, as many as come
                                       └─ another line ──> 401, closed: nothing more of it is read

Every process of a host can connect to a port on loopback, and the server runs the code that it is sent. The
agent draws a token at each start of the server and passes it in the server's environment, which other users
cannot read.
"""

from __future__ import annotations

import hmac

VARIABLE = "STOKER_FUNCTIONS_PROOF"
LINE_MAX = 200
READ_S = 5.0
"""How long the line may take."""


def line_of(token: str) -> bytes:
    return f"PROOF {token}\r\n".encode()


def is_proof(line: bytes, token: str) -> bool:
    """Returns whether the line proves that its sender has the token; an empty token proves nothing."""
    return bool(token) and hmac.compare_digest(line, line_of(token))
