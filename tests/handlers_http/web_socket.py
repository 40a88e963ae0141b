"""A server of WebSockets from the standard library: sends each frame of a caller back to it, unmasked; and
the trailers of a chunked body."""

import asyncio
import base64
import hashlib
import os

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    if headers.get("transfer-encoding") == "chunked":
        await reader.readuntil(b"\r\n0\r\n")
        trailers = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n" + trailers)
        writer.close()
        return
    if headers.get("upgrade") != "websocket":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        return
    accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + MAGIC).digest()).decode()
    writer.write(
        f"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    try:
        while True:
            first, second = await reader.readexactly(2)
            length = second & 127
            if length == 126:
                length = int.from_bytes(await reader.readexactly(2), "big")
            mask = await reader.readexactly(4)
            data = bytes(byte ^ mask[n % 4] for n, byte in enumerate(await reader.readexactly(length)))
            size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
            writer.write(bytes([first]) + size + data)
    except EOFError:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


asyncio.run(main())
