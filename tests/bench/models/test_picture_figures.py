"""PSNR, SSIM and the floor of FLUX.1, by numbers that are known otherwise."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "models"))

from picture_figures import psnr_db, ssim

DRAWN = np.random.default_rng(1).integers(0, 256, (64, 48, 3))


def test_equal_pictures_have_the_best_figures() -> None:
    assert psnr_db(DRAWN, DRAWN) == math.inf
    assert ssim(DRAWN, DRAWN) == pytest.approx(1.0)


def test_a_difference_of_one_everywhere_is_48_db() -> None:
    exact = np.full((16, 16, 3), 100)
    assert psnr_db(exact + 1, exact) == pytest.approx(20 * math.log10(255))


def test_structure_counts_more_than_brightness() -> None:
    other = np.random.default_rng(2).integers(0, 256, DRAWN.shape)
    brighter = np.clip(DRAWN * 0.9 + 10, 0, 255)
    assert ssim(brighter, DRAWN) > 0.95
    assert abs(ssim(other, DRAWN)) < 0.1
    assert ssim(255 - DRAWN, DRAWN) < -0.8


def test_what_is_left_over_at_the_edges_is_not_compared() -> None:
    assert ssim(DRAWN[:63, :47], DRAWN[:63, :47]) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_floor_is_that_of_the_study() -> None:
    """74.4 TFLOP a forward at 1024 x 1024, counted without a GPU; 2.64 s for 28 steps at 790 TFLOP/s."""
    from flux_at_true_size import floor_seconds, flop

    assert flop(1024) == pytest.approx(74.4e12, rel=0.001)
    assert floor_seconds(1024, 28) == pytest.approx(2.64, rel=0.01)
