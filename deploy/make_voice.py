"""Makes deploy/voice.flac, the voice of the demo: a sentence of our own, spoken by espeak-ng.

    apt-get install espeak-ng
    python -P deploy/make_voice.py [FILE]

The file lies in the repository, so that nobody needs espeak-ng: run this to make it anew, or to let it say
something else. What a program speaks by rule belongs to nobody, and neither does the sentence.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import av

VOICE = Path(__file__).with_name("voice.flac")
SENTENCE = "Hello, I was only a picture."
VOICE_OF = ("espeak-ng", "-v", "en-us", "-s", "185", "-p", "45", "-g", "0")
RATE = 16_000


def speak(sentence: str, out: Path) -> None:
    """Mono, 16 kHz, 16 bits."""
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "said.wav"
        subprocess.run([*VOICE_OF, "-w", str(wave), sentence], check=True)
        with (
            av.open(str(wave)) as said,
            av.open(str(out), "w", format="flac", options={"fflags": "+bitexact"}) as made,
        ):
            stream = made.add_stream("flac", rate=RATE, layout="mono", format="s16")
            resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
            for frame in [*said.decode(audio=0), None]:
                for part in resampler.resample(frame):
                    made.mux(stream.encode(part))
            made.mux(stream.encode(None))


if __name__ == "__main__":
    speak(SENTENCE, Path(sys.argv[1]) if len(sys.argv) > 1 else VOICE)
