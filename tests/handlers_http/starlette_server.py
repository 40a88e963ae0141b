"""A Starlette app for a load-balancing endpoint: the same paths as those of app.py that its test needs."""

import asyncio
import os
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

STATE = Path(os.environ["STATE"])


async def ping(request):
    return PlainTextResponse("")


async def echo(request):
    body = (await request.body()).decode()
    path = f"{request.url.path}?{request.url.query}"
    return JSONResponse({"method": request.method, "path": path, "body": body})


async def upload(request):
    return JSONResponse({"size": sum([len(piece) async for piece in request.stream()])})


async def events(request):
    async def made():
        yield "data: first\n\n"
        while not (STATE / "go").exists():
            await asyncio.sleep(0.01)
        yield "data: last\n\n"

    return StreamingResponse(made(), media_type="text/event-stream")


async def held(request):
    (STATE / "held").touch()
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    (STATE / "told").touch()
    return PlainTextResponse("")


async def chat(socket):
    await socket.accept()
    try:
        while True:
            await socket.send_bytes(await socket.receive_bytes())
    except WebSocketDisconnect:
        pass


app = Starlette(
    routes=[
        Route("/ping", ping),
        Route("/echo/{rest:path}", echo, methods=["PUT"]),
        Route("/upload", upload, methods=["POST"]),
        Route("/events", events),
        Route("/held", held),
        WebSocketRoute("/chat", chat),
    ]
)
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
