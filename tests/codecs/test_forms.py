"""Each stored form: what is written is read back; its bytes stay those of earlier versions; faults are named."""

import json

import nibabel as nib
import numpy as np
import pytest

from medimg_eval.case import Boxes, FrameLabels, Mask, Points, Probabilities
from medimg_eval.codecs import (
    Arrays,
    Frames,
    GeneratedImages,
    Masks,
    Pictures,
    Places,
    ProbabilityMaps,
    Records,
    form_of,
    prediction_file,
)
from medimg_eval.errors import CaseError
from medimg_eval.imaging import read
from medimg_eval.metrics.measurement import HeightLoss
from medimg_eval.question import Reply
from medimg_eval.tasks.classification import ClassProbabilities
from medimg_eval.tasks.retrieval import Embedded

AFFINE = np.diag([0.5, 0.75, 2.0, 1.0])
LABELS = np.arange(24).reshape(2, 3, 4).astype(np.uint8) % 3
SOFT = np.stack([np.full((2, 3, 4), 0.25), np.full((2, 3, 4), 0.75)]).astype(np.float16)
GREY, COLOURS = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(18, dtype=np.uint16).reshape(2, 3, 3) * 3000
MARKS = {"positions": np.array([[1.25, 2, 1 / 3]]), "names": ("a",)}
TWO = Points(np.array([[1.25, 2, 1 / 3], [np.nan] * 3]), ("a", "b"))

FILES = {
    "label map": (Masks(), Mask(LABELS, AFFINE), "c7.nii.gz"),
    "probabilities": (ProbabilityMaps(), Probabilities(SOFT, (0, 1), AFFINE), "c7.b2nd"),
    "array": (Arrays(), np.array([[1 + 2j, 3]], np.complex64), "c7.npy"),
    "pictures": (Pictures(), GeneratedImages([GREY, COLOURS], [3, 4]), "c7.json"),
    "places": (Places(), Points(**MARKS, scores=np.array([1 / 3])), "c7.json"),
    "frames": (
        Frames(),
        FrameLabels(np.array([0, 25]), {"phase": np.array(["cut", "sew"], object), "x": np.array([1.5, np.nan])}),
        "c7.parquet",
    ),
}

REPLY = Reply(("hi", "Ä"), {"A": 1.5}, ({"role": "user", "text": "x"},), 0.25)
RECORDS = [
    (REPLY, ('{"texts": ["hi", "\\u00c4"], "confidence": 0.25, "preferences": {"A": 1.5}, "messages": '
     '[{"role": "user", "text": "x"}]}')),
    (Reply(("only",)), '{"texts": ["only"]}'),
    (ClassProbabilities(u=0.25, v=1 / 3), '{"probabilities": {"u": 0.25, "v": 0.3333333333333333}}'),
    (HeightLoss(0.1, float("nan"), 1 / 3, -0.5), '{"loss": [0.1, null, 0.3333333333333333, -0.5]}'),
    (
        Embedded(np.array([1, 2.5], np.float32), np.array([3, -1], np.float32), True),
        '{"image": "AACAPwAAIEA=", "report": "AABAQAAAgL8=", "cut": true}',
    ),
]  # fmt: skip

PLACES = [
    (
        Points(**MARKS, scores=np.array([1 / 3])),
        (
            '{"kind": "points", "names": ["a"], "places": [[1.25, 2.0, 0.3333333333333333]], '
            '"confidences": [0.3333333333333333]}\n'
        ),
    ),
    (
        Boxes(np.array([[0, 1, 2, 5.5]]), ("a",), np.array([0.1])),
        '{"kind": "boxes", "names": ["a"], "places": [[0.0, 1.0, 2.0, 5.5]], "confidences": [0.1]}\n',
    ),
    (Boxes(np.zeros((0, 6)), (), np.zeros(0)), '{"kind": "boxes", "names": [], "places": [], "confidences": []}\n'),
    (
        TWO,
        '{"points": [{"name": "a", "position": [1.25, 2.0, 0.3333333333333333]}, {"name": "b", "position": null}]}\n',
    ),
    ({"x": 1.5, "y": float("nan")}, '{"numbers": {"x": 1.5, "y": null}}\n'),
]


def held(value):
    """What a prediction holds, as plain values that can be compared."""
    if isinstance(value, GeneratedImages):
        return [np.squeeze(read(one).array) if hasattr(one, "suffix") else _first(one) for one in value.pictures]
    if isinstance(value, np.ndarray | dict | tuple):
        return value
    return dict(vars(value))


def _first(picture):
    return picture if picture.ndim == 2 else np.moveaxis(picture, -1, 0)


@pytest.mark.parametrize("form", FILES)
def test_what_is_written_is_read_back(form, tmp_path):
    codec, value, name = FILES[form]
    stored = codec.write(tmp_path / "predictions", "c7", value)
    assert (codec.form, codec.heavy, stored) == (form, True, tmp_path / "predictions" / name)
    np.testing.assert_equal(held(codec.read(stored)), held(value))


