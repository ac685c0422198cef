"""Registration tasks: pairs in tables and as Learn2Reg lists them, transforms of other programs, known warps."""

import json
import math
import runpy
import sys
import types

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813

from medimg_eval.case import Alignment, Prompt
from medimg_eval.data.layouts import ImagePairs, Learn2Reg, WarpedBrain
from medimg_eval.errors import CaseError, SplitError, UserError
from medimg_eval.models import Identity, PrecomputedTransforms, SimpleItkRegistration
from medimg_eval.tasks import RegistrationTask
from tests.helpers.authors import require_clone
from tests.helpers.benchmark_files import task

SHAPE, SPACING = (14, 12, 13), (1.75, 1.25, 2.0)


def nifti(path, array, affine=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([*SPACING, 1.0]) if affine is None else affine), path)
    return path


def blocks(rng):
    labels = np.zeros(SHAPE, np.int16)
    for label in (1, 2, 3):
        corner = rng.integers(1, 6, 3)
        labels[tuple(slice(at, at + 5) for at in corner)] = label
    return labels


def write(root, subjects=3, *, modalities=("0000", "0001"), name="Made"):
    """Files in the layout of Learn2Reg, with displacements beside them; returns the names of the cases."""
    rng = np.random.default_rng(1)
    pairs, cases = [], []
    for number in range(1, subjects + 1):
        names = [f"{name}_{number:04d}_{modality}" for modality in modalities]
        for held in names:
            nifti(root / f"imagesTr/{held}.nii.gz", rng.normal(size=SHAPE).astype(np.float32))
            nifti(root / f"labelsTr/{held}.nii.gz", blocks(rng))
            for folder in ("landmarksTr", "keypoints00000001Tr"):
                (root / folder).mkdir(exist_ok=True)
                points = rng.uniform(3, 9, (6, 3)).round(3)
                (root / folder / f"{held}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in points))
        region = np.zeros(SHAPE, np.uint8)
        region[3:-2, 2:-4, 4:-3] = 1
        nifti(root / f"masksTr/{names[0]}.nii.gz", region)
        field = (rng.normal(size=(*SHAPE, 3)) * 0.7).astype(np.float16).astype(np.float32)
        case = f"{number:04d}_{modalities[0]}_{number:04d}_{modalities[1]}"
        nifti(root / f"fields/disp_{case}.nii.gz", field)
        pairs.append(
            {which: f"./imagesTr/{held}.nii.gz" for which, held in zip(("fixed", "moving"), names, strict=True)}
        )
        cases.append(case)
    methods = [
        {"name": "LogJacDetStd", "metric": "sdlogj"},
        {"name": "TRE_lm", "metric": "tre", "dest": "landmarks"},
        {"name": "DSC", "metric": "dice", "labels": [1, 2, 3]},
        {"name": "HD95", "metric": "hd95", "labels": [1, 2, 3]},
    ]
    config = {
        "task_name": name,
        "evaluation_methods": methods,
        "expected_shape": [*SHAPE, 3],
        "eval_pairs": pairs,
        "masked_evaluation": True,
    }
    (root / "config.json").write_text(json.dumps(config))
    return cases


def made_task(root, **changes):
    layout = Learn2Reg(root=str(root), pairs={"test": "config.json"}, points="landmarks", labels=True)
    names = {1: "one", 2: "two", 3: "three"}
    settings = {
        "metrics": ["tre", "dice", "hd95", "sdlogj_learn2reg", "negative_jacobians"],
        "labels": names,
        **changes,
    }
    return RegistrationTask(name="made", layout=layout, **settings)


def values(one, case, answer):
    return {(row.metric, row.label): row.value for row in one.score(case, one.accept(case, answer))}


def asked(one, case, model):
    (answer,) = model.register([one.prompt(case, one.read_images(case))])
    return answer


def test_pairs_are_those_of_the_config_with_what_is_known_of_them(tmp_path):
    names = write(tmp_path)
    one = made_task(tmp_path)
    cases = one.cases("test")
    assert [case.id for case in cases] == names
    assert [case.patient for case in cases] == ["0001", "0002", "0003"]
    known = cases[1].target.read()
    fixed = np.loadtxt(tmp_path / "landmarksTr/Made_0002_0000.csv", delimiter=",")
    np.testing.assert_array_equal(known.fixed_points, fixed)
    assert known.region.sum() == 9 * 6 * 6
    moving = np.asarray(nib.load(tmp_path / "labelsTr/Made_0002_0001.nii.gz").dataobj)
    np.testing.assert_array_equal(known.moving_labels.labels, moving)
    assert not one.check_case(cases[0]).doubts


def test_points_of_turned_modalities_lie_in_a_folder_of_their_own(tmp_path):
    write(tmp_path, 1, modalities=("0001", "0000"))
    layout = Learn2Reg(root=str(tmp_path), pairs={"test": "config.json"}, points="keypoints")
    known = layout.cases("test")[0].target
    assert known.fixed_points.name == "Made_0001_0001.csv"
    assert known.fixed_points.parent.name == "keypoints00000001Tr"


def test_the_field_pulls_the_moving_image_back_and_distances_are_mm_of_it(tmp_path):
    write(tmp_path, 1)
    one = made_task(tmp_path)
    (case,) = one.cases("test")
    known = case.target.read()
    field = np.zeros((3, *SHAPE))
    field[1] = 2.0  # two voxels of 1.25 mm
    found = values(one, case, field)
    expected = np.linalg.norm((known.fixed_points + np.array([0, 2, 0]) - known.moving_points) * SPACING, axis=1).mean()
    assert found["tre", "all"] == pytest.approx(expected)
    warped = np.zeros(SHAPE, int)
    warped[:, :-2] = known.moving_labels.labels[:, 2:]
    for label, name in one.labels.items():
        truth = known.fixed_labels.labels == label
        expected = 2 * (truth & (warped == label)).sum() / (truth.sum() + (warped == label).sum())
        assert found["dice", name] == pytest.approx(expected)
    # The same map in mm: the moving place is 2.5 mm further along y.
    shift = np.eye(4)
    shift[1, 3] = 2.5
    assert values(one, case, shift) == pytest.approx(found)
    assert found["negative_jacobians", "all"] == 0


def test_an_inverse_is_compared_on_the_way_back(tmp_path):
    write(tmp_path, 1)
    one = made_task(tmp_path, metrics=["inverse_consistency"])
    (case,) = one.cases("test")
    field = np.zeros((3, *SHAPE))
    field[0] = 1.0
    assert values(one, case, Alignment(field, -field)) == {("inverse_consistency", "all"): 0.0}
    assert values(one, case, Alignment(field, 0 * field))["inverse_consistency", "all"] == pytest.approx(1.75)
    assert math.isnan(values(one, case, field)["inverse_consistency", "all"])


def test_a_label_that_either_image_lacks_is_not_judged(tmp_path):
    write(tmp_path, 1)
    path = tmp_path / "labelsTr/Made_0001_0001.nii.gz"
    labels = np.asarray(nib.load(path).dataobj).copy()
    labels[labels == 2] = 0
    nifti(path, labels)
    one = made_task(tmp_path, metrics=["dice"])
    (case,) = one.cases("test")
    rows = {row.label: row for row in one.score(case, one.accept(case, np.eye(4)))}
    assert math.isnan(rows["two"].value)
    assert rows["two"].status == "absent"
    assert rows["one"].status == "present"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((3, 2, 2, 2)), r"expected prediction to be a displacement \(3, 14, 12, 13\)"),
        (np.full((4, 4), np.nan), "holds NaN"),
        (Alignment(np.eye(4), np.eye(3)), "expected inverse to be"),
    ],
)
def test_answers_that_are_no_transform_are_refused(tmp_path, answer, message):
    write(tmp_path, 1)
    one = made_task(tmp_path)
    with pytest.raises(CaseError, match=message):
        one.accept(one.cases("test")[0], answer)


