"""Tiles that cover a slide, and the tissue under them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.reading import Slide, write_pyramid
from medimg_eval.imaging.slides.tiles import (
    Tiles,
    otsu,
    read_tiles,
    tile_grid,
    tissue_mask,
)

EOSIN, HAEMATOXYLIN, DAB = (225, 140, 180), (110, 70, 150), (120, 75, 45)


def slide_of(path, pixels, **options):
    write_pyramid(path, pixels, **({"um_per_px": 0.5, "compression": "deflate"} | options))
    return Slide(path)


def glass(rows=2048, columns=3072, seed=0):
    """Unstained glass with a scanner's noise."""
    return np.random.default_rng(seed).integers(235, 242, (rows, columns, 3), np.uint8)


def disc(pixels, centre, radius, colour, seed=0):
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2
    noise = np.random.default_rng(seed).normal(0, 12, (int(inside.sum()), 3))
    pixels[inside] = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
    return inside


def dice(one, other):
    return 2 * (one & other).sum() / (one.sum() + other.sum())


def at_mask(truth, mask):
    """The truth at level 0, at the middle of each mask pixel."""
    rows, columns = (
        ((np.arange(count) + 0.5) * side / count).astype(int)
        for side, count in zip(truth.shape, mask.labels.shape, strict=True)
    )
    return truth[np.ix_(rows, columns)]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    pixels = np.random.default_rng(1).integers(0, 256, (700, 900, 3), np.uint8)
    with slide_of(tmp_path_factory.mktemp("slides") / "noise.tif", pixels) as slide:
        yield slide, pixels


@settings(deadline=None, max_examples=15)
@given(st.integers(40, 400), st.integers(0, 39))
def test_tiles_at_level_0_put_the_slide_together_again(noisy, size, overlap):
    slide, pixels = noisy
    tiles = tile_grid(slide, size=size, um_per_px=0.5, overlap=overlap)
    assert tiles.edge == (size, size)
    together = np.full((2000, 2000, 3), 7, np.uint8)
    for (row, column), tile in zip(tiles.coordinates, read_tiles(slide, tiles), strict=True):
        together[row : row + size, column : column + size] = np.moveaxis(tile, 0, 2)
    np.testing.assert_array_equal(together[:700, :900], pixels)
    last = tiles.coordinates[-1]
    assert (last < [700, 900]).all()
    assert (last + size >= [700, 900]).all()


@pytest.mark.parametrize("um_per_px", [0.75, 1.0, 1.4])
def test_tiles_meet_without_a_seam_at_other_sizes_of_pixel(noisy, um_per_px):
    slide, _ = noisy
    tiles = tile_grid(slide, size=80, um_per_px=um_per_px)
    assert tiles.edge == pytest.approx((80 * um_per_px / 0.5,) * 2)
    whole = slide.read_region(0, 0, (240, 240), um_per_px)
    for (row, column), tile in zip(tiles.coordinates, read_tiles(slide, tiles), strict=True):
        top, left = (round(one * 0.5 / um_per_px) for one in (row, column))
        if max(top, left) <= 160 and (np.array([row, column]) * 0.5 / um_per_px % 1 == 0).all():
            np.testing.assert_allclose(
                np.moveaxis(tile, 0, 2).astype(int), whole[top : top + 80, left : left + 80].astype(int), atol=1
            )


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 300), st.integers(1, 300), st.floats(0.3, 3.0), st.integers(0, 15))
def test_every_pixel_lies_in_a_tile_and_no_tile_lies_outside(rows, columns, um_per_px, overlap):
    class Plain:
        path, size, um_per_px = "plain", (rows, columns), (0.5, 0.5)
        scale = Slide.scale

    tiles = tile_grid(Plain(), size=16, um_per_px=um_per_px, overlap=overlap)
    covered = np.zeros((rows, columns), bool)
    for row, column in tiles.coordinates:
        assert row < rows
        assert column < columns
        covered[row : row + int(np.ceil(tiles.edge[0])), column : column + int(np.ceil(tiles.edge[1]))] = True
    assert covered.all()
    assert len({tuple(one) for one in tiles.coordinates}) == len(tiles)


def test_a_last_tile_for_a_fraction_of_a_pixel_is_not_laid_outside():
    class Plain:
        path, size, um_per_px = "plain", (125, 1), (0.5, 0.5)
        scale = Slide.scale

    assert tile_grid(Plain(), size=16, um_per_px=0.3).coordinates[-1].tolist() == [124, 0]


def test_some_tiles_may_be_read_alone(noisy):
    slide, _ = noisy
    tiles = tile_grid(slide, size=100)
    np.testing.assert_array_equal(read_tiles(slide, tiles, [5, 2]), read_tiles(slide, tiles)[[5, 2]])
    assert read_tiles(slide, tiles, []).shape == (0, 3, 100, 100)


@pytest.mark.parametrize("colour", [EOSIN, HAEMATOXYLIN, DAB])
@pytest.mark.parametrize("compression", ["jpeg", "deflate"])
def test_tissue_is_found_where_it_is(tmp_path, colour, compression):
    pixels = glass()
    truth = disc(pixels, (1000, 1200), 600, colour)
    with slide_of(tmp_path / "a.tif", pixels, compression=compression) as slide:
        mask = tissue_mask(slide)
    assert mask.labels.shape == (128, 192)
    assert mask.labels.dtype == np.uint8
    assert mask.affine[0, 0] == pytest.approx(0.008)
    assert dice(mask.labels > 0, at_mask(truth, mask)) > 0.97


