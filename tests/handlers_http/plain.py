"""The standard library's server, which speaks HTTP/1.0 and closes each connection."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()
        self.wfile.write(body.upper())


HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
