"""A server of the standard library, as a worker of a load-balancing endpoint: it serves $PORT, and /ping."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/ping":
            self._answer(200, {"status": "healthy"})
        else:
            self._answer(200, {"path": self.path, "worker": os.environ.get("RUNPOD_POD_ID", "none")})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            text = json.loads(body)["text"]
        except (ValueError, KeyError, TypeError):
            self._answer(422, {"error": "the body must be a JSON object with a text"})
        else:
            self._answer(200, {"reversed": str(text)[::-1]})

    def _answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
