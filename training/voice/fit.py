"""Fits the weights of `portrait.voice`: `python -m training.voice.fit SPEECH OTHER`.

SPEECH is a folder with recordings of people who speak, OTHER one with music and sounds without a voice; both
are read as deep as they go. Those of the package are fitted to Debian's asterisk-core-sounds-en-g722 and
-it-g722 against asterisk-moh-opsound-g722, every second piece of drascula-music and the sounds of
`training.voice.sounds`. Speech over music that is 5 to 15 dB quieter counts as speech. Prints how much of
each kind is taken for a voice.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.visemes import HOP, RATE
from stoker.models.talking_video.portrait.voice import BIAS, WEIGHTS, WINDOW, measures
from training.voice.sounds import MADE, Wave, level

LONGEST_S = 60
EACH = 100
"""Windows of each kind that count; of a kind with more, each counts less."""


def recordings(folder: Path) -> list[Wave]:
    paths = sorted(
        path for path in folder.rglob("*") if path.suffix in {".g722", ".ogg", ".mp3", ".flac", ".wav"}
    )
    return [level(found) for path in paths if len(found := decoded(path)) > WINDOW * HOP]


def decoded(path: Path) -> Wave:
    resampler, parts = av.AudioResampler("flt", "mono", RATE), [np.zeros(0, np.float32)]
    with av.open(str(path), format="g722" if path.suffix == ".g722" else None) as file:
        for frame in file.decode(audio=0):
            parts += [part.to_ndarray()[0] for part in resampler.resample(frame)]
            if sum(map(len, parts)) > LONGEST_S * RATE:
                break
    return np.concatenate(parts)


def windows(waves: list[Wave]) -> Iterator[Wave]:
    size = WINDOW * HOP
    for wave in waves:
        for first in range(0, len(wave) - size + 1, size):
            if wave[first : first + size].std() > 0.2:
                yield wave[first : first + size]


def mixed(rng: np.random.Generator, speech: list[Wave], other: list[Wave]) -> Wave:
    voice, below = speech[rng.integers(len(speech))], other[rng.integers(len(other))]
    return level(voice + below * 10 ** (-rng.uniform(5, 15) / 20))


def fitted(kinds: list[tuple[bool, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Returns the weights and the bias of a logistic regression, by Newton's method."""
    rows = np.concatenate([found for _, found in kinds])
    right = np.concatenate([np.full(len(found), float(voice)) for voice, found in kinds])
    counts = np.concatenate([np.full(len(found), min(EACH / len(found), 1.0)) for _, found in kinds])
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    scaled = np.column_stack([(rows - mean) / spread, np.ones(len(rows))])
    weights = np.zeros(scaled.shape[1])
    for _ in range(60):
        sure = 1 / (1 + np.exp(-scaled @ weights))
        slope = scaled.T @ (counts * (sure - right)) + 0.01 * weights
        bend = (scaled * (counts * sure * (1 - sure))[:, None]).T @ scaled + 0.01 * np.eye(len(weights))
        weights -= np.linalg.solve(bend, slope)
    return np.append(weights[:-1] / spread, weights[-1] - float((weights[:-1] * mean / spread).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("speech", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    speech = list(windows(recordings(options.speech)))
    other = list(windows(recordings(options.other)))
    kinds = {"speech": speech, "speech over other": [mixed(rng, speech, other) for _ in range(3 * EACH)]}
    kinds |= {"other": other}
    kinds |= {
        name: list(windows([make(rng, 6 * RATE) for _ in range(EACH // 3)])) for name, make in MADE.items()
    }
    measured = {name: np.array([measures(one) for one in waves], np.float64) for name, waves in kinds.items()}
    found = fitted([(name.startswith("speech"), rows) for name, rows in measured.items()])
    print(f"weights {found[:-1].round(1).tolist()}, bias {found[-1]:.1f}; in use {WEIGHTS}, {BIAS}")
    for name, rows in measured.items():
        share = np.mean(rows @ WEIGHTS + BIAS > 0)
        print(f"{name}: {100 * share:.1f} % of {len(rows)} windows are a voice by those in use")


if __name__ == "__main__":
    main()