def test_borders_ink_and_dust_are_no_tissue(tmp_path):
    pixels = glass()
    truth = disc(pixels, (1000, 1200), 500, EOSIN)
    truth |= disc(pixels, (1000, 1200), 150, HAEMATOXYLIN)
    disc(pixels, (1400, 1900), 60, (230, 60, 60))  # 30 micrometres: dust
    pixels[100:300, 2000:2900] = (25, 70, 190)  # blue pen
    pixels[400:600, 2000:2900] = (20, 150, 60)  # green pen
    pixels[700:900, 2000:2900] = (25, 22, 30)  # black pen
    pixels[1100:1300, 2100:2900] = (220, 25, 40)  # red pen
    pixels[:, :200] = np.random.default_rng(0).integers(0, 12, (2048, 200, 3))  # the scanner's black border
    with slide_of(tmp_path / "a.tif", pixels) as slide:
        mask = tissue_mask(slide)
        assert dice(mask.labels > 0, at_mask(truth, mask)) > 0.97
        with_ink = tissue_mask(slide, ink=False).labels
    assert with_ink[14, 150] == 1  # the blue line, for stains of that colour
    assert with_ink[50, 150] == 0  # the black one stays out


def test_glass_alone_has_no_tissue_and_tissue_alone_is_all_tissue(tmp_path):
    with slide_of(tmp_path / "glass.tif", glass(), compression="jpeg") as slide:
        assert tissue_mask(slide).labels.sum() == 0
        assert len(tile_grid(slide, tissue=True)) == 0
    full = np.clip(np.array(EOSIN) + np.random.default_rng(0).normal(0, 15, (1024, 1024, 3)), 0, 255).astype(np.uint8)
    with slide_of(tmp_path / "full.tif", full) as slide:
        assert tissue_mask(slide).labels.mean() > 0.99


def test_small_holes_are_filled_and_large_ones_stay(tmp_path):
    pixels = glass()
    disc(pixels, (1000, 1200), 800, EOSIN)
    disc(pixels, (1000, 900), 100, (238, 238, 238))  # 0.0079 mm2
    disc(pixels, (1000, 1500), 400, (238, 238, 238))  # 0.126 mm2
    with slide_of(tmp_path / "a.tif", pixels) as slide:
        labels = tissue_mask(slide).labels
    assert labels[62, 56] == 1
    assert labels[62, 94] == 0


def test_a_slide_of_unknown_size_of_pixel_has_tissue_too(tmp_path):
    pixels = glass()
    truth = disc(pixels, (1000, 1200), 600, EOSIN)
    with slide_of(tmp_path / "a.tif", pixels, um_per_px=None) as slide:
        mask = tissue_mask(slide)
        assert mask.labels.shape == (1365, 2048)
        assert dice(mask.labels > 0, at_mask(truth, mask)) > 0.95
        with pytest.raises(CaseError, match=r"a\.tif: states no credible micrometres"):
            tile_grid(slide)
        assert tile_grid(slide, um_per_px=None, size=512).um_per_px is None


def test_a_tile_is_kept_by_its_share_of_tissue(noisy):
    slide, _ = noisy
    labels = np.zeros((70, 90), np.uint8)
    labels[10:25, 20:37] = 1  # level-0 rows 100 to 250, columns 200 to 370
    tissue = Mask(labels, np.eye(4))
    shares = {}
    for share in np.linspace(0.01, 1, 100):
        for row, column in tile_grid(slide, size=100, tissue=tissue, minimum_tissue=share).coordinates:
            shares[int(row), int(column)] = share
    expected = {(100, 200): 1.0, (100, 300): 0.7, (200, 200): 0.5, (200, 300): 0.35}
    assert shares == pytest.approx(expected, abs=0.011)
    assert len(tile_grid(slide, size=100, tissue=tissue, minimum_tissue=0)) == 4
    assert len(tile_grid(slide, size=100)) == 63


def test_a_mask_of_another_slide_is_refused(noisy):
    slide, _ = noisy
    with pytest.raises(CaseError, match=r"noise\.tif: is \(700, 900\), which a tissue mask of \(90, 70\)"):
        tile_grid(slide, tissue=Mask(np.ones((90, 70), np.uint8), np.eye(4)))
    with pytest.raises(ValueError, match="overlap from 0 to below"):
        tile_grid(slide, size=10, overlap=10)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=40))
def test_otsu_leaves_the_least_variance_within_both_classes(counts):
    values = np.repeat(np.arange(len(counts)), counts)

    def within(threshold):
        low, high = values[values <= threshold], values[values > threshold]
        return sum(len(part) * part.var() for part in (low, high) if len(part))

    best = min((within(one) for one in range(len(counts))), default=0)
    assert within(otsu(np.array(counts))) == pytest.approx(best)


def test_tiles_know_how_many_they_are():
    assert len(Tiles(np.zeros((3, 2), np.int64), (1, 1), 1, None)) == 3
