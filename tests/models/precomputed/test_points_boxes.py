"""Points, boxes and measurements that other programs wrote, from the file to the table."""

import json
import math
import pickle
from functools import partial

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest
import SimpleITK
from entries import entry
from PIL import Image as Pillow

from medimg_eval.case import Boxes, Image, Prompt
from medimg_eval.data.layouts import Volumes
from medimg_eval.data.targets import NumberColumns, PointColumns, TableTarget, VertebraCentroids
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models import Detector
from medimg_eval.models.precomputed.points_boxes import PrecomputedNumbers, PrecomputedPlaces
from medimg_eval.tasks.detection import DetectionTask
from medimg_eval.tasks.landmarks import LandmarkTask
from medimg_eval.tasks.measurements import MeasurementTask
from tests.helpers.running import evaluate

LUNA = {"columns": ["coordX", "coordY", "coordZ"], "space": "lps", "case": "seriesuid", "score": "probability"}
SUBMISSION = "seriesuid,coordX,coordY,coordZ,probability\n"
ORIGIN, SPACING = (-100.0, -50.0, 20.0), (2.0, 2.0, 4.0)
LABELS = {1: "nodule"}

# Axes L, P, S, steps of 2, 2 and 4 mm, as SimpleITK writes LUNA16's scans.
LPS = np.diag([-2.0, -2.0, 4.0, 1.0])
LPS[:3, 3] = (100.0, 50.0, 20.0)


def mm(i, j, k):
    """World coordinates of a voxel, as LUNA16's tables hold them."""
    return ",".join(str(start + step * n) for start, step, n in zip(ORIGIN, SPACING, (i, j, k), strict=True))


def prompt(case="a", labels=LABELS, affine=LPS, shape=(30, 20, 8), units="mm"):
    return Prompt(case, (Image(np.zeros((1, *shape), np.int16), affine, units=units),), labels)