def test_a_transform_is_kept_and_read_again(tmp_path):
    write(tmp_path, 1)
    one = made_task(tmp_path)
    (case,) = one.cases("test")
    answer = one.accept(case, Alignment(np.eye(4), np.zeros((3, *SHAPE))))
    stored = one.codec.write(tmp_path / "kept", case.id, answer)
    again = one.codec.read(stored)
    np.testing.assert_array_equal(again.forward, answer.forward)
    np.testing.assert_array_equal(again.inverse, answer.inverse)
    assert one.score(case, stored) == one.score(case, answer)
    stored.write_bytes(b"cut")
    with pytest.raises(CaseError, match="cannot be read as a stored transform"):
        one.codec.read(stored)


def test_a_pair_without_an_answer_costs_the_worst(tmp_path):
    write(tmp_path, 1)
    one = made_task(tmp_path)
    (case,) = one.cases("test")
    worst = {(row.metric, row.label): row.value for row in one.worst(case)}
    diagonal = math.hypot(*np.multiply(SHAPE, SPACING))
    assert worst["dice", "one"] == 0
    assert worst["tre", "all"] == pytest.approx(diagonal)


class TestFiles:
    """Displacements and affine maps of other programs."""

    def test_the_same_map_in_each_form_is_the_same(self, tmp_path):
        write(tmp_path, 1)
        one = made_task(tmp_path, metrics=["tre", "dice"])
        (case,) = one.cases("test")
        turn = sitk.Euler3DTransform((8.0, 7.0, 9.0), 0.02, -0.03, 0.1, (1.5, -0.8, 0.6))
        sitk.WriteTransform(turn, str(tmp_path / f"{case.id}.tfm"))
        still = one.read_images(case)[0].to_sitk()
        field = sitk.TransformToDisplacementField(
            turn, sitk.sitkVectorFloat64, still.GetSize(), still.GetOrigin(), still.GetSpacing(), still.GetDirection()
        )
        sitk.WriteImage(field, str(tmp_path / f"{case.id}.nii.gz"))
        assert nib.load(tmp_path / f"{case.id}.nii.gz").shape == (*SHAPE, 1, 3)
        lps = np.moveaxis(sitk.GetArrayFromImage(field), (0, 2), (2, 0))
        np.save(tmp_path / f"{case.id}.npy", lps * (-1, -1, 1))
        found = [
            values(one, case, asked(one, case, PrecomputedTransforms(str(tmp_path), pattern, units)))
            for pattern, units in (("{case}.tfm", "voxel"), ("{case}.nii.gz", "lps"), ("{case}.npy", "ras"))
        ]
        assert found[1] == pytest.approx(found[0], abs=1e-4)
        assert found[2] == pytest.approx(found[0], abs=1e-4)
        # By the book: TransformPoint maps the fixed points, in LPS.
        known, grid = case.target.read(), case.images[0].geometry()
        ends = [turn.TransformPoint(tuple(point * (-1, -1, 1))) for point in grid.world(known.fixed_points)]
        apart = np.array(ends) * (-1, -1, 1) - grid.world(known.moving_points)
        assert found[0]["tre", "all"] == pytest.approx(np.linalg.norm(apart, axis=1).mean(), abs=1e-6)

    def test_short_names_are_those_that_learn2reg_allows(self, tmp_path):
        (case,) = write(tmp_path, 1)
        one = made_task(tmp_path)
        model = PrecomputedTransforms(str(tmp_path / "fields"))
        first = asked(one, one.cases("test")[0], model).forward
        (tmp_path / f"fields/disp_{case}.nii.gz").rename(tmp_path / "fields/disp_0001_0001.nii.gz")
        np.testing.assert_array_equal(asked(one, one.cases("test")[0], model).forward, first)
        (tmp_path / "fields/disp_0001_0001.nii.gz").unlink()
        with pytest.raises(CaseError, match=r"disp_0001_0000_0001_0001\.npz: no such file"):
            asked(one, one.cases("test")[0], model)

    def test_a_field_of_another_grid_is_refused(self, tmp_path):
        (case,) = write(tmp_path, 1)
        np.savez(tmp_path / f"disp_{case}.npz", np.zeros((4, 4, 4, 3)))
        one = made_task(tmp_path)
        with pytest.raises(CaseError, match="on the grid of the fixed image"):
            asked(one, one.cases("test")[0], PrecomputedTransforms(str(tmp_path)))


