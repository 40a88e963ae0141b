"""Speech with known phoneme times, spoken by espeak-ng: what the viseme network is trained on.

Needs the shared library of espeak-ng (the system package `espeak-ng`). Nothing but the training imports this.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIBRARY = "libespeak-ng.so.1"
_RETRIEVAL, _PHONEME_EVENTS = 1, 1
_TERMINATED, _PHONEME = 0, 7
_RATE, _PITCH, _RANGE = 1, 3, 4
_UTF8 = 1


class _Id(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("id", _Id),
    ]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A spoken text. `samples`: mono, from -1 to 1, `rate` a second. `phonemes`: espeak-ng's names, each with
    the second at which it begins."""

    samples: NDArray[np.float32]
    rate: int
    phonemes: tuple[tuple[float, str], ...]


class Voices:
    """The speech synthesizer, once in a process: the library has one state."""

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL(_LIBRARY)
        self._rate = self._library.espeak_Initialize(_RETRIEVAL, 0, None, _PHONEME_EVENTS)
        self._waves: list[NDArray[np.int16]] = []
        self._phonemes: list[tuple[float, str]] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
        )
        self._callback = kind(self._received)
        self._library.espeak_SetSynthCallback(self._callback)

    def _received(self, wave: Any, samples: int, events: Any) -> int:
        if wave and samples:
            self._waves.append(np.ctypeslib.as_array(wave, (samples,)).copy())
        n = 0
        while events[n].type != _TERMINATED:
            if events[n].type == _PHONEME:
                name = events[n].id.string.decode("utf-8", "replace")
                self._phonemes.append((events[n].audio_position / 1000, name))
            n += 1
        return 0

    def speak(self, text: str, voice: str, *, rate: int = 175, pitch: int = 50, spread: int = 50) -> Spoken:
        """Speaks a text. `voice` is a name of espeak-ng's, such as "en-us+f3"; `rate` is in words a minute,
        `pitch` and `spread` go from 0 to 100. Raises LookupError for an unknown voice."""
        self._waves, self._phonemes = [], []
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise LookupError(f"espeak-ng has no voice {voice!r}")
        for parameter, value in ((_RATE, rate), (_PITCH, pitch), (_RANGE, spread)):
            self._library.espeak_SetParameter(parameter, value, 0)
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        samples = np.concatenate(self._waves or [np.zeros(0, np.int16)]).astype(np.float32)
        return Spoken(samples / np.float32(32768), self._rate, tuple(self._phonemes))