@pytest.mark.parametrize(("value", "text"), RECORDS)
def test_a_record_is_the_line_it_always_was_and_the_prediction_again(value, text, tmp_path):
    codec = Records(type(value))
    record = codec.write(tmp_path / "predictions", "c7", value)
    assert json.dumps(record) == text
    np.testing.assert_equal(held(codec.read(json.loads(text))), held(value))
    assert (codec.form, codec.heavy, list(tmp_path.iterdir())) == ("record", False, [])


@pytest.mark.parametrize(("value", "text"), PLACES)
def test_places_are_the_json_they_always_were(value, text, tmp_path):
    stored = Places().write(tmp_path, "c7", value)
    assert stored.read_text() == text
    if value is not TWO:  # of which one point is not there
        np.testing.assert_equal(held(Places().read(stored)).get("names"), held(value).get("names"))
    else:
        assert Places().read(stored).names == ("a",)


def test_other_programs_read_what_is_written(tmp_path):
    for codec, value, _ in (FILES["label map"], FILES["array"], FILES["pictures"]):
        codec.write(tmp_path, codec.form, value)
    volume = nib.load(tmp_path / "label map.nii.gz")
    np.testing.assert_array_equal(np.asarray(volume.dataobj), LABELS)
    np.testing.assert_array_equal(volume.affine, AFFINE)
    np.testing.assert_array_equal(np.load(tmp_path / "array.npy"), FILES["array"][1])
    assert json.loads((tmp_path / "pictures.json").read_text()) == {
        "pictures": ["pictures/000.png", "pictures/001.png"],
        "seeds": [3, 4],
    }


def test_a_run_that_stored_probabilities_serves_where_label_maps_are_judged(tmp_path):
    stored = ProbabilityMaps().write(tmp_path, "c7", FILES["probabilities"][1])
    np.testing.assert_array_equal(Masks().read(stored).labels, np.ones((2, 3, 4)))
    assert Masks.also == {"probabilities"}


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_damaged_file_is_named(form, damage, tmp_path):
    codec, value, name = FILES[form]
    stored = codec.write(tmp_path, "c7", value)
    content = stored.read_bytes()
    stored.unlink() if damage == "gone" else stored.write_bytes(b"[]" if damage == "other" else content[:-9])
    with pytest.raises(CaseError, match=name):
        codec.read(stored)


def test_a_missing_picture_is_named(tmp_path):
    codec, value, _ = FILES["pictures"]
    stored = codec.write(tmp_path, "c7", value)
    (tmp_path / "c7" / "001.png").unlink()
    with pytest.raises(CaseError, match=r"001\.png: is missing; delete c7\.json beside its folder"):
        codec.read(stored)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ("label map", Mask(np.array([["a"]]), np.eye(4))),
        ("array", np.array([None])),
        ("pictures", GeneratedImages([GREY, np.array([None])], [3, 4])),
        ("places", {"x": float("inf")}),
        ("frames", FrameLabels(np.array([0, 1]), {"phase": np.array([1, "a"], object)})),
    ],
)
def test_a_prediction_that_cannot_be_written_leaves_the_former_file_alone(form, wrong, tmp_path):
    codec, value, name = FILES[form]
    stored = codec.write(tmp_path, "c7", value)
    before = stored.read_bytes()
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the library raises
        codec.write(tmp_path, "c7", wrong)
    assert stored.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


@pytest.mark.parametrize("form", FILES)
def test_equal_predictions_have_equal_digests_wherever_they_lie(form, tmp_path):
    codec, value, _ = FILES[form]
    one, two = codec.write(tmp_path, "a", value), codec.write(tmp_path, "b", value)
    assert codec.digest(one) == codec.digest(two) == codec.digest(one)


def test_another_prediction_has_another_digest(tmp_path):
    codec, value, _ = FILES["pictures"]
    stored = codec.write(tmp_path, "a", value)
    before = codec.digest(stored)
    (tmp_path / "a" / "000.png").write_bytes((tmp_path / "a" / "001.png").read_bytes())
    assert codec.digest(stored) != before
    records = Records(Reply)
    assert records.digest({"texts": ["a"], "confidence": 1}) == records.digest({"confidence": 1, "texts": ["a"]})
    assert records.digest({"texts": ["a"]}) != records.digest({"texts": ["b"]})


def test_a_record_of_another_kind_is_refused():
    with pytest.raises(CaseError, match=r"the stored record is no Reply \(KeyError: 'texts'\); run test again"):
        Records(Reply).read({"loss": []})


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ({"case": "a", "file": "predictions/a.nii.gz"}, "label map"),
        ({"case": "a", "file": "predictions/a.b2nd"}, "probabilities"),
        ({"case": "a", "file": "predictions/a.npy"}, "array"),
        ({"case": "a", "file": "predictions/a.json"}, ""),
        ({"case": "a", "answer": {"texts": ["x"]}}, "record"),
        ({"case": "a", "file": "predictions/a.json", "form": "places"}, "places"),
    ],
)
def test_lines_of_earlier_versions_say_their_form_by_the_suffix(line, form):
    assert form_of(line) == form


def test_an_id_that_is_no_file_name_is_escaped(tmp_path):
    assert prediction_file(tmp_path, "../c7", ".npy").name == "%2E.%2Fc7.npy"
    assert prediction_file(tmp_path, "c7~blur-3#2", ".npy").name == "c7~blur-3%232.npy"