def table(folder, text, name="results.csv"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def values(task, wrapper, config, folder):
    """Runs a model on a task, and returns metric -> mean as the table has it."""
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=folder / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    done = evaluate(task, ModelSpec("Results", wrapper, config, load=lambda: wrapper(**config)), settings)
    summary = json.loads((done / "summary.json").read_text())
    return {row["metric"]: row["mean"] for row in summary["metrics"]}, summary["failures"]


quiet = pytest.mark.filterwarnings(
    "ignore:You have overridden `transfer_batch_to_device`",
    "ignore:.*isinstance.treespec, LeafSpec",
)


# From end to end


@quiet
def test_a_submission_to_luna16_has_its_cpm(tmp_path):
    for name in "abc":
        image = SimpleITK.GetImageFromArray(np.zeros((8, 20, 30), np.int16))  # slice, row, column
        image.SetOrigin(ORIGIN)
        image.SetSpacing(SPACING)
        (tmp_path / "subset0").mkdir(exist_ok=True)
        SimpleITK.WriteImage(image, tmp_path / "subset0" / f"1.3.{name}.mhd")
    table(
        tmp_path,
        "seriesuid,coordX,coordY,coordZ,diameter_mm\n" + f"1.3.a,{mm(10, 5, 3)},8\n1.3.b,{mm(20, 15, 6)},6\n",
        "annotations.csv",
    )
    nodules = PointColumns(["coordX", "coordY", "coordZ"], "lps", name="nodule", value="diameter_mm")
    layout = Volumes(
        root=str(tmp_path),
        image="subset{split}/{case}.mhd",
        target=TableTarget("annotations.csv", "seriesuid", nodules, absent="empty"),
    )
    metrics = ["cpm", "froc@0.25", "froc@0.5", "detection_recall"]
    task = DetectionTask(name="luna", layout=layout, labels=["nodule"], metrics=metrics, splits={"test": "0"})
    # By confidence: a hit in a; false in b, 8 mm off; a hit in b. Nothing in c, and a scan of another subset.
    rows = [f"1.3.a,{mm(10.5, 5, 3)},0.9", f"1.3.b,{mm(24, 15, 6)},0.8", f"1.3.b,{mm(20, 15, 6)},0.7", "9.9,0,0,0,1"]
    config = {"root": table(tmp_path, SUBMISSION + "\n".join(rows)), **LUNA}
    found, failures = values(task, PrecomputedPlaces, config, tmp_path)
    assert failures == []
    assert found["detection_recall"] == 1
    # Of 3 scans one false candidate is a rate of 1/3: below it one of two nodules is found, from it on both.
    assert found["froc@0.25"] == pytest.approx(0.5, abs=0.01)
    assert found["froc@0.5"] == pytest.approx(1)
    assert found["cpm"] == pytest.approx((2 * 0.5 + 5 * 1) / 7, abs=0.01)


PIR = np.array([[0, 0, 2.0, -15.0], [-1.0, 0, 0, 40.0], [0, -1.0, 0, 70.0], [0, 0, 0, 1]])
"""Axes P, I, R of 30 x 60 x 20 voxels, of which the last is 2 mm."""

VERSE = [{"direction": ["P", "I", "R"]}] + [{"label": n, "X": 10, "Y": y, "Z": 9} for n, y in ((19, 10), (20, 40))]
MICCAI = [{"label": n, "X": y, "Y": 10, "Z": 20} for n, y in ((19, 10), (20, 40))]  # (19 - 9) * 2 mm to the left


@quiet
@pytest.mark.parametrize("space", ["verse", "verse_miccai", "ras"])
def test_predicted_centroids_have_verses_identification_rate(tmp_path, space):
    for case in ("v1", "v2"):
        folder = tmp_path / "truth"
        folder.mkdir(exist_ok=True)
        nib.save(nib.Nifti1Image(np.zeros((30, 60, 20), np.int16), PIR), folder / f"{case}.nii.gz")
        (folder / f"{case}.json").write_text(json.dumps(VERSE))
    table(tmp_path / "truth", "case,split\nv1,test\nv2,test\n", "cases.csv")
    layout = Volumes(
        root=str(tmp_path / "truth"), image="{case}.nii.gz", table="cases.csv", target=VertebraCentroids("{case}.json")
    )
    task = LandmarkTask(
        name="v", layout=layout, labels={19: "T12", 20: "L1"}, missed="skip", metrics=["id_rate", "d_mean"]
    )
    world = [  # by hand: voxel (10, y, 9) lies at x = -15 + 2 * 9, y = 40 - 10, z = 70 - y
        {"label": n, "X": 3, "Y": 30, "Z": 70 - y} for n, y in ((19, 10), (20, 40))
    ]
    content = {"verse": VERSE, "verse_miccai": MICCAI, "ras": world}[space]
    table(tmp_path / "out", json.dumps(content), "v1_ctd.json")
    left = [*content[:-1], {"label": 20, "X": None, "Y": None, "Z": math.nan}]  # L1 was not found
    table(tmp_path / "out", json.dumps(left), "v2_ctd.json")
    config = {"root": str(tmp_path / "out"), "columns": list("XYZ"), "space": space, "label": "label"}
    found, failures = values(task, PrecomputedPlaces, config | {"pattern": "{case}_ctd.json"}, tmp_path)
    assert failures == []
    assert found == {"id_rate": pytest.approx(0.75), "d_mean": pytest.approx(0, abs=1e-9)}


READERS = {
    "wide": ("case,split,A,B\n", "{c},test,{a},{b}\n", {"columns": {"angle/A": "A", "angle/B": "B"}}),
    "long": ("case,split,who,angle\n", "{c},test,A,{a}\n{c},test,B,{b}\n", {"columns": ["angle"], "reader": "who"}),
}


@quiet
@pytest.mark.parametrize("form", READERS)
def test_angles_by_two_readers_have_icc_and_the_readers_spread(tmp_path, form):
    header, line, target = READERS[form]
    read = {"p1": (10, 12), "p2": (20, 24), "p3": (30, 30)}
    for case in read:
        Pillow.fromarray(np.zeros((4, 5), np.uint8)).save(tmp_path / f"{case}.png")
    table(tmp_path, header + "".join(line.format(c=c, a=a, b=b) for c, (a, b) in read.items()), "truth.csv")
    pictures = "case,split\n" + "".join(f"{case},test\n" for case in read)
    table(tmp_path, pictures, "cases.csv")
    truth = TableTarget("truth.csv", "case", NumberColumns(**target))
    layout = Volumes(root=str(tmp_path), image="{case}.png", table="cases.csv", target=truth)
    metrics = ["absolute_error", "icc", "inter_reader", "reader_deviation"]
    task = MeasurementTask(name="cobb", layout=layout, measures=["angle"], metrics=metrics)
    answers = table(tmp_path, "image,mt\np1,12\np2,22\np3,29\nother,1\n")
    config = {"root": answers, "columns": {"angle": "mt"}, "case": "image"}
    found, failures = values(task, PrecomputedNumbers, config, tmp_path)
    assert failures == []
    assert found["absolute_error"] == pytest.approx((1 + 0 + 1) / 3)  # of the means 11, 22 and 30
    assert found["inter_reader"] == pytest.approx((2 + 4 + 0) / 3)
    assert found["reader_deviation"] == pytest.approx((1 + 2 + 1) / 3)
    pairs = np.array([[12, 11], [22, 22], [29, 30]], float)
    rows, columns = 2 * pairs.mean(1).var(ddof=1), 3 * pairs.mean(0).var(ddof=1)
    rest = (((pairs - pairs.mean()) ** 2).sum() - 2 * rows - columns) / 2
    assert found["icc"] == pytest.approx((rows - rest) / (rows + rest + 2 * (columns - rest) / 3))


# Places


def test_a_case_without_candidates_is_answered_with_none(tmp_path):
    model = PrecomputedPlaces(table(tmp_path, SUBMISSION + f"a,{mm(1, 2, 3)},0.5"), **LUNA)
    one, none = model.detect([prompt("a"), prompt("b")])
    assert isinstance(model, Detector)
    assert model.reads_images
    np.testing.assert_allclose(one.positions, [[1, 2, 3]])
    assert (one.names, one.scores.tolist()) == (("nodule",), [0.5])
    assert (none.positions.shape, none.names, none.scores.shape) == ((0, 3), (), (0,))
    assert pickle.loads(pickle.dumps(model)).detect([prompt("a")])[0].names == ("nodule",)


def test_a_case_without_a_file_fails_and_one_whose_file_lists_nothing_does_not(tmp_path):
    table(tmp_path, "[]", "a.json")
    table(tmp_path, "[]", "case_bb.json")
    model = PrecomputedPlaces(str(tmp_path), ["x", "y"], "voxel", pattern="{case}.json", named="nodule")
    assert not model.reads_images
    assert model.detect([Prompt("a", (), LABELS)])[0].names == ()
    with pytest.raises(CaseError, match=r"no result for case 'case_b' \(there is 'case_bb\.json'\)"):
        model.detect([Prompt("case_b", (), LABELS)])


def test_points_of_pictures_are_turned_to_row_and_column(tmp_path):
    table(tmp_path, "x,y,what\n7,2.5,tip\n", "a.csv")
    (found,) = PrecomputedPlaces(str(tmp_path), ["x", "y"], "voxel", label="what").detect([Prompt("a", (), {})])
    assert (found.positions.tolist(), found.names, found.scores) == ([[2.5, 7]], ("tip",), None)


@pytest.mark.parametrize(("form", "numbers"), [("corners", "3,1,5,4"), ("sizes", "3,1,2,3")])
def test_boxes_of_pictures_are_the_pixels_inside(tmp_path, form, numbers):
    path = table(tmp_path, f"case,x,y,u,v,p\na,{numbers},0.5")
    model = PrecomputedPlaces(path, list("xyuv"), "voxel", form=form, score="p")
    (found,) = model.detect([Prompt("a", (), LABELS)])
    assert isinstance(found, Boxes)
    assert found.corners.tolist() == [[1, 3, 3, 4]]  # rows 1 to 3, columns 3 and 4
    assert model.detect([Prompt("b", (), LABELS)])[0].corners.shape == (0, 4)


def test_boxes_in_mm_are_the_voxels_inside_whichever_way_the_axes_run(tmp_path):
    # Voxels 2..4, 5..5 and 1..2: their edges, in mm of RAS, are half a step outside their centres.
    low, high = LPS @ [1.5, 4.5, 0.5, 1], LPS @ [4.5, 5.5, 2.5, 1]
    ends = np.sort(np.stack([low, high])[:, :3], axis=0)
    path = table(tmp_path, "case,a,b,c,d,e,f\na," + ",".join(str(one) for one in ends.ravel()))
    model = PrecomputedPlaces(path, list("abcdef"), "ras", form="corners")
    np.testing.assert_allclose(model.detect([prompt()])[0].corners, [[2, 5, 1, 4, 5, 2]])
    thin = table(tmp_path, "case,a,b,c,d,e,f\na,95,39,22,96,40,23", "thin.csv")  # of 0.5, 0.5 and 0.25 voxels
    corners = PrecomputedPlaces(thin, list("abcdef"), "ras", form="corners").detect([prompt()])[0].corners
    np.testing.assert_allclose(corners, [[2.25, 5.25, 0.625] * 2])
    turned = LPS.copy()
    turned[1, 0] = 0.5
    with pytest.raises(CaseError, match=r"results\.csv: boxes in mm have no place in an image whose axes are oblique"):
        model.detect([prompt(affine=turned)])


def test_labels_stored_as_numbers_are_names_without_decimals(tmp_path):
    table(tmp_path, '[{"n": 20.0, "x": 1, "y": 2}, {"n": "T13", "x": 3, "y": 4}]', "a.json")
    model = PrecomputedPlaces(str(tmp_path), ["x", "y"], "voxel", pattern="{case}.json", label="n")
    assert model.detect([Prompt("a", (), {})])[0].names == ("20", "T13")


# What is wrong


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"space": "mm"}, "voxel, lps, ras, verse, verse_miccai .*not in 'mm'"),
        ({"form": "corner"}, "got 'corner'; did you mean 'corners'"),
        ({"columns": ["coordX"]}, "2 or 3 for a point"),
        ({"columns": ["coordX", "coordY"]}, "expected x, y and z in 'lps'"),
        ({"columns": list("abcdef"), "form": "sizes", "space": "verse"}, "of points, not of sizes"),
        ({"label": "a", "named": "b"}, "either model.label"),
        (
            {"case": "seriesuuid"},
            r"results\.csv: there is no column 'seriesuuid'; did you mean 'seriesuid'.*model.case",
        ),
        ({"score": "p"}, r"results\.csv: there is no column 'p'.*set model\.score"),
        ({"root": "nowhere.csv"}, "nowhere.csv: no such file or folder; set model.root"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_any_case(tmp_path, changes, words):
    path = table(tmp_path, SUBMISSION)
    with pytest.raises(UserError, match=words):
        PrecomputedPlaces(**{"root": path, **LUNA, **changes})


def test_a_folder_needs_a_pattern_and_several_labels_need_names(tmp_path):
    with pytest.raises(UsageError, match=r"model.pattern to hold \{case\} and end in"):
        PrecomputedPlaces(str(tmp_path), ["x", "y"], "voxel", pattern="{case}.pkl")
    model = PrecomputedPlaces(table(tmp_path, SUBMISSION), **LUNA)
    model.prepare(["nodule"], None)
    with pytest.raises(UserError, match="the task has 2 labels; set model.label"):
        model.prepare({1: "a", 2: "b"}, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,1,x,3,0.5", "line 2: column 'coordY' holds 'x', expected a number"),
        ("\na,1,2,nan,0.5", "line 3: column 'coordZ' is empty or NaN"),
        ("a,,,,0.5", "line 2: column 'coordX' is empty or NaN"),
        ("a,1,2,inf,0.5", "line 2: column 'coordZ' holds inf, expected a finite number"),
        ("a,1,2,3,", "line 2: column 'probability' is empty or NaN, expected a confidence"),
        ("a.mhd,1,2,3,0.5", r"column 'seriesuid' calls case 'a' 'a\.mhd'; write the case's own name there"),
    ],
)
def test_a_row_that_is_wrong_fails_its_case_alone_and_is_named(tmp_path, text, words):
    model = PrecomputedPlaces(table(tmp_path, f"{SUBMISSION}{text}\nb,1,2,3,0.5"), **LUNA)
    assert len(model.detect([prompt("b")])[0].names) == 1
    with pytest.raises(CaseError, match=rf"results\.csv.*{words}"):
        model.detect([prompt("a")])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("a,a\n1,2", "two columns have the same name"),
        ("case,x\n1,2,3", "line 2: has 3 fields, and the header 2"),
        ('case,x\n"1,2', "cannot be read as a table"),
    ],
)
def test_a_table_that_is_no_table_is_named(tmp_path, content, words):
    with pytest.raises(UserError, match=rf"results\.csv.*{words}"):
        PrecomputedNumbers(table(tmp_path, content), ["x"])
    with pytest.raises(UserError, match=r"results\.xlsx: expected a table"):
        PrecomputedNumbers(table(tmp_path, content, "results.xlsx"), ["x"])


