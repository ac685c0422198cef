"""Half the pixels: equal to Pillow's triangle filter, by hand, over squares of any place, and of regions of a slide."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from medimg_eval.imaging.slides import Slide, halving
from medimg_eval.imaging.slides.reading import write_pyramid


def halved(pixels, top, left, edge):
    """By the function itself, compiled or not."""
    out = np.empty((edge, edge, 3), np.uint8)
    halving._halve_rows(pixels.reshape(len(pixels), -1), top - 1, 3 * (left - 1), out.reshape(edge, -1))
    return out


def by_pillow(pixels, top, left, edge):
    box = (left, top, left + 2 * edge, top + 2 * edge)
    return np.asarray(Image.fromarray(pixels).resize((edge, edge), Image.Resampling.BILINEAR, box=box))


def test_a_pixel_by_hand():
    # Rows are alike, so that columns alone count: (10 + 3 * 20 + 3 * 40 + 90 + 4) // 8 = 35.
    pixels = np.repeat(np.repeat(np.array([[10, 20, 40, 90]], np.uint8), 4, 0)[..., None], 3, 2)
    assert halved(pixels, 1, 1, 1).tolist() == [[[35, 35, 35]]]
    assert halved(pixels[:, ::-1].copy(), 1, 1, 1).tolist() == [[[35, 35, 35]]]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99), st.booleans())
def test_it_is_pillows_filter_wherever_the_box_lies(edge, around, seed, extreme):
    size = 2 * edge + 2 * around, 2 * edge + 2 * around, 3
    rng = np.random.default_rng(seed)
    pixels = (rng.integers(0, 2, size) * 255 if extreme else rng.integers(0, 256, size)).astype(np.uint8)
    assert np.array_equal(halved(pixels, around, around, edge), by_pillow(pixels, around, around, edge))


@pytest.mark.parametrize("edge", [100, 131])
def test_regions_of_a_slide_at_half_its_size_are_as_before(tmp_path, monkeypatch, edge):
    pixels = np.random.default_rng(0).integers(0, 256, (edge, edge + 9, 3), dtype=np.uint8)
    write_pyramid(tmp_path / "s.tif", pixels, um_per_px=0.25, tile=16, levels=1, compression="deflate")
    places = [(0, 0), (0, 40), (30, 0), (36, 36), (edge - 64, edge + 9 - 64), (-20, -10), (edge - 20, 10), (33, 7)]
    with Slide(tmp_path / "s.tif") as slide:
        monkeypatch.setattr(halving, "SPARED", math.inf)
        plain = [slide.read_region(row, column, 32, 0.5) for row, column in places]
        monkeypatch.setattr(halving, "SPARED", 0)
        monkeypatch.setattr(halving, "_compile_halving", lambda: halving._halve_rows)
        fast = [slide.read_region(row, column, 32, 0.5) for row, column in places]
    assert all(np.array_equal(one, other) for one, other in zip(fast, plain, strict=True))


def test_pillow_stays_where_numba_is_not_installed_or_not_worth_its_loading(monkeypatch):
    pixels = np.zeros((10, 10, 3), np.uint8)
    monkeypatch.setattr(halving, "SPARED", math.inf)
    assert halving.halved(pixels, 1, 1, 2) is None
    monkeypatch.setattr(halving, "SPARED", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    halving._compile_halving.cache_clear()
    assert halving.halved(pixels, 1, 1, 2) is None
    halving._compile_halving.cache_clear()


@pytest.mark.slow
def test_the_compiled_function_gives_the_same(monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed: pip install 'medimg-eval[fast]'")
    monkeypatch.setattr(halving, "SPARED", 0)
    pixels = np.random.default_rng(0).integers(0, 256, (518, 520, 3), dtype=np.uint8)
    made = halving.halved(pixels, 3, 5, 256)
    assert np.array_equal(
        made, np.asarray(Image.fromarray(pixels).resize((256, 256), Image.Resampling.BILINEAR, box=(5, 3, 517, 515)))
    )
