"""Makes deploy/voice.flac, the speech of the demo, with espeak-ng.

    apt-get install espeak-ng
    python -P deploy/make_voice.py [FILE]

The file is in the repository, so that the demo does not need espeak-ng. Run this to make it again, or with
another text. Speech made by a program's rules has no copyright, and neither has this text.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import av
import soundfile

SPEECH = Path(__file__).with_name("voice.flac")
TEXT = "Hello, I was only a picture."
SPEAK = ("espeak-ng", "-v", "en-us", "-s", "185", "-p", "45", "-g", "0")
RATE = 16_000


def speak(text: str, out: Path) -> None:
    """Writes the speech as mono, 16 kHz, 16 bits."""
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "speech.wav"
        subprocess.run([*SPEAK, "-w", str(wave), text], check=True)
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        with (
            av.open(str(wave)) as speech,
            soundfile.SoundFile(out, "w", RATE, channels=1, subtype="PCM_16", format="FLAC") as flac,
        ):
            for frame in [*speech.decode(audio=0), None]:
                for part in resampler.resample(frame):
                    flac.write(part.to_ndarray()[0])


if __name__ == "__main__":
    speak(TEXT, Path(sys.argv[1]) if len(sys.argv) > 1 else SPEECH)
