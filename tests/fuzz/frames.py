"""Fuzzes what the agent reads of a worker's socket: bytes, descriptors and fields, with coverage (atheris).

    make fuzz          or: .venv/bin/python -P tests/fuzz/frames.py -atheris_runs=1000000

Half of the inputs are the socket's bytes as they are, in pieces; half are frames of the vocabulary whose
fields the fuzzer chooses, so that they get past the framing. Whatever it is ends as a fact of the vocabulary
or as a FrameError, and leaves no descriptor open; any other exception ends the run, and its input is kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["stoker.worker.frames", "stoker.agent.worker_frames"]):
    from stoker.agent import worker_frames
    from stoker.worker import frames

from stoker.wire.messages import AttemptKey

KINDS = [*sorted(worker_frames.FRAME_RULES), "run", ""]
NAMES = sorted({name for word in worker_frames.FRAME_RULES.values() for name in word.fields})
NAMES += ["job", "attempt", "fd", "memfd", "t"]
KNOWN = {AttemptKey("j", 1)}
LOOK_EVERY = 10_000


class Fuzz:
    def __init__(self) -> None:
        self.inputs = self.facts = self.refused = 0
        self.open = len(os.listdir("/proc/self/fd"))

    def one(self, data: bytes) -> None:
        given = atheris.FuzzedDataProvider(data)
        pieces, fds = framed(given) if given.ConsumeBool() else raw(given)
        reader = frames.FrameReader()
        try:
            for piece in pieces:
                for frame in map(frames.with_body, reader.feed(piece, fds)):
                    self.heard(frame)
                fds = []
        except frames.FrameError:
            self.refused += 1
        finally:
            reader.close()
        self.inputs += 1
        if self.inputs % LOOK_EVERY == 0:
            self.look()

    def heard(self, frame: frames.Frame) -> None:
        try:
            told = worker_frames.read(frame)
            worker_frames.require_timely(told, setup_ended=True, known=KNOWN)
            self.facts += 1
        finally:
            frame.close()

    def look(self) -> None:
        if (found := len(os.listdir("/proc/self/fd"))) > self.open:
            raise AssertionError(f"{found} descriptors are open, and there were {self.open}")
        if self.inputs % (10 * LOOK_EVERY) == 0:
            print(f"{self.inputs} inputs: {self.facts} facts, {self.refused} refused", flush=True)


def raw(given: atheris.FuzzedDataProvider) -> tuple[list[bytes], list[int]]:
    fds = descriptors(given)
    return [
        given.ConsumeBytes(given.ConsumeIntInRange(0, 64)) for _ in range(given.ConsumeIntInRange(1, 4))
    ], fds


def framed(given: atheris.FuzzedDataProvider) -> tuple[list[bytes], list[int]]:
    fields: dict[str, object] = {"t": given.PickValueInList(KINDS), "job": "j", "attempt": 1}
    for _ in range(given.ConsumeIntInRange(0, 6)):
        fields[given.PickValueInList(NAMES)] = value(given)
    header = json.dumps(fields).encode()
    fds = descriptors(given)
    body = given.ConsumeBytes(given.ConsumeIntInRange(0, 64))
    whole = struct.pack(">II", len(header), len(body)) + header + body
    cut = given.ConsumeIntInRange(0, len(whole))
    return [whole[:cut], whole[cut:]], fds


def value(given: atheris.FuzzedDataProvider, depth: int = 0) -> object:
    match given.ConsumeIntInRange(0, 9 if depth < 3 else 7):
        case 0:
            return None
        case 1:
            return given.ConsumeBool()
        case 2:
            return given.ConsumeInt(8)
        case 3:
            return given.ConsumeInt(200)
        case 4:
            return given.ConsumeFloat()
        case 5 | 6:
            return given.ConsumeUnicode(20)
        case 7:
            return given.ConsumeIntInRange(0, 3)
        case 8:
            return [value(given, depth + 1) for _ in range(given.ConsumeIntInRange(0, 3))]
        case _:
            return {given.ConsumeUnicode(5): value(given, depth + 1)}


def sealed(given: atheris.FuzzedDataProvider) -> int:
    fd = os.memfd_create("body", os.MFD_ALLOW_SEALING)
    os.write(fd, given.ConsumeBytes(given.ConsumeIntInRange(0, 64)))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, frames.SEALS)
    return fd


SOURCES: list[Callable[[atheris.FuzzedDataProvider], int]] = [
    sealed,
    lambda _: os.memfd_create("not sealed"),
    lambda _: os.eventfd(0),
    lambda _: os.open("/", os.O_RDONLY),
    lambda _: os.open("/proc/self/mem", os.O_RDONLY),
]


def descriptors(given: atheris.FuzzedDataProvider) -> list[int]:
    return [given.PickValueInList(SOURCES)(given) for _ in range(max(0, given.ConsumeIntInRange(-6, 3)))]


if __name__ == "__main__":
    fuzz = Fuzz()
    atheris.Setup(sys.argv, fuzz.one)
    atheris.Fuzz()
