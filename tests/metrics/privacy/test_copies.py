"""Copies that were changed: what is found of them, what is not taken for one, and what cannot be looked at."""

import numpy as np
import pytest
from scipy import ndimage

from medimg_eval.errors import UserError
from medimg_eval.metrics import privacy
from medimg_eval.metrics.fidelity import SetError
from medimg_eval.metrics.privacy import CopyFinder
from medimg_eval.metrics.privacy import transformed_copies as screen

EDGE = 128
CHANGES = {
    "none": lambda picture: picture,
    "mirrored": lambda picture: picture[:, ::-1],
    "upside down": lambda picture: picture[::-1],
    "shifted by 3 pixels": lambda picture: np.roll(picture, (3, -3), (0, 1)),
    "turned": lambda picture: ndimage.rotate(picture, 9, reshape=False, mode="mirror"),
    "cropped": lambda picture: ndimage.zoom(picture[8:120, 4:116], EDGE / 112, order=1),
    "brighter and clipped": lambda picture: np.minimum(picture + 0.2, 1),
    "darker": lambda picture: picture**1.5,
    "blurred": lambda picture: ndimage.gaussian_filter(picture, 1.2),
}


def pictures(count, seed):
    """Clouds with edges, like tissue: no two share anything."""
    rng = np.random.default_rng(seed)
    coarse = ndimage.gaussian_filter(rng.standard_normal((count, EDGE, EDGE)), (0, 9, 9))
    fine = ndimage.gaussian_filter(rng.standard_normal((count, EDGE, EDGE)), (0, 2, 2))
    mixed = coarse / coarse.std() + 0.5 * fine / fine.std()
    return (0.5 + np.clip(mixed / 6, -0.5, 0.5)).astype(np.float32)


def rows(squares):
    return np.asarray(squares).reshape(len(squares), -1)


TRAIN = pictures(30, seed=0)


@pytest.fixture(scope="module")
def finder():
    return CopyFinder(TRAIN)


@pytest.fixture(scope="module")
def of_new_patients(finder):
    return finder.compare(pictures(30, seed=1)).scores


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_copy_is_found_however_it_was_changed(finder, of_new_patients, change):
    found = finder.compare(np.stack([change(picture) for picture in TRAIN[:5]]))
    assert list(found.places) == [0, 1, 2, 3, 4]
    assert found.scores.min() > of_new_patients.max()


def test_brightness_and_contrast_do_not_count(finder):
    plain, other = finder.compare(TRAIN[:3]), finder.compare(7 + 40 * TRAIN[:3])
    assert np.allclose(plain.scores, other.scores, atol=0.05)


def test_flat_parts_that_compression_leaves_nothing_of_do_not_hide_a_copy(finder, of_new_patients):
    rng = np.random.default_rng(5)
    parts = TRAIN[:6].copy()
    parts[:, :, 32:] = 0.3 + 0.002 * rng.standard_normal((6, EDGE, EDGE - 32))
    others = pictures(6, seed=4)
    others[:, :, 32:] = 0.3 + 0.002 * rng.standard_normal((6, EDGE, EDGE - 32))
    smoothed = parts.copy()
    smoothed[:, :, 32:] = 0.3 + 0.002 * rng.standard_normal((6, EDGE, EDGE - 32))
    flat = CopyFinder(np.concatenate([TRAIN[6:], parts]))
    assert flat.compare(smoothed).scores.min() > flat.compare(others).scores.max() + 0.5


def test_a_picture_that_is_left_out_is_not_found(finder):
    alone = finder.compare(TRAIN[:3], skip=np.arange(3))
    assert not set(alone.places) & {0}
    assert alone.scores.max() < finder.compare(TRAIN[:3]).scores.min()


def test_the_share_stands_beside_what_is_found_of_planted_copies(monkeypatch):
    monkeypatch.setattr("medimg_eval.metrics.privacy.copies.PLANTED", 2)
    made = np.concatenate([[change(TRAIN[0]) for change in CHANGES.values()], pictures(9, seed=2)])
    found = screen(rows(TRAIN), rows(pictures(30, seed=1)), rows(made))
    assert 0.5 <= found.value < 0.62  # all nine copies, and of nine others at most two: 30 pictures make a rough bar
    assert found.floor <= 0.01
    assert found.low < found.value < found.high
    assert found.details["recall"] > 0.9
    assert {"recall_flipped", "recall_cropped to 95 %", "recall_turned by 5 degrees"} <= set(found.details)
    assert any(flag.startswith("planted: ") for flag in found.flags)


def test_pictures_without_contrast_are_no_copies(finder, of_new_patients):
    assert (finder.compare(np.full((2, EDGE, EDGE), 0.5)).scores <= of_new_patients.max()).all()
    blank = CopyFinder(np.concatenate([TRAIN[:5], np.zeros((2, EDGE, EDGE))]))
    assert np.isfinite(blank.compare(TRAIN[:2]).scores).all()


def test_what_is_no_square_is_refused(finder):
    with pytest.raises(SetError, match="use the extractor pixels_128"):
        screen(np.ones((3, 300)), np.ones((3, 300)), np.ones((3, 300)))
    with pytest.raises(SetError, match="squares of 64 pixels or more"):
        finder.compare(np.ones((2, 32, 32)))
    with pytest.raises(SetError, match="at least 2 training pictures"):
        CopyFinder(TRAIN[:1])


def test_nothing_to_compare_is_no_error(finder):
    assert finder.compare(np.zeros((0, EDGE, EDGE))).scores.shape == (0,)


def test_without_opencv_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(UserError, match=r"medimg-eval\[copies\]"):
        CopyFinder(TRAIN)


def test_a_screen_of_distances_does_not_see_what_this_one_sees():
    flipped, others = rows(TRAIN[:, :, ::-1]), rows(pictures(30, seed=1))
    assert privacy.dcr(rows(TRAIN), others, flipped, interval=False).details["below_holdout_p1"] < 0.1