@pytest.mark.parametrize(
    ("space", "content", "words"),
    [
        ("verse", MICCAI, "names no 'direction' first; set model.space=verse_miccai"),
        ("verse_miccai", VERSE, "names a 'direction', so it counts voxels; set model.space=verse"),
        ("verse", [{"direction": ["P", "A", "R"]}], "the direction .* is not understood"),
        ("verse", [{"direction": "PIR"}, {"label": 1, "X": 1, "Y": 2}], "item 2: there is no column 'Z'"),
        ("verse", [1], "expected a list of objects, found 1"),
    ],
)
def test_centroids_in_the_other_frame_are_refused(tmp_path, space, content, words):
    table(tmp_path, json.dumps(content), "a.json")
    model = PrecomputedPlaces(str(tmp_path), list("XYZ"), space, pattern="{case}.json", label="label")
    with pytest.raises(CaseError, match=rf"a\.json.*{words}"):
        model.detect([prompt()])


def test_what_cannot_be_placed_says_so(tmp_path):
    model = PrecomputedPlaces(table(tmp_path, f"{SUBMISSION}a,1,2,3,1"), **LUNA)
    with pytest.raises(CaseError, match="case 'a': states no physical size, so mm cannot be placed"):
        model.detect([prompt(units="pixel")])
    flat = PrecomputedPlaces(table(tmp_path, "case,x,y,u,v\na,3,1,2,4"), list("xyuv"), "voxel", form="corners")
    with pytest.raises(CaseError, match=r"results\.csv, line 2: the box .* is empty as corners; see model\.form"):
        flat.detect([Prompt("a", (), LABELS)])
    table(tmp_path, "[", "a.json")
    broken = PrecomputedPlaces(str(tmp_path), ["x", "y"], "voxel", pattern="{case}.json")
    with pytest.raises(CaseError, match=r"a\.json: cannot be read as JSON"):
        broken.detect([Prompt("a", (), LABELS)])