def test_a_table_lists_pairs_with_points_in_the_patient(tmp_path):
    write(tmp_path, 1)
    known = made_task(tmp_path).cases("test")[0].target.read()
    lps = known.fixed_points * SPACING * (-1, -1, 1)
    lines = ["x,y,z", *(",".join(map(str, row)) for row in lps)]
    for which in ("a", "b"):
        (tmp_path / f"{which}.csv").write_text("\n".join(lines))
    names = "fixed,moving,fixed_points,moving_points,site\n"
    images = "imagesTr/Made_0001_0000.nii.gz,imagesTr/Made_0001_0001.nii.gz"
    (tmp_path / "pairs.csv").write_text(f"{names}{images},a.csv,b.csv,north\n")
    (case,) = ImagePairs(root=str(tmp_path), space="lps").cases("test")
    assert case.id == "Made_0001_0000-Made_0001_0001"
    assert case.attributes == {"site": "north"}
    np.testing.assert_allclose(case.target.read().moving_points, known.fixed_points)
    (tmp_path / "pairs.csv").write_text(f"{names}{images},a.csv,,north\n")
    with pytest.raises(UserError, match="expected both 'fixed_points' and 'moving_points', or neither"):
        ImagePairs(root=str(tmp_path)).cases("test")


def test_a_line_of_points_that_is_none_is_named(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "landmarksTr/Made_0001_0000.csv").write_text("1,2,3\n4,5\n")
    with pytest.raises(CaseError, match=r"Made_0001_0000\.csv, line 2: expected 3 numbers, got '4,5'"):
        made_task(tmp_path).cases("test")[0].target.read()


