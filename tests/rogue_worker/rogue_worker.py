"""A worker program that says whatever its job's input tells it to, over its real socket.

Run as a worker's module by the real spawner. With STOKER_ROGUE in its environment it is the rogue; without,
it is the honest runtime, so that both can live on one agent. The input of a rogue's job:

    [{"header": "<text, sent as it is>", "body": "<text>", "fds": ["pipe", ...], "cut": 7, "took": "<path>"},
     ...]

Each is sent in turn; `JOB` and `ATTEMPT` in a header stand for the job's own, and `cut` leaves the rest of
the frame out; at `took` a file is made once the agent has taken a chunk. Then it sits there, answers nothing
and ignores what it can of signals. The input "honest" is answered with "served". With STOKER_ROGUE=early it
speaks before it is ready: what the variable STOKER_SAYS holds.

`handlers/interfering/takes_over.py` is the same under an agent that starts no other module: at its import it
takes the socket from the runtime, which has heard `setup` already; control wants an object there:
{"says": [...]}.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import tempfile

MIB = 1 << 20
READY = struct.pack(">II", 29, 0) + b'{"t":"ready","concurrency":1}'


def sealed(size):
    fd = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 14)
    return fd


def sparse(folder):
    fd = os.open(os.path.join(folder, "sparse"), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 40)
    return fd


DESCRIPTORS = {
    "pipe": lambda folder: os.pipe()[0],
    "socket": lambda folder: socket.socketpair()[0].detach(),
    "folder": lambda folder: os.open(folder, os.O_RDONLY),
    "process": lambda folder: os.pidfd_open(os.getpid()),
    "event": lambda folder: os.eventfd(0),
    "memory of a process": lambda folder: os.open("/proc/self/mem", os.O_RDONLY),
    "device": lambda folder: os.open("/dev/zero", os.O_RDONLY),
    "path": lambda folder: os.open(folder, os.O_PATH),
    "of another": lambda folder: os.open(__file__, os.O_RDONLY),
    "memfd": lambda folder: os.memfd_create("plain"),
    "zeros": lambda folder: sealed(MIB),
    "sparse": sparse,
}


def send(sock, what, about):
    header = what["header"].replace("JOB", about["job"]).replace("ATTEMPT", str(about["attempt"])).encode()
    body = what.get("body", "").encode("latin-1")
    data = struct.pack(">II", len(header), len(body)) + header + body
    fds = [DESCRIPTORS[name](about["scratch"]) for name in what.get("fds", ())]
    sent = socket.send_fds(sock, [data[: what.get("cut", len(data))]], fds)
    if "cut" not in what:
        sock.sendall(data[sent:])
    for fd in fds:
        os.close(fd)


def rogue(sock, how):
    """Until the agent's end is closed."""
    from stoker.worker.frames import Frame, FrameReader, encode, with_body

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reader, took = FrameReader(), os.devnull
    if how == "after setup":
        sock.sendall(READY)
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 8)
        if not data:
            return
        for frame in map(with_body, reader.feed(data, fds)):
            about = {"scratch": tempfile.gettempdir(), "job": "none", "attempt": 1, **frame.fields}
            if frame.kind == "setup":
                if how == "early":
                    send(sock, json.loads(os.environ["STOKER_SAYS"]), about)
                sock.sendall(READY)
            elif frame.kind == "run" and json.loads(frame.body) == "honest":
                end = Frame("done", {"job": frame.job, "attempt": frame.attempt}, b'"served"')
                sock.sendall(encode(end)[0])
            elif frame.kind == "run":
                os.makedirs(about["scratch"], 0o700, exist_ok=True)
                job_input = json.loads(frame.body)
                for what in job_input["says"] if isinstance(job_input, dict) else job_input:
                    took = what.get("took", took)
                    send(sock, what, about)
            elif frame.kind == "took":
                open(took, "w").close()


if __name__ == "__main__":
    if how := os.environ.get("STOKER_ROGUE"):
        rogue(socket.socket(fileno=int(sys.argv[2])), how)
    else:
        from stoker.worker.runtime import main

        sys.exit(main(sys.argv[1:]))
