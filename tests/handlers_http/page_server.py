"""A program with a page, as those for making images have: HTML with relative addresses, a session by cookie,
uploads, events, and a WebSocket that tells of progress. The page uses all of it, and reports what it found;
the report is the file $STATE/report.

An address that the program writes itself begins with the prefix that the proxy before it names.
"""

import asyncio
import json
import os
from pathlib import Path

from aiohttp import WSMsgType, web

STATE = Path(os.environ["STATE"])

PAGE = """<!doctype html><title>page</title>
<link rel="stylesheet" href="../static/page.css"><h1>Page</h1>
<script src="../static/page.js"></script>"""

STYLE = "h1 { color: rgb(1, 2, 3) }"

SCRIPT = """
const report = { cookie: document.cookie, at: location.pathname };

async function use() {
  report.color = getComputedStyle(document.querySelector("h1")).color;
  const form = new FormData();
  form.append("note", "a picture");
  form.append("file", new Blob([new Uint8Array(3_000_000).fill(7)]), "picture.bin");
  report.upload = await (await fetch("../upload", { method: "POST", body: form })).json();
  report.session = await (await fetch("../session")).text();
  const moved = await fetch("../moved");
  report.moved = [moved.redirected, await moved.text()];
  report.events = await new Promise((done) => {
    const source = new EventSource("../events"), seen = [];
    source.onmessage = (event) => {
      seen.push(event.data);
      if (event.data === "last") { source.close(); done(seen); }
    };
  });
  report.socket = await new Promise((done, failed) => {
    const address = new URL("../ws", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address), seen = [];
    socket.binaryType = "arraybuffer";
    socket.onerror = () => failed("the WebSocket failed");
    socket.onopen = () => { socket.send("draw"); socket.send(new Uint8Array(200_000).fill(5)); };
    socket.onmessage = ({ data }) => {
      seen.push(typeof data === "string" ? data : data.byteLength);
      if (data === "done") socket.close(1000);
    };
    socket.onclose = ({ code, wasClean }) => done([...seen, code, wasClean]);
  });
}

use().catch((error) => { report.error = String(error); }).finally(
  () => fetch("../report", { method: "POST", body: JSON.stringify(report) }));
"""


async def ping(request):
    return web.Response()


async def start(request):
    """A first visit: gets a session, and goes to the page by an address of the program's own."""
    moved = web.Response(status=302, headers={"Location": f"{prefix(request)}/home/"})
    moved.set_cookie("theme", "dark")
    moved.set_cookie("session", "s-1", httponly=True, samesite="Lax")
    return moved


def prefix(request):
    return request.headers.get("X-Forwarded-Prefix", "")


async def page(request):
    return web.Response(text=PAGE, content_type="text/html")


async def style(request):
    return web.Response(text=STYLE, content_type="text/css")


async def script(request):
    return web.Response(text=SCRIPT, content_type="text/javascript")


async def upload(request):
    form = await request.post()
    data = form["file"].file.read()
    return web.json_response({"note": form["note"], "name": form["file"].filename, "sum": sum(data)})


async def session(request):
    return web.Response(text=request.cookies.get("session", "none"))


async def moved(request):
    """By a whole address, made of what the proxy says of the caller's."""
    told = request.headers
    return web.Response(
        status=307,
        headers={
            "Location": f"{told['X-Forwarded-Proto']}://{told['X-Forwarded-Host']}{prefix(request)}/session"
        },
    )


async def events(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in ("first", "last"):
        await response.write(f"data: {word}\n\n".encode())
        await asyncio.sleep(0)
    return response


async def progress(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type == WSMsgType.TEXT:
            for step in range(3):
                await socket.send_str(json.dumps({"step": step}))
        else:
            await socket.send_bytes(message.data * 2)
            await socket.send_str("done")
    return socket


async def report(request):
    (STATE / "report.new").write_bytes(await request.read())
    (STATE / "report.new").rename(STATE / "report")
    return web.Response()


app = web.Application(client_max_size=32 << 20)
app.router.add_get("/ping", ping)
app.router.add_get("/", start)
app.router.add_get("/home/", page)
app.router.add_get("/static/page.css", style)
app.router.add_get("/static/page.js", script)
app.router.add_post("/upload", upload)
app.router.add_get("/session", session)
app.router.add_get("/moved", moved)
app.router.add_get("/events", events)
app.router.add_get("/ws", progress)
app.router.add_post("/report", report)
web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), print=None)
