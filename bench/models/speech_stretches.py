"""Compares the features of stretches of audio with those of the whole audio, at the true size of the encoder.

    python bench/models/speech_stretches.py [--seconds 200] [--chunks 12]
                                            [--json bench/results/speech-stretches.json]

wav2vec2-base gets random weights, with its attention as it is, and with scores ten times as large, so that
single moments count. The audio repeats the demo's speech at changing pitch and loudness, with pauses and
noise. Prints the cosine similarity, over layers and frames, between the features of the whole and of

    1 s ahead       a stretch around each chunk: 10 s before it and 1 s after it
    3 s ahead       the same with 3 s after it
    as served       what the model uses: up to two minutes at once, longer audio in stretches of that length;
                    chunks all over the audio, and the two at each seam

One chunk has the features of 85 frames. `as served` is 1 for two minutes if blocks and levels change nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import commit, hardware

from stoker.models.talking_video.audio.speech import RATE, EncodedSpeech, Samples
from stoker.models.talking_video.audio.stretches import DEFAULT, Stretch, Stretches

SPEECH = Path(__file__).parents[2] / "deploy" / "repeated_speech.flac"
FPS, CHUNK = 25, 85
SHARPER = 10.0


@dataclass(frozen=True)
class Around:
    """A stretch around each requested span."""

    behind: int
    ahead: int

    def over(self, first: int, last: int, frames: int) -> Iterator[Stretch]:
        yield Stretch(first, last, max(0, first - self.behind), min(frames, last + self.ahead))


def encoder(sharper: float) -> Any:
    import transformers

    torch.manual_seed(0)
    made = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config()).eval()
    with torch.no_grad():
        for layer in made.encoder.layers:
            layer.attention.q_proj.weight.mul_(sharper)
    return made


def repeated_speech(seconds: float) -> Samples:
    """Audio with mean 0 and about -23 LUFS."""
    rng, samples = np.random.default_rng(0), demo_speech()
    parts: list[NDArray[np.float64]] = []
    for _ in range(int(seconds)):
        pitch, loud = rng.uniform(0.8, 1.25), 10 ** rng.uniform(-0.6, 0.2)
        positions = np.arange(0, len(samples) - 1, pitch)
        parts += [
            loud * np.interp(positions, np.arange(len(samples)), samples),
            np.zeros(int(rng.uniform(0, 1.5) * RATE)),
        ]
    wave = np.concatenate(parts)[: round(seconds * RATE)]
    wave = wave / wave.std() * 0.07 + rng.normal(0, 0.0007, len(wave))
    return Samples(wave.astype(np.float32), float(wave.mean()), float(wave.std()))


def demo_speech() -> NDArray[np.float64]:
    read, rate = soundfile.read(SPEECH)
    assert rate == RATE
    return np.asarray(read)


def chunks_of(frames: int, count: int) -> list[int]:
    """The first frames of `count` chunks, from the beginning to the end."""
    return [round(first) for first in np.linspace(0, frames - CHUNK, count)]


def seams_of(frames: int) -> list[int]:
    """The first frames of the chunks before and after each seam."""
    seams = range(DEFAULT.used_frames, frames, DEFAULT.used_frames)
    return [first for seam in seams for first in (seam - CHUNK, seam) if 0 <= first <= frames - CHUNK]


def compared(
    encoder_: Any, samples: Samples, stretches: Any, firsts: list[int], whole: torch.Tensor
) -> dict[str, float]:
    speech = EncodedSpeech(encoder_, samples, len(whole), stretches)
    found = [
        torch.cosine_similarity(speech.features(first, first + CHUNK), whole[first : first + CHUNK], dim=-1)
        for first in firsts
    ]
    each = torch.stack(found)
    return {
        "mean": round(float(each.mean()), 5),
        "least_of_a_chunk": round(float(each.mean((1, 2)).min()), 5),
        "least": round(float(each.min()), 5),
    }


def measured(seconds: float, sharper: float, count: int) -> dict[str, Any]:
    encoder_, samples, frames = encoder(sharper), repeated_speech(seconds), round(seconds * FPS)
    whole = EncodedSpeech(encoder_, samples, frames, Stretches(whole_s=seconds)).features(0, frames)
    everywhere = chunks_of(frames, count)
    return {
        "1 s ahead": compared(encoder_, samples, Around(250, 25), everywhere, whole),
        "3 s ahead": compared(encoder_, samples, Around(250, 75), everywhere, whole),
        "as served": compared(encoder_, samples, DEFAULT, sorted({*everywhere, *seams_of(frames)}), whole),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=200.0, help="length of the longer audio")
    parser.add_argument("--chunks", type=int, default=12, help="how many chunks are compared")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    lengths = {"two minutes": DEFAULT.whole_s, f"{options.seconds:g} s": options.seconds}
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for (length, seconds), sharper in itertools.product(lengths.items(), (1.0, SHARPER)):
            key = f"{length}, attention {'as drawn' if sharper == 1 else 'sharper'}"
            found[key] = measured(seconds, sharper, options.chunks)
            for name, figures in found[key].items():
                print(f"{key:45} {name:12} {json.dumps(figures)}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"at most {peak} MiB resident")
    if options.json:
        about = hardware() | {"commit": commit("../models", "."), "most_resident_mib": peak}
        options.json.write_text(json.dumps(found | {"machine": about}, indent=2) + "\n")


if __name__ == "__main__":
    main()
