"""Trains the viseme network: `python -m training.visemes.train OUT.safetensors`.

The texts are those of Python's own help. Each round of training hears every utterance through another filter,
at another level and pitch, with other noise: the network must generalise to other voices.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from stoker.models.talking_video.portrait.visemes import HOP, RATE, SOUNDS, Network, log_mel
from training.visemes.sounds import visemes_of
from training.visemes.voices import Spoken, Voices

LANGUAGES = ("en-us", "en-us", "en-us", "en", "en", "de", "es", "it", "fr", "nl", "pl", "pt", "sv", "ru")
VARIANTS = (
    "",
    "+m1",
    "+m3",
    "+m4",
    "+m6",
    "+f1",
    "+f2",
    "+f4",
    "+f5",
    "+klatt",
    "+klatt3",
    "+whisper",
    "+croak",
)
HELD_OUT = ("en-us+m7", "en-us+f3", "en+klatt2", "de+m2")
BATCH = 24
CROP = 300
"""Steps of an utterance that a batch takes."""


def texts(rng: random.Random, number: int) -> list[str]:
    words = re.findall(r"[A-Za-z]{2,}", " ".join(pydoc_data.topics.topics.values()))
    found = []
    for _ in range(number):
        first, length = rng.randrange(len(words) - 20), rng.randint(4, 14)
        chosen = [word + (", " if rng.random() < 0.12 else " ") for word in words[first : first + length]]
        found.append("".join(chosen).strip() + ".")
    return found


def labels(spoken: Spoken, steps: int, stretch: float) -> NDArray[np.int64]:
    """Returns the viseme of each step; the phonemes' times are divided by `stretch`."""
    found = np.zeros(steps, np.int64)
    begins = [at for at, _ in spoken.phonemes]
    ends = [*begins[1:], len(spoken.samples) / spoken.rate]
    for (begin, name), end in zip(spoken.phonemes, ends, strict=True):
        halves = visemes_of(name)
        for n, half in enumerate(halves):
            first = begin + (end - begin) * n / len(halves)
            last = begin + (end - begin) * (n + 1) / len(halves)
            low, high = (round(at / stretch * RATE / HOP) for at in (first, last))
            found[low:high] = SOUNDS.index(half)
    return found


def resampled(samples: NDArray[np.float32], rate: float) -> NDArray[np.float32]:
    """Returns the samples at 16 kHz, if they have `rate`. Another rate than the true one changes speed and
    pitch."""
    at = np.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
    found: NDArray[np.float32] = np.interp(at, np.arange(len(samples)), samples).astype(np.float32)
    return found


def varied(wave: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Passes a wave through a random filter, with an echo and noise, at a random level around a variance of
    1."""
    spectrum = np.fft.rfft(wave)
    points = np.linspace(0, 1, 8)
    gains = rng.normal(0, 5, 8)
    spectrum *= 10 ** (np.interp(np.linspace(0, 1, len(spectrum)), points, gains) / 20)
    wave = np.fft.irfft(spectrum, len(wave)).astype(np.float32)
    if rng.random() < 0.5:
        delay, part = int(rng.uniform(0.005, 0.06) * RATE), rng.uniform(0.05, 0.4)
        wave[delay:] += part * wave[:-delay].copy()
    wave = (wave - wave.mean()) / max(float(wave.std()), 1e-4)
    noise = rng.normal(0, 1, len(wave)).astype(np.float32)
    if rng.random() < 0.5:
        noise = np.cumsum(noise) * 0.1
        noise -= np.convolve(noise, np.ones(400) / 400, "same").astype(np.float32)
        noise /= max(float(noise.std()), 1e-4)
    level = 10 ** rng.uniform(-4, -0.9)
    return (wave * 10 ** rng.uniform(-0.35, 0.35) + level * noise).astype(np.float32)


def utterances(speaker: Voices, number: int, voices: tuple[str, ...] | None, seed: int) -> list[Spoken]:
    rng = random.Random(seed)
    found = []
    for text in texts(rng, number):
        voice = rng.choice(voices) if voices else rng.choice(LANGUAGES) + rng.choice(VARIANTS)
        found.append(
            speaker.speak(
                text, voice, rate=rng.randint(120, 230), pitch=rng.randint(15, 90), spread=rng.randint(20, 90)
            )
        )
    return found


def example(spoken: Spoken, rng: np.random.Generator, vary: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    stretch = float(rng.uniform(0.82, 1.22)) if vary else 1.0
    wave = resampled(spoken.samples, spoken.rate * stretch)
    quiet = np.zeros(int(rng.uniform(0, 0.6) * RATE) // HOP * HOP, np.float32)
    wave = np.concatenate([quiet, wave, quiet])
    wave = varied(wave, rng) if vary else (wave - wave.mean()) / wave.std()
    bands = log_mel(wave).float()
    found = np.zeros(len(bands), np.int64)
    lead = len(quiet) // HOP
    spoken_steps = len(bands) - 2 * lead
    found[lead : lead + spoken_steps] = labels(spoken, spoken_steps, stretch)
    return bands, torch.from_numpy(found)


def batches(
    data: list[Spoken], rng: np.random.Generator, size: int = BATCH
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    order = rng.permutation(len(data))
    for first in range(0, len(order) - size + 1, size):
        bands, found = [], []
        for index in order[first : first + size]:
            one, classes = example(data[index], rng)
            short = max(CROP - len(one), 0)
            one = torch.nn.functional.pad(one, (0, 0, 0, short), value=float(np.log(1e-4)))
            classes = torch.nn.functional.pad(classes, (0, short), value=0)
            at = int(rng.integers(0, len(one) - CROP + 1))
            bands.append(one[at : at + CROP].T)
            found.append(classes[at : at + CROP])
        yield torch.stack(bands), torch.stack(found)


def accuracy(network: Network, data: list[Spoken]) -> float:
    rng = np.random.default_rng(5)
    right = total = 0
    network.eval()
    with torch.inference_mode():
        for spoken in data:
            bands, found = example(spoken, rng, vary=False)
            guess = network(bands.T[None])[0].argmax(0)
            right += int((guess == found).sum())
            total += len(found)
    network.train()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--utterances", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    speaker = Voices()
    data = utterances(speaker, options.utterances, None, options.seed)
    unseen = utterances(speaker, 40, HELD_OUT, options.seed + 1)
    print(f"{sum(len(one.samples) / one.rate for one in data) / 60:.0f} minutes of speech", flush=True)
    network, rng = Network().train(), np.random.default_rng(options.seed)
    steps = options.rounds * (len(data) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    began = time.monotonic()
    for number in range(options.rounds):
        losses = []
        for bands, found in batches(data, rng):
            loss = torch.nn.functional.cross_entropy(network(bands), found, label_smoothing=0.05)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(
            f"round {number + 1}: loss {np.mean(losses):.3f}, right on unheard voices"
            f" {accuracy(network, unseen):.3f}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        save_file(
            {name: value.half().contiguous() for name, value in network.state_dict().items()}, options.out
        )


if __name__ == "__main__":
    main()
