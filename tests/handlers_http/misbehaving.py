"""A server that breaks HTTP in ways that real ones do, by path. `python misbehaving.py` serves on $PORT.

/bodies/head, /bodies/204, /bodies/304   a body after what has none, in a segment of its own
/surplus                                 more than its Content-Length says; the rest spells a response
/length/204, /length/304                 no body, and a Content-Length
/early/401, /early/413                   an answer to the head alone; the body stays unread, the connection ends
/forgets                                 one answer, and an end without one to the next request of the connection
/nonsense, /half, /nothing               what is no response, half a head, an end at once
"""

from __future__ import annotations

import os
import socket
import socketserver
from http import HTTPStatus

PRIVATE = b"private words of one caller"
POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n" + PRIVATE


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class Misbehaving(socketserver.StreamRequestHandler):
    """One connection. `answered` counts its requests."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.answered = 0
        try:
            while head := self.head():
                if not self.answer(*head):
                    return
                self.answered += 1
        except OSError:
            pass

    def head(self) -> tuple[str, str] | None:
        """The method and the path of the next request."""
        first = self.rfile.readline().split()
        while self.rfile.readline().strip():
            pass
        return (first[0].decode(), first[1].decode()) if len(first) > 1 else None

    def send(self, status: int, body: bytes = b"", *, length: int | None = None, more: str = "") -> None:
        told = len(body) if length is None else length
        phrase = HTTPStatus(status).phrase
        self.wfile.write(f"HTTP/1.1 {status} {phrase}\r\nContent-Length: {told}\r\n{more}\r\n".encode())
        self.wfile.write(body)

    def answer(self, method: str, path: str) -> bool:
        """Whether the connection goes on."""
        match path.strip("/").split("/"):
            case ["ping"]:
                self.send(200)
            case ["bodies", kind]:
                self.send(200 if kind == "head" else int(kind), PRIVATE)
            case ["surplus"]:
                self.send(200, b"enough" + POISON, length=6)
            case ["length", status]:
                self.send(int(status), length=1_000)
            case ["early", status]:
                self.send(int(status), b"told early", more="Connection: close\r\n")
                return False
            case ["forgets"] if self.answered:
                return False
            case ["nonsense"]:
                self.wfile.write(PRIVATE + b"\r\n\r\n")
            case ["half"]:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + PRIVATE)
                return False
            case ["nothing"]:
                return False
            case _:
                self.send(200, f"{method} {path}".encode())
        return True



if __name__ == "__main__":
    with Server(("127.0.0.1", int(os.environ["PORT"])), Misbehaving) as server:
        server.serve_forever()
