"""A pod's program: says over HTTP how often it was started, by its volume and by its container's own disk."""

import http.server
import json
import os
import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else lambda *_: sys.exit(0))
FACTS = {"env": dict(os.environ), "uid": os.getuid()}
with open("/proc/self/status") as status:
    FACTS["rights"] = {key: value.strip() for key, _, value in (line.partition(":") for line in status)}
for name, path in (("kept", os.environ.get("STOKER_VOLUME_PATH", "/tmp") + "/starts"), ("fresh", "/tmp/starts")):
    with open(path, "a+") as file:
        file.write("x")
        file.seek(0)
        FACTS[name] = len(file.read())


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(FACTS).encode())

    def log_message(self, *_):
        pass


port = int(os.environ.get(os.environ.get("PORT_OF", ""), "8000"))
http.server.HTTPServer(("", port), Page).serve_forever()
