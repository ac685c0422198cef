"""Answers that were drawn on slides: areas with numbers, points with confidences."""

import json

import numpy as np
import pytest

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models import PrecomputedAnnotations

LABELS = {1: "tumour", 2: "stroma"}


def prompt(shape=(4, 6), **settings):
    return Prompt("a", (Image(np.zeros((3, *shape), np.uint8), np.eye(4), units="pixel"),), LABELS)


def written(root, *features):
    (root / "a.geojson").write_text(json.dumps(list(features)))
    return str(root)


def square(x, y, size, name):
    ring = [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]
    return {"geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"classification": name}}


def point(x, y, name, **measured):
    said = {"classification": name, "measurements": measured}
    return {"geometry": {"type": "Point", "coordinates": [x, y]}, "properties": said}


def test_areas_are_objects_of_their_own(tmp_path):
    root = written(tmp_path, square(0, 0, 4, "stroma"), square(0, 0, 2, "tumour"), square(2, 0, 2, "tumour"))
    (mask,) = PrecomputedAnnotations(root).segment([prompt()])
    # Labels are drawn in their order, so that stroma covers what was drawn below it.
    assert mask.labels[0].tolist() == [2, 2, 2, 2, 0, 0]
    (mask,) = PrecomputedAnnotations(root, classes={"stroma": "stroma", "tumour": "tumour"}).segment([prompt()])
    assert mask.labels[0].tolist() == [1, 1, 1, 1, 0, 0]
    assert mask.instances[0].tolist() == [2, 2, 3, 3, 0, 0]
    assert mask.labels[3].tolist() == [2, 2, 2, 2, 0, 0]


def test_points_lie_where_the_image_shows_them(tmp_path):
    root = written(tmp_path, point(16, 48, "M", Probability=0.75), square(64, 32, 32, "M"), point(0, 0, "other"))
    model = PrecomputedAnnotations(root, classes={"M": "tumour"}, downsample=32)
    (found,) = model.detect([prompt()])
    assert found.positions.tolist() == [[1, 0], [1, 2]]
    assert (found.names, found.scores.tolist()) == (("tumour", "tumour"), [1, 1])


def test_confidences_are_measurements(tmp_path):
    root = written(tmp_path, point(16, 48, "tumour", Probability=0.75))
    (found,) = PrecomputedAnnotations(root, score="Probability").detect([prompt()])
    assert found.scores.tolist() == [0.75]
    with pytest.raises(CaseError, match=r"a\.geojson: an object has no measurement 'Probabilty'; did you mean"):
        PrecomputedAnnotations(root, score="Probabilty").detect([prompt()])


def test_nothing_drawn_is_nothing_found(tmp_path):
    model = PrecomputedAnnotations(written(tmp_path))
    assert model.detect([prompt()])[0].positions.shape == (0, 2)
    assert not model.segment([prompt()])[0].labels.any()


def test_what_cannot_be_meant(tmp_path):
    with pytest.raises(UserError, match=r"no such folder; set model\.root"):
        PrecomputedAnnotations(str(tmp_path / "x"))
    with pytest.raises(UserError, match=r"expected \{case\} in model\.pattern"):
        PrecomputedAnnotations(str(tmp_path), pattern="a.xml")
    with pytest.raises(UserError, match=r"model\.classes: label is invalid: .*'tumor'; did you mean 'tumour'"):
        PrecomputedAnnotations(written(tmp_path), classes={"T": "tumor"}).detect([prompt()])
    with pytest.raises(CaseError, match=r"a\.xml: no such file"):
        PrecomputedAnnotations(str(tmp_path), pattern="{case}.xml").detect([prompt()])
    with pytest.raises(CaseError, match="areas are drawn on pictures and slides"):
        PrecomputedAnnotations(written(tmp_path)).segment([prompt((4, 6, 2))])
