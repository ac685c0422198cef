"""Pictures that look alike, found by what they show."""

import io

import numpy as np
import pytest
from PIL import Image as Pillow
from skimage import data

from medimg_eval.metrics.privacy import Looks, joined_looks, lookalikes_between, looks_of


def stored_otherwise(picture):
    """JPEG of poor quality at half the size, in another window."""
    made = Pillow.fromarray(picture)
    stream = io.BytesIO()
    made.resize((made.width // 2, made.height // 2)).save(stream, "JPEG", quality=60)
    return (np.asarray(Pillow.open(stream)) / 255) ** 0.8 * 900 - 1000


def pairs(one, other, **options):
    return [(left, right) for left, right, _ in lookalikes_between(one, other, **options)]


def test_what_was_stored_otherwise_is_found_and_others_are_not():
    pictures = [data.camera(), data.moon(), data.coins(), data.page(), data.text()]
    one = joined_looks([looks_of(picture) for picture in pictures])
    other = joined_looks([looks_of(stored_otherwise(picture)) for picture in reversed(pictures)])
    assert pairs(one, other) == [(at, 4 - at) for at in range(5)]


def test_colours_and_channels_are_averaged_and_small_pictures_are_enlarged():
    tile = data.astronaut()[40:72, 200:240]
    channels = np.moveaxis(tile, -1, 0)
    assert pairs(looks_of(channels), looks_of(channels.mean(0))) == [(0, 0)]


def test_a_picture_of_one_colour_is_like_none():
    flat = looks_of(np.full((80, 70), 5.0))
    assert pairs(flat, flat) == []
    assert not flat.squares.any()
    holes = looks_of(np.where(data.camera() > 250, np.nan, data.camera()))
    assert np.isfinite(holes.squares).all()


def test_candidates_are_those_of_all_pairs():
    """The signs leave out no pair that the correlation of all squares finds."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(40, 24, 24)).cumsum(1).cumsum(2)
    noisy = base + rng.normal(size=base.shape) * np.linspace(0, 3, 40)[:, None, None]
    one, other = (joined_looks([looks_of(picture) for picture in some]) for some in (base, noisy))
    alike = one.squares.astype(float) @ other.squares.astype(float).T
    expected = [tuple(pair) for pair in np.argwhere(alike >= 0.95).tolist()]
    assert len(expected) > 5
    assert sorted(pairs(one, other)) == expected
    values = [value for *_, value in lookalikes_between(one, other)]
    assert values == pytest.approx(np.minimum(alike[alike >= 0.95], 1), abs=1e-5)


def test_none_are_compared_with_none():
    empty = Looks(np.zeros((0, 4096), np.float16), np.zeros((0, 4), np.uint64))
    assert pairs(empty, looks_of(data.camera())) == []