# Numbers


def test_numbers_come_from_a_row_or_a_file_and_blanks_are_not_measured(tmp_path):
    model = PrecomputedNumbers(table(tmp_path, "case\tMT\tPT\nscan_a\t41.5\t\n", "r.tsv"), ["MT", "PT"])
    assert not model.reads_images
    (found,) = model.detect([Prompt("scan_a", (), {})])
    assert found["MT"] == 41.5
    assert math.isnan(found["PT"])
    table(tmp_path, '{"mt": 3}', "scan_b.json")
    assert PrecomputedNumbers(str(tmp_path), {"MT": "mt"}).detect([Prompt("scan_b", (), {})]) == [{"MT": 3}]
    same = PrecomputedNumbers(str(tmp_path)).detect([Prompt("scan_b", (), {1: "mt"})])  # the task's own names
    assert same == [{"mt": 3}]
    with pytest.raises(CaseError, match=r"r\.tsv: has no row of case 'scan_b' \(there is 'scan_a'\)"):
        model.detect([Prompt("scan_b", (), {})])
    twice = PrecomputedNumbers(table(tmp_path, "case,MT\na,1\na,2\n"), ["MT"])
    with pytest.raises(CaseError, match=r"results\.csv: has 2 records of case 'a', expected one"):
        twice.detect([Prompt("a", (), {})])
    with pytest.raises(UsageError, match="expected model.columns to be a list"):
        PrecomputedNumbers(str(tmp_path), "MT")


