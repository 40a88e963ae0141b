"""A server that prints what it is sent, and ends where it is told to."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer()

    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        if self.path == "/end":
            os._exit(3)
        self._answer()

    def _answer(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *about):
        pass


print("listening", flush=True)
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
