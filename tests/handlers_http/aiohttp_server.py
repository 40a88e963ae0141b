"""An aiohttp app for a load-balancing endpoint: the same paths as those of app.py that its test needs."""

import asyncio
import os
from pathlib import Path

from aiohttp import web

STATE = Path(os.environ["STATE"])


async def ping(request):
    return web.Response()


async def echo(request):
    body = (await request.read()).decode()
    return web.json_response({"method": request.method, "path": request.path_qs, "body": body})


async def upload(request):
    return web.json_response({"size": sum([len(piece) async for piece in request.content.iter_any()])})


async def events(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: first\n\n")
    while not (STATE / "go").exists():
        await asyncio.sleep(0.01)
    await response.write(b"data: last\n\n")
    return response


async def held(request):
    (STATE / "held").touch()
    try:
        await asyncio.Event().wait()
    finally:
        (STATE / "told").touch()


async def chat(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(message.data)
    return socket


app = web.Application(client_max_size=64 << 20)
app.router.add_get("/ping", ping)
app.router.add_route("*", "/echo/{rest:.*}", echo)
app.router.add_post("/upload", upload)
app.router.add_get("/events", events)
app.router.add_get("/held", held)
app.router.add_get("/chat", chat)
# aiohttp tells a handler that its caller left where it is asked to.
web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), handler_cancellation=True, print=None)
