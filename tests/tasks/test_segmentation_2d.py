"""Segmentation of pictures: two axes, and often no physical size."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.case import Case, Image, Mask
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.models.baselines.gaussian_mixture import GaussianMixture
from medimg_eval.tasks import SegmentationTask

STEPS = np.diag([0.5, 0.25, 1.0, 1.0])


@dataclass(frozen=True)
class Known:
    """Something in memory, as a case refers to it."""

    value: Image | Mask
    files: tuple[Path, ...] = (Path("picture.png"),)

    def read(self):
        return self.value

    def geometry(self):
        return self.value.geometry


def case(image_units="mm", mask_units="mm"):
    labels = np.zeros((8, 10), np.uint8)
    labels[2:6, 3:7] = 1
    steps = {"mm": STEPS, "pixel": np.eye(4)}
    image = Image((labels * np.uint8(200))[None], steps[image_units], units=image_units)
    return Case("a", (Known(image),), Known(Mask(labels, steps[mask_units], units=mask_units)))


def task(*cases, **settings):
    layout = type("Fixed", (), {"cases": lambda self, split: list(cases)})()
    return SegmentationTask(name="pictures", layout=layout, labels={1: "square"}, **settings)


def shifted(one):
    return np.roll(one.target.read().labels, 1, axis=0)


def test_distances_follow_the_spacing_of_each_axis():
    one = case()
    by_metric = {s.metric: s.value for s in task(one, metrics=["hd", "dice"]).score(one, shifted(one))}
    assert by_metric["hd"] == pytest.approx(0.5)
    assert by_metric["dice"] == pytest.approx(0.75)


def test_a_plain_picture_as_reference_takes_its_spacing_from_the_image():
    one = case(mask_units="pixel")
    (score,) = task(one, metrics=["hd"]).score(one, shifted(one))
    assert score.value == pytest.approx(0.5)


def test_without_a_physical_size_distances_are_refused_until_pixels_are_asked_for():
    one = case("pixel", "pixel")
    with pytest.raises(CaseError, match=r"case 'a': picture\.png states no physical size; set task\.units=pixel"):
        task(one, metrics=["nsd@1"]).score(one, shifted(one))
    (score,) = task(one, metrics=["hd"], units="pixel").score(one, shifted(one))
    assert score.value == pytest.approx(1)
    (score,) = task(one, metrics=["dice"]).score(one, shifted(one))
    assert score.value == pytest.approx(0.75)


def test_pixels_are_pixels_whatever_the_image_says():
    one = case()
    asked = task(one, metrics=["hd"], units="pixel")
    (score,) = asked.score(one, shifted(one))
    assert score.value == pytest.approx(1)
    assert "distances in pixels" in asked.signature()


def test_there_are_two_units():
    with pytest.raises(UsageError, match="got 'px'"):
        task(units="px")


def test_a_picture_of_another_size_is_refused_even_without_units():
    one = case("pixel", "pixel")
    with pytest.raises(CaseError, match=r"shape \(8, 9\), not \(8, 10\)"):
        task(one).accept(one, np.zeros((8, 9), np.uint8))


@pytest.mark.parametrize("units", ["mm", "pixel"])
def test_stored_answers_are_judged_as_the_answers_were(tmp_path, units):
    one = case(units, units)
    judged = task(one, metrics=["dice", "hd"], units=units)
    answer = judged.accept(one, shifted(one))
    judged.codec.save(tmp_path / "a.nii.gz", answer)
    assert judged.score(one, tmp_path / "a.nii.gz") == judged.score(one, answer)


def test_the_baseline_answers_pictures():
    one = case()
    (labels,) = task(one).ask(GaussianMixture(), [task(one).prompt(one, (one.images[0].read(),))])
    assert labels.shape == (8, 10)