def test_a_split_that_there_is_not(tmp_path):
    write(tmp_path, 1)
    with pytest.raises(SplitError, match="has no split 'validate'"):
        made_task(tmp_path).layout.cases("validate")


def test_the_known_map_of_the_warped_brain_is_right():
    layout = WarpedBrain()
    case = layout.cases("test")[0]
    one = RegistrationTask(
        name="brain",
        layout=layout,
        labels={1: "grey", 2: "white"},
        metrics=["tre", "dice", "field_error", "negative_jacobians"],
    )
    known = case.target.read()
    found = values(one, case, known.forward)
    assert found["tre", "all"] < 1e-3  # points lie on voxels, where the field is exact
    assert found["field_error", "all"] < 1e-4
    assert found["negative_jacobians", "all"] == 0
    assert found["dice", "white"] > 0.8  # twice by the nearest voxel of 3 mm
    still = values(one, case, asked(one, case, Identity()))
    assert still["tre", "all"] > 3
    assert still["dice", "white"] < found["dice", "white"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "iterations", "least"), [("rigid", 60, 0.4), ("demons", 30, 0.7), ("bspline", 15, 0.6)]
)
def test_baselines_bring_the_brain_closer(method, iterations, least):
    """Of the error without registration they take a share that is far from chance, the same each time."""
    case = WarpedBrain().cases("test")[0]
    images = tuple(image.read() for image in case.images)
    known = case.target.read()
    model = SimpleItkRegistration(method, iterations=iterations)
    (answer,) = model.register([Prompt(case.id, images)])
    left = np.linalg.norm(answer.forward - known.forward, axis=0)[known.region].mean()
    assert left < (1 - least) * np.linalg.norm(known.forward, axis=0)[known.region].mean()


@pytest.mark.parametrize(
    "name", ["l2r_lung_ct", "l2r_nlst", "l2r_abdomen_ctct", "l2r_abdomen_mrct", "l2r_hippocampus_mr"]
)
def test_each_set_of_learn2reg_reads_files_of_its_layout(tmp_path, name):
    write(tmp_path, 2)
    for folder in ("landmarksTr", "keypoints00000001Tr"):
        (tmp_path / folder.replace("landmarks", "keypoints").replace("00000001", "")).mkdir(exist_ok=True)
    for path in (tmp_path / "landmarksTr").iterdir():
        (tmp_path / "keypointsTr" / path.name).write_bytes(path.read_bytes())
    one = task(name, tmp_path, layout={"pairs": {"validate": "config.json"}})
    assert [case.id for case in one.cases("test")] == ["0001_0000_0001_0001", "0002_0000_0002_0001"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_learn2regs_script_says_the_same(tmp_path, monkeypatch):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone of MDL-UzL/L2R: its script, on the same files."""
    clone = require_clone("MDL-UzL/L2R")
    names = write(tmp_path)
    # It imports an exception of a package that it needs for nothing else, and a name that NumPy has no more.
    monkeypatch.setitem(sys.modules, "evalutils", types.ModuleType("evalutils"))
    exceptions = types.ModuleType("evalutils.exceptions")
    exceptions.ValidationError = ValueError
    monkeypatch.setitem(sys.modules, "evalutils.exceptions", exceptions)
    monkeypatch.setattr(np, "NAN", np.nan, raising=False)
    monkeypatch.syspath_prepend(str(clone / "evaluation"))
    theirs = runpy.run_path(str(clone / "evaluation/evaluation.py"))["evaluate_L2R"]
    out = tmp_path / "metrics.json"
    theirs(str(tmp_path / "fields"), str(tmp_path), str(out), str(tmp_path / "config.json"))
    monkeypatch.delitem(sys.modules, "utils", raising=False)
    told = json.loads(out.read_text())
    one = made_task(tmp_path, surface_units="pixel", spline=3)
    model = PrecomputedTransforms(str(tmp_path / "fields"))
    found = {case.id: values(one, case, asked(one, case, model)) for case in one.cases("test")}
    for name, expected in zip(names, told["cases"].values(), strict=True):
        held = found[name]
        assert held["sdlogj_learn2reg", "all"] == pytest.approx(expected["LogJacDetStd"]["mean"], abs=1e-6)
        assert held["tre", "all"] == pytest.approx(expected["TRE_lm"]["mean"], abs=1e-6)
        for at, label in enumerate(one.labels.values()):
            assert held["dice", label] == pytest.approx(expected["DSC"]["detailed"][at], abs=1e-9)
            assert held["hd95", label] == pytest.approx(expected["HD95"]["detailed"][at], abs=1e-9)
        assert expected["num_foldings"]["mean"] == 0  # 3 is added before they are counted
        assert held["negative_jacobians", "all"] > 5