def test_numbers_of_readers_who_read_twice(tmp_path):
    rows = [{"who": "A", "n": 1, "MT": "10"}, {"who": "A", "n": 2, "MT": "12"}, {"who": "B", "n": 1, "MT": ""}]
    target = NumberColumns(["MT"], reader="who", reading="n")
    assert target.reference(entry(tmp_path, *rows)).read().values == {"MT/A/1": 10, "MT/A/2": 12}
    with pytest.raises(UserError, match=r"t\.csv, line 3: case 'case1' has 'MT/A' in an earlier row.*`reading`"):
        NumberColumns(["MT"], reader="who").reference(entry(tmp_path, *rows))
    with pytest.raises(UserError, match=r"t\.csv, line 2: column 'who' holds 'A/B', expected a name without '/'"):
        target.reference(entry(tmp_path, {"who": "A/B", "n": 1, "MT": 1}))
    with pytest.raises(UserError, match=r"t\.csv, line 3: says .* of case 'case1'"):
        NumberColumns(["MT"]).reference(entry(tmp_path, *rows))
    with pytest.raises(UserError, match=r"t\.csv, line 2: column 'MT' holds inf, expected a finite number"):
        NumberColumns(["MT"]).reference(entry(tmp_path, {"MT": "inf"}))
    blank = NumberColumns({"MT": "mt"}).reference(entry(tmp_path, {"mt": None})).read().values
    assert math.isnan(blank["MT"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NumberColumns("MT"), "expected a list of columns"),
        (lambda: NumberColumns({"MT/A/1/x": "a"}), "`name/reader/reading` for a number, got 'MT/A/1/x'"),
        (lambda: NumberColumns({"MT/": "a"}), "got 'MT/'"),
        (lambda: NumberColumns(["MT"], reading="n"), "needs `reader`"),
        (lambda: NumberColumns({"MT/A": "a"}, reader="who"), "either in the column 'who' or in names such as 'MT/A'"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_at_once(make, words):
    with pytest.raises(UsageError, match=words):
        make()
