"""Faults of published programs that judge generated images, and that ours do not share them.

Others have their test beside what they are about: see the list at the end of docs/definitions/image_sets.md.
"""

from pathlib import Path

import numpy as np
import pytest

import medimg_eval
from medimg_eval.metrics import available
from medimg_eval.metrics.fidelity import frechet_distance, kernel_distance
from medimg_eval.metrics.generation.image_sets import ImageSet, ImageSets
from medimg_eval.metrics.generation.memorisation import near_copies, paired_feature_distance

METRICS = (Path(medimg_eval.__file__).parent / "metrics").resolve()


def test_no_square_root_of_a_matrix_is_taken_which_scipy_has_changed():
    assert not [path.name for path in METRICS.glob("*.py") if "sqrtm(" in path.read_text(encoding="utf-8")]


def test_the_mean_over_four_shards_is_biased_as_a_quarter_of_the_images_and_is_not_what_ours_are():
    rng = np.random.default_rng(0)
    real, made = rng.standard_normal((400, 32)), rng.standard_normal((400, 32))
    whole = frechet_distance(real, made).value
    shards = [frechet_distance(one, two).value for one, two in zip(np.split(real, 4), np.split(made, 4), strict=True)]
    assert np.mean(shards) > 3 * whole
    order = rng.permutation(400)
    for metric in (frechet_distance, kernel_distance):
        assert metric(real[order], made).value == pytest.approx(metric(real, made).value, rel=1e-9)


def test_there_is_no_inception_score_of_features_that_are_no_classes():
    assert not [name for name in available() if "inception" in name]


def test_a_copy_of_another_patient_is_seen_where_the_distance_to_the_prompts_own_image_sees_none():
    rng = np.random.default_rng(0)
    train, holdout, made = (rng.standard_normal((60, 16)) for _ in range(3))
    copied = made.copy()
    copied[:20] = train[30:50] + 1e-4 * rng.standard_normal((20, 16))

    def sets(rows):
        names = {
            "generated": (rows, "h"),
            "train": (train, "t"),
            "holdout": (holdout, "h"),
            "reference": (holdout, "h"),
        }
        made = {
            name: ImageSet(part, *(np.array([f"{owner}{n}" for n in range(60)]),) * 2)
            for name, (part, owner) in names.items()
        }
        return ImageSets(made)

    blind = [paired_feature_distance(sets(rows)).value for rows in (made, copied)]
    assert blind[1] == pytest.approx(blind[0], rel=0.1)
    assert near_copies(sets(made)).value < 0.1
    assert near_copies(sets(copied)).value >= 20 / 60


def test_values_are_kept_as_they_are_and_not_rounded():
    rng = np.random.default_rng(0)
    real, made = rng.standard_normal((60, 4)), rng.standard_normal((60, 4))
    for metric in (frechet_distance, kernel_distance):
        value = metric(real, made).value
        assert value != round(value, 6)
