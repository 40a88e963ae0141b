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
        data_provider = atheris.FuzzedDataProvider(data)
        chunks, fds = framed(data_provider) if data_provider.ConsumeBool() else raw(data_provider)
        reader = frames.FrameReader()
        try:
            for chunk in chunks:
                for frame in map(frames.with_body, reader.feed(chunk, fds)):
                    self.received(frame)
                fds = []
        except frames.FrameError:
            self.refused += 1
        finally:
            reader.close()
        self.inputs += 1
        if self.inputs % LOOK_EVERY == 0:
            self.look()

    def received(self, frame: frames.Frame) -> None:
        try:
            reported = worker_frames.read(frame)
            worker_frames.require_timely(reported, setup_ended=True, known=KNOWN)
            self.facts += 1
        finally:
            frame.close()

    def look(self) -> None:
        if (found := len(os.listdir("/proc/self/fd"))) > self.open:
            raise AssertionError(f"{found} descriptors are open, and there were {self.open}")
        if self.inputs % (10 * LOOK_EVERY) == 0:
            print(f"{self.inputs} inputs: {self.facts} facts, {self.refused} refused", flush=True)


def raw(data_provider: atheris.FuzzedDataProvider) -> tuple[list[bytes], list[int]]:
    fds = descriptors(data_provider)
    return [
        data_provider.ConsumeBytes(data_provider.ConsumeIntInRange(0, 64))
        for _ in range(data_provider.ConsumeIntInRange(1, 4))
    ], fds


def framed(data_provider: atheris.FuzzedDataProvider) -> tuple[list[bytes], list[int]]:
    fields: dict[str, object] = {"t": data_provider.PickValueInList(KINDS), "job": "j", "attempt": 1}
    for _ in range(data_provider.ConsumeIntInRange(0, 6)):
        fields[data_provider.PickValueInList(NAMES)] = value(data_provider)
    header = json.dumps(fields).encode()
    fds = descriptors(data_provider)
    body = data_provider.ConsumeBytes(data_provider.ConsumeIntInRange(0, 64))
    whole = struct.pack(">II", len(header), len(body)) + header + body
    cut = data_provider.ConsumeIntInRange(0, len(whole))
    return [whole[:cut], whole[cut:]], fds


def value(data_provider: atheris.FuzzedDataProvider, depth: int = 0) -> object:
    match data_provider.ConsumeIntInRange(0, 9 if depth < 3 else 7):
        case 0:
            return None
        case 1:
            return data_provider.ConsumeBool()
        case 2:
            return data_provider.ConsumeInt(8)
        case 3:
            return data_provider.ConsumeInt(200)
        case 4:
            return data_provider.ConsumeFloat()
        case 5 | 6:
            return data_provider.ConsumeUnicode(20)
        case 7:
            return data_provider.ConsumeIntInRange(0, 3)
        case 8:
            return [value(data_provider, depth + 1) for _ in range(data_provider.ConsumeIntInRange(0, 3))]
        case _:
            return {data_provider.ConsumeUnicode(5): value(data_provider, depth + 1)}


def sealed(data_provider: atheris.FuzzedDataProvider) -> int:
    fd = os.memfd_create("body", os.MFD_ALLOW_SEALING)
    os.write(fd, data_provider.ConsumeBytes(data_provider.ConsumeIntInRange(0, 64)))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, frames.SEALS)
    return fd


SOURCES: list[Callable[[atheris.FuzzedDataProvider], int]] = [
    sealed,
    lambda _: os.memfd_create("not sealed"),
    lambda _: os.eventfd(0),
    lambda _: os.open("/", os.O_RDONLY),
    lambda _: os.open("/proc/self/mem", os.O_RDONLY),
]


def descriptors(data_provider: atheris.FuzzedDataProvider) -> list[int]:
    return [
        data_provider.PickValueInList(SOURCES)(data_provider)
        for _ in range(max(0, data_provider.ConsumeIntInRange(-6, 3)))
    ]


if __name__ == "__main__":
    fuzz = Fuzz()
    atheris.Setup(sys.argv, fuzz.one)
    atheris.Fuzz()
