"""Maps beside outlines: by hand, against scikit-learn on pixels, and as properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, jaccard_score

from medimg_eval.metrics import get, parse
from medimg_eval.metrics.localisation import LocatedMap

fast = settings(deadline=None, max_examples=25)
NAMES = ("pointing_game", "map_energy", "map_iou", "map_auprc")


def value(name, pair):
    found, parameter = parse(name)
    return found.function(pair) if parameter is None else found.function(pair, parameter)


def square(*corners, side=4):
    mask = np.zeros((side, side), bool)
    top, left, bottom, right = corners
    mask[top:bottom, left:right] = True
    return mask


PLACES = np.array([[0, 0], [0, 20], [20, 0], [20, 20]])
"""Four tiles of 20 x 20 pixels over a slide of 40 x 40, whose mask has pixels of 10 x 10."""


def test_four_tiles_by_hand():
    # The outline is three mask pixels of the first tile's four, and two of the second's.
    mask = square(0, 0, 2, 3)
    mask[1, 0] = False
    pair = LocatedMap.of([0.4, 0.4, 0.2, 0.0], PLACES, 20, mask, 10)
    assert pair.inside.tolist() == [3, 2, 0, 0]
    assert pair.areas.tolist() == [4, 4, 4, 4]
    assert value("map_energy", pair) == pytest.approx(0.4 * 3 / 4 + 0.4 * 2 / 4)
    assert value("pointing_game", pair) == 1  # the centre of the first lies in mask pixel (1, 1)
    assert value("map_iou", pair) == pytest.approx(5 / 12)  # 0.2 is half of the largest, and kept
    assert value("map_iou@0.6", pair) == pytest.approx(5 / 8)
    assert value("map_auprc", pair) == pytest.approx(5 / 8)  # all that is outlined is found at the first level


def test_what_no_tile_covers_is_missed_and_tiles_that_are_cut_count_in_part():
    pair = LocatedMap.of([1.0, 0.5], [[0, 0], [25, 25]], 20, square(0, 0, 4, 1), 10)
    assert pair.inside.tolist() == [2, 0]
    assert pair.areas.tolist() == [4, 2.25]  # what hangs over the border is no part of the picture
    assert value("map_iou@1", pair) == pytest.approx(2 / (4 + 4 - 2))
    # Levels 1, 0.5, and 0 where no tile lies: recall 1/2 at precision 1/2, the rest at 4/16.
    assert value("map_auprc", pair) == pytest.approx(0.5 * 0.5 + 0.5 * 0.25)
    half = LocatedMap.of([1.0], [[5, 0]], 20, square(0, 0, 1, 1), 10)
    assert half.inside.tolist() == [0.5]
    assert value("map_energy", half) == pytest.approx(0.5 / 4)
    assert value("pointing_game", half) == 0


def test_the_outline_itself_is_perfect_and_no_map_at_all_is_worth_nothing():
    mask = square(1, 1, 3, 3)
    places = np.argwhere(np.ones((4, 4)))
    perfect = LocatedMap.of(mask.ravel().astype(float), places, 1, mask)
    assert [value(name, perfect) for name in NAMES] == [1, 1, 1, 1]
    blank = LocatedMap.of(np.zeros(16), places, 1, mask)
    assert [value(name, blank) for name in NAMES] == [0, 0, 0, 4 / 16]
    for name in NAMES:
        assert (get(name).best, get(name).worst) == (1, 0)


@pytest.mark.parametrize(
    ("weights", "places", "edge", "mask", "said"),
    [
        ([1.0], [[0, 0]], 1, np.zeros((2, 2)), "outline is empty"),
        ([-1.0], [[0, 0]], 1, np.ones((2, 2)), "from 0 on"),
        ([np.nan], [[0, 0]], 1, np.ones((2, 2)), "finite"),
        ([], np.zeros((0, 2)), 1, np.ones((2, 2)), "at least one"),
        ([1.0, 1.0], [[0, 0]], 1, np.ones((2, 2)), "places"),
        ([1.0], [[0, 0]], 0, np.ones((2, 2)), "an edge above 0"),
    ],
)
def test_what_is_no_map_is_refused(weights, places, edge, mask, said):
    with pytest.raises(ValueError, match=said):
        LocatedMap.of(weights, places, edge, mask)


@fast
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]), st.sampled_from([0.15, 0.5, 0.9]))
def test_tiles_are_judged_as_their_pixels_are(seed, downsample, share):
    random = np.random.default_rng(seed)
    mask = random.random((6, 6)) < 0.4
    mask[tuple(random.integers(0, 6, 2))] = True
    places = np.argwhere(random.random((3, 3)) < 0.7) * 2 * downsample
    places = places if len(places) else np.zeros((1, 2), int)
    weights = random.integers(0, 4, len(places)) / 4
    pair = LocatedMap.of(weights, places, 2 * downsample, mask, downsample)
    pixels = np.zeros((6, 6))
    for (row, column), weight in zip(places // downsample, weights, strict=True):
        pixels[row : row + 2, column : column + 2] = weight
    assert value("map_auprc", pair) == pytest.approx(average_precision_score(mask.ravel(), pixels.ravel()))
    if weights.any():
        kept = pixels >= share * pixels.max()
        assert value(f"map_iou@{share}", pair) == pytest.approx(jaccard_score(mask.ravel(), kept.ravel()))
        assert value("map_energy", pair) == pytest.approx(pixels[mask].sum() / pixels.sum())


@fast
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_scale_of_weights_and_order_of_tiles_do_not_matter(seed, times):
    random = np.random.default_rng(seed)
    mask = random.random((5, 5)) < 0.5
    mask[0, 0] = True
    places = np.argwhere(np.ones((3, 3))) * 1.7
    weights = random.permutation(9) / 9.0
    order = random.permutation(9)
    first = LocatedMap.of(weights, places, 1.7, mask)
    again = LocatedMap.of(times * weights[order], places[order], 1.7, mask)
    for name in NAMES:
        assert 0 <= value(name, first) <= 1
        assert value(name, again) == pytest.approx(value(name, first))
