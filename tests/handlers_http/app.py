"""A FastAPI app as people write it for a load-balancing endpoint: /ping, 204 while it loads, and its own
paths.

What it shall do meanwhile it reads from the folder $STATE: `loading`, `ill` and `ill-<worker>` are how /ping
answers, `go` lets /events and /waits end, and `told` is made once the caller of /held has left.
"""

import asyncio
import os
import resource
import signal
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

STATE = Path(os.environ["STATE"])
app = FastAPI()


@app.get("/ping")
async def ping():
    if (STATE / "ill").exists() or (STATE / f"ill-{os.environ['RUNPOD_POD_ID']}").exists():
        return Response(status_code=500)
    return Response(status_code=204 if (STATE / "loading").exists() else 200)


@app.api_route("/echo/{rest:path}", methods=["GET", "POST", "PUT", "DELETE", "PATCH"])
async def echo(request: Request):
    body = await request.body()
    told = {"method": request.method, "url": str(request.url), "body": body.decode()}
    return told | {
        "headers": dict(request.headers),
        "worker": os.environ["RUNPOD_POD_ID"],
        "pid": os.getpid(),
    }


@app.post("/upload")
async def upload(request: Request):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum([len(piece) async for piece in request.stream()])
    return {"size": size, "grown_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before}


@app.get("/bytes/{count}")
async def many(count: int):
    async def pieces():
        for _ in range(count // 65536):
            yield bytes(65536)

    return StreamingResponse(pieces(), media_type="application/octet-stream")


@app.get("/events")
async def events():
    async def made():
        yield "data: first\n\n"
        while not (STATE / "go").exists():
            await asyncio.sleep(0.01)
        yield "data: last\n\n"

    return StreamingResponse(made(), media_type="text/event-stream")


@app.get("/waits")
async def waits():
    while not (STATE / "go").exists():
        await asyncio.sleep(0.01)
    return {}


@app.get("/held")
async def held(request: Request):
    (STATE / "held").touch()
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    (STATE / "told").touch()


@app.get("/die")
async def die():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
