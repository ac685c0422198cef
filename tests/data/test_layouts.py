"""Layouts: what lies where on disk, and the honesty of the quickstart's split."""

import itertools

import numpy as np
import pytest

from medimg_eval.data.layouts import Volumes
from medimg_eval.data.mni152 import COLUMNS, MniTissueBlocks, template_file
from medimg_eval.errors import SplitError, UserError
from medimg_eval.imaging import ImageFile
from tests.conftest import ellipsoids


def test_without_a_table_every_file_of_the_pattern_is_a_case(write_dataset):
    root = write_dataset(3)
    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="labels/{case}.nii.gz")
    assert [(case.id, case.patient) for case in layout.cases("test")] == [(f"case0{i}", None) for i in range(3)]


def test_hidden_companions_of_files_are_no_cases(write_dataset):
    root = write_dataset(2)
    (root / "labels" / "._case00.nii.gz").write_bytes(b"Mac OS X")
    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="labels/{case}.nii.gz")
    assert [case.id for case in layout.cases("test")] == ["case00", "case01"]


def test_patterns_may_hold_the_split(write_dataset):
    root = write_dataset(2)
    (root / "labels").rename(root / "labels_test")
    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="labels_{split}/{case}.nii.gz")
    assert [case.target.path.name for case in layout.cases("test")] == ["case00.nii.gz", "case01.nii.gz"]
    with pytest.raises(SplitError, match=r"no case of split 'fit' \(available: test\)"):
        layout.cases("fit")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"root": "/no/such"}, "/no/such: no such folder; set task.layout.root"),
        ({"image": "images/x.nii"}, r"expected \{case\}, and at most .* pattern 'images/x.nii'"),
        ({"mask": "labels/{case}-{mod}.nii"}, r"labels/\{case\}-\{mod\}.nii: there is no such file"),
        ({"image": "images/{case}-{mod}.nii"}, r"expected \{case\}, and at most the fields of 'labels/\{case\}"),
        ({"table": "none.csv"}, "none.csv: no such table"),
    ],
)
def test_a_layout_that_does_not_fit_says_so(write_dataset, change, words):
    root = write_dataset(1)
    settings = {"root": str(root), "image": "images/{case}.nii.gz", "mask": "labels/{case}.nii.gz"} | change
    with pytest.raises(UserError, match=words):
        Volumes(**settings).cases("test")


def test_a_table_without_a_case_column_says_which_it_has(write_dataset):
    root = write_dataset(1)
    (root / "cases.csv").write_text("cases,split\na,test\n")
    with pytest.raises(UserError, match=r"cases\.csv, line 2: there is no column 'case'; did you mean 'cases'\?"):
        ellipsoids(root).cases("test")


def test_a_case_may_name_its_folder_and_its_file(write_dataset):
    root = write_dataset(2)
    for path in list((root / "labels").iterdir()):
        case = path.name.removesuffix(".nii.gz")
        (root / case).mkdir()
        path.rename(root / case / f"{case}-seg.nii.gz")
    (root / "odd").mkdir()
    (root / "odd" / "other-seg.nii.gz").touch()
    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="{case}/{case}-seg.nii.gz")
    assert [case.id for case in layout.cases("test")] == ["case00", "case01"]


@pytest.mark.parametrize("row", ["case09,p,test,north,extra", "case09,p"])
def test_a_row_with_fields_too_many_or_too_few_is_named(write_dataset, row):
    root = write_dataset(1)
    with (root / "cases.csv").open("a") as table:
        table.write(row + "\n")
    with pytest.raises(UserError, match=r"cases\.csv, line 3: has not as many fields \(\d\) as the header's 4"):
        ellipsoids(root).cases("test")


def voxels(case):
    """Every voxel of a case, as positions in the whole template."""
    region = case.images[0].region
    return set(itertools.product(*(range(*ends) for ends in region)))


def test_the_template_is_mirror_symmetric_which_is_why_slabs_are_kept_apart():
    whole = ImageFile(template_file("t1")).read().array[0]
    np.testing.assert_array_equal(whole, whole[::-1])


def test_nothing_tested_was_fitted_or_validated_on_not_even_mirrored():
    layout = MniTissueBlocks()
    width = ImageFile(template_file("t1")).geometry().shape[0]
    used = set().union(*(voxels(case) for split in ("fit", "validate") for case in layout.cases(split)))
    mirrored = {(width - 1 - x, y, z) for x, y, z in used}
    tested = set().union(*(voxels(case) for case in layout.cases("test")))
    assert tested
    assert not tested & used
    assert not tested & mirrored
    # Not even within 8 mm along the axis that keeps the slabs apart.
    assert min(abs(a - b) for a in {y for _, y, _ in tested} for b in {y for _, y, _ in used}) > 8


def test_fit_and_validate_share_no_voxel():
    layout = MniTissueBlocks()
    fitted, validated = (set().union(*(voxels(c) for c in layout.cases(s))) for s in ("fit", "validate"))
    assert not fitted & validated


def test_sides_are_the_patients_sides():
    for side, sign in (("left", -1), ("right", 1)):
        for start in COLUMNS[side]:
            assert np.sign(start - 98) == sign  # the midline is voxel 98, at x = 0 mm; x grows to the right in RAS+


def test_blocks_hold_image_and_truth_of_one_grid():
    cases = MniTissueBlocks().cases("test")
    assert len(cases) == 23
    for case in cases[:3]:
        image, truth = case.images[0].read(), case.target.read()
        assert image.geometry.difference(truth.geometry) is None
        assert set(np.unique(truth.labels)) <= {0, 1, 2}
        # Grey matter is darker than white matter on a T1 image.
        assert image.array[0][truth.labels == 1].mean() < image.array[0][truth.labels == 2].mean()


def test_an_unknown_split_of_the_template_names_the_others():
    with pytest.raises(UserError, match=r"no split 'tset'; did you mean 'test'\?"):
        MniTissueBlocks().cases("tset")
