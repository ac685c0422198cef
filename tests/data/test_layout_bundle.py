"""Arrays in files: MedMNIST, MedSegBench, FairSeg."""

import numpy as np
import pytest

from medimg_eval.data.layouts import ArrayFiles, Arrays, FairSeg
from medimg_eval.data.splits import SplitLists
from medimg_eval.errors import CaseError, UsageError, UserError


def images(count, first=0):
    """Pictures of 5 by 4, each of one grey that says which it is."""
    return np.stack([np.full((5, 4), first + index, np.uint8) for index in range(count)])


@pytest.fixture
def medmnist(tmp_path):
    def write(**changes):
        arrays = {}
        for number, (split, count) in enumerate((("train", 3), ("val", 1), ("test", 2))):
            arrays[f"{split}_images"] = images(count, 10 * number)
            arrays[f"{split}_labels"] = np.array([[index % 2] for index in range(count)], np.uint8)
        np.savez_compressed(tmp_path / "pneumoniamnist.npz", **(arrays | changes))
        return {
            "root": str(tmp_path),
            "file": "pneumoniamnist.npz",
            "classes": ["normal", "pneumonia"],
            "modality": "DX",
        }

    return write


def test_medmnists_numbers_are_classes(medmnist, tmp_path):
    layout = Arrays(**medmnist(), cache=str(tmp_path / "cache"))
    cases = layout.cases("test")
    assert [case.id for case in cases] == ["test-000000", "test-000001"]
    image = cases[1].images[0].read()
    assert (image.array.shape, int(image.array.min()), image.modality) == ((1, 5, 4), 21, "DX")
    assert [case.target.read().values for case in cases] == [
        {"normal": 1, "pneumonia": 0},
        {"normal": 0, "pneumonia": 1},
    ]
    assert len(layout.cases("train")) == 3
    assert cases[0].target.geometry().shape == (5, 4)


def test_one_label_for_each_class_is_a_finding_each(medmnist):
    said = {"train": np.zeros((3, 3)), "val": np.zeros((1, 3)), "test": np.array([[1, 0, 1], [0, 0, 0]], np.uint8)}
    files = medmnist(**{f"{split}_labels": labels for split, labels in said.items()})
    layout = Arrays(**{**files, "classes": ["a", "b", "c"]})
    assert [case.target.read().values for case in layout.cases("test")] == [
        {"a": 1, "b": 0, "c": 1},
        {"a": 0, "b": 0, "c": 0},
    ]


def test_medsegbenchs_labels_are_masks(tmp_path):
    masks = np.zeros((2, 5, 4), np.uint8)
    masks[1, 2, 3] = 1
    np.savez_compressed(tmp_path / "busi_256.npz", test_images=np.stack([images(2)] * 3, axis=-1), test_label=masks)
    _, case = Arrays(root=str(tmp_path), file="busi_256.npz", labels="{split}_label").cases("test")
    assert case.images[0].read().array.shape == (3, 5, 4)
    assert np.argwhere(case.target.read().labels).tolist() == [[2, 3]]
    assert case.images[0].geometry().difference(case.target.geometry()) is None


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({}, {"images": "{split}_image"}, r"pneumoniamnist\.npz: holds no array '\{split\}_image'"),
        (
            {},
            {"labels": "{split}_label"},
            r"pneumoniamnist\.npz: holds no array 'train_label'; did you mean 'train_labels'",
        ),
        ({}, {"images": "images"}, r"expected \{split\} in the keys"),
        ({}, {"file": "pneumonia.npz"}, r"pneumonia\.npz: no such file"),
        ({"val_labels": np.zeros((2, 1))}, {}, r"npz: val_images holds 1 images, val_labels 2 labels"),
        ({"val_labels": np.zeros((1, 3))}, {}, r"npz: val_labels holds 3 labels a sample for 2 classes"),
        (
            {"test_labels": np.array([[0], [7]])},
            {},
            r"pneumoniamnist\.npz, test_labels\[1\]: 'label' names no known class: '7'",
        ),
    ],
)
def test_a_bundle_that_does_not_fit_says_where(medmnist, changes, settings, words):
    with pytest.raises((UserError, UsageError), match=words):
        Arrays(**(medmnist(**changes) | settings)).cases("test")


def demographics(kind=int, **said):
    base = {"age": 61, "gender": 1, "ethnicity": 0, "language": 0, "maritalstatus": -1}
    return {key: np.array(value, dtype=kind) for key, value in (base | said).items()}


@pytest.fixture
def fairseg(tmp_path):
    """A sample in each of the two spellings, and the authors' list."""
    (tmp_path / "data").mkdir()
    (tmp_path / "lists").mkdir()
    mask = np.zeros((6, 5), np.int8)
    mask[1:5, 1:4], mask[2, 2] = -1, -2
    np.savez(tmp_path / "data/data_00001.npz", slo_fundus=images(1)[0], disc_cup_mask=mask, **demographics(race=2))
    np.savez(
        tmp_path / "data/data_00002.npz", fundus_slo=images(1, 9)[0], disc_cup=mask, **demographics(race=2, age=21915)
    )
    (tmp_path / "lists/test.txt").write_text("data_00001\ndata_00002\n")
    return FairSeg(root=str(tmp_path), splits=SplitLists({"test": "lists/test.txt"})), mask


def test_fairsegs_two_spellings_say_the_same(fairseg):
    layout, mask = fairseg
    readme, code = layout.cases("test")
    for case in (readme, code):
        np.testing.assert_array_equal(case.target.read().labels, -mask)
    assert (readme.patient, int(code.images[0].read().array.max())) == ("data_00001", 9)
    assert readme.attributes == {
        "age": "61",
        "gender": "1",
        "race": "2",
        "ethnicity": "0",
        "language": "0",
        "maritalstatus": "",
    }
    assert (code.attributes["race"], code.attributes["age"]) == ("0", "60.0")


def test_python_objects_are_read_only_when_told(fairseg, tmp_path):
    layout, mask = fairseg
    np.savez(
        tmp_path / "data/data_00001.npz", slo_fundus=images(1)[0], disc_cup_mask=mask, **demographics(object, race=1)
    )
    with pytest.raises(CaseError, match=r"data_00001\.npz: age holds Python objects.*allow_pickle=True"):
        layout.cases("test")
    layout.allow_pickle = True
    assert layout.cases("test")[0].attributes["race"] == "1"


def test_a_sample_without_its_image_or_with_an_unknown_code_is_named(fairseg, tmp_path):
    layout, mask = fairseg
    np.savez(tmp_path / "data/data_00002.npz", fundus_slo=images(1)[0], disc_cup=mask, **demographics(race=5))
    with pytest.raises(UserError, match=r"data_00002\.npz: race is '5', expected 2, 3 or 7"):
        layout.cases("test")
    np.savez(tmp_path / "data/data_00002.npz", slo=images(1)[0], disc_cup=mask)
    with pytest.raises(UserError, match=r"data_00002\.npz: holds no array 'slo_fundus' or 'fundus_slo'"):
        layout.cases("test")


def test_any_keys_will_do(tmp_path):
    np.savez(tmp_path / "p1_a.npz", ct=np.zeros((4, 5, 6), np.int16), seg=np.ones((4, 5, 6), np.uint8))
    (case,) = ArrayFiles(root=str(tmp_path), file="{case}.npz", image="ct", mask="seg", patient="{case:.2}").cases(
        "test"
    )
    assert (case.id, case.patient, case.images[0].read().array.shape) == ("p1_a", "p1", (1, 4, 5, 6))
    assert case.target.read().labels.all()
