"""AI in Lung Health: nodules of NLST, nodules by class, and a detector and a classifier behind each other."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from medimg_eval.case import Boxes, Findings, Points
from medimg_eval.metrics.finding_chains import END_TO_END, MATCHED, ScanCandidates, ScanFindings, chain_scores
from medimg_eval.results import build_table, load_scores
from tests.helpers.benchmark_files import ids, task, volume

SCANS = ("1.2.840.113654.2.55.1", "1.2.840.113654.2.55.2")


@pytest.fixture
def nlst(tmp_path):
    """Two scans, of which the table has two findings of the first."""
    for name in SCANS:
        volume(tmp_path / "data_dir" / f"{name}.nii.gz", np.zeros((30, 20, 8)), spacing=(2, 2, 4))
    (tmp_path / "annotations").mkdir()
    # RAS voxels (10, 5, 3) and (20, 15, 6) are LPS mm (-20, -10, 12) and (-40, -30, 24).
    rows = f"{SCANS[0]},-20.0,-10.0,12.0,8.0\n{SCANS[0]},-40.0,-30.0,24.0,20.0\n"
    file = tmp_path / "annotations" / "fitetal_NLST_3D_Annotation_worldxyzwh_CenterCordxyz.csv"
    file.write_text("seriesuid,coordX,coordY,coordZ,diameter_mm\n" + rows)
    return tmp_path


def test_findings_are_put_onto_the_grid_and_hit_within_half_of_their_size(nlst):
    one = task("dlcs_nlst", nlst)
    first, second = one.cases("test")
    assert ids([first, second]) == list(SCANS)
    np.testing.assert_allclose(first.target.read().positions, [[10, 5, 3], [20, 15, 6]], atol=1e-4)
    assert second.target.read().names == ()
    # 3.8 mm from the one of 8 mm, 8 mm from the one of 20 mm, and 8 mm from the first.
    places = np.array([[11.9, 5, 3], [24, 15, 6], [10, 9, 3]], float)
    rows = one.score(first, Points(places, ("nodule",) * 3, scores=np.array([0.9, 0.8, 0.7])))
    statuses = {round(row.value, 1): row.status for row in rows if row.metric == "detection_score"}
    assert statuses == {0.9: "hit", 0.8: "hit", 0.7: "false"}


def test_nodules_have_a_class(tmp_path):
    for name in "ab":
        volume(tmp_path / "nifti" / f"{name}.nii.gz", np.zeros((4, 4, 4)))
    for part in ("tr", "val"):
        rows = "".join(f"{name}.nii.gz,{label}\n" for name, label in (("a", 1), ("b", 0)))
        (tmp_path / f"fold_1_{part}.csv").write_text("unique_Annotation_id_nifti,Malignant_lbl\n" + rows)
    one = task("dlcs_nodules", tmp_path, layout={"allow_overlap": "a test"})
    cases = one.cases("test")
    assert ids(cases) == ["a.nii.gz", "b.nii.gz"]
    assert [case.target.read() for case in cases] == [Findings({"malignant": 1}), Findings({"malignant": 0})]
    assert cases[0].images[0].read().array.shape[-3:] == (4, 4, 4)


def write_annotations(folder):
    """The released table, and scans of which one is tested on."""
    for name in ("DLCS_0001", "DLCS_0002", "DLCS_0003"):
        volume(folder / f"{name}.nii.gz", np.zeros((30, 20, 8)), spacing=(2, 2, 4))
    head = "patient-id,nodule_id,ct_nifti_file,coordX,coordY,coordZ,w,h,d,Malignant_lbl,benchmark_split"
    # RAS voxel (10, 5, 3) is LPS mm (-20, -10, 12); 8 by 4 by 8 mm are 4 by 2 by 2 voxels.
    rows = ["1,1,DLCS_0001.nii.gz,-20,-10,12,8,4,8,1,test", "1,2,DLCS_0001.nii.gz,-40,-30,24,4,4,4,0,test"]
    rows += ["2,1,DLCS_0002.nii.gz,-20,-10,12,8,8,8,0,train", "3,1,DLCS_0003.nii.gz,-20,-10,12,8,8,8,0,val"]
    (folder / "DLCSD24_Annotations.csv").write_text("\n".join([head, *rows]) + "\n")


def test_boxes_in_mm_are_put_onto_the_grid_and_hit_by_overlap_or_distance(tmp_path):
    write_annotations(tmp_path)
    made = task("dlcs_boxes", tmp_path)
    (case,) = made.cases("test")
    boxes = case.target.read()
    # Edges of the first are 8 to 12, 4 to 6 and 2 to 4 in centres: the voxels between 8.5 and 11.5 and so on.
    np.testing.assert_allclose(boxes.corners[0], [8.5, 4.5, 2.5, 11.5, 5.5, 3.5])
    np.testing.assert_allclose(boxes.corners[1], [19.5, 14.5, 6, 20.5, 15.5, 6])
    answer = Boxes(boxes.corners + np.array([3, 0, 0, 3, 0, 0]), ("nodule",) * 2, scores=np.array([0.9, 0.8]))
    # Three of four voxels along: an IoU of 1 / 7 hits; three of two: none.
    rows = made.score(case, answer)
    assert {row.value: row.status for row in rows if row.metric == "detection_score"} == {0.9: "hit", 0.8: "false"}
    near = task("dlcs_boxes", tmp_path, matching="luna16", layout={"target": {"sizes": []}})
    rows = near.score(near.cases("test")[0], answer)  # 6 mm from a nodule of 8 mm: none
    assert {row.status for row in rows if row.metric == "detection_score"} == {"false"}


def scan(centres, radii, positive):
    return ScanFindings(np.array(centres, float).reshape(-1, 3), np.array(radii, float), np.array(positive, bool))


def marks(centres, confidences, probabilities):
    places = np.array(centres, float).reshape(-1, 3)
    return ScanCandidates(places, np.array(confidences, float), np.array(probabilities, float))


FINDINGS = {"s1": scan([[0, 0, 0], [50, 0, 0], [0, 90, 0]], [5, 5, 5], [1, 0, 1]), "s2": scan([], [], [])}
CANDIDATES = {
    # On the first: two, of which the more confident counts; on the second one; a false one; one too unsure.
    "s1": marks(
        [[1, 0, 0], [2, 0, 0], [50, 4, 0], [20, 20, 20], [0, 90, 0]],
        [0.6, 0.9, 0.7, 0.8, 0.1],
        [0.2, 0.9, 0.4, 0.3, 0.9],
    ),
    "s2": marks([[9, 9, 9]], [0.95], [0.6]),
}


def test_a_chain_by_hand():
    rows = pd.DataFrame(chain_scores(FINDINGS, CANDIDATES, least=0.5, label="malignant"))
    matched = rows[rows["task"] == MATCHED].set_index("case")
    assert matched["value"].to_dict() == {"s1/finding 1": 0.9, "s1/finding 2": 0.4}
    assert matched["status"].to_dict() == {"s1/finding 1": "present", "s1/finding 2": "absent"}
    whole = rows[rows["task"] == END_TO_END].set_index("case")
    assert whole["value"].to_dict() == {
        "s1/finding 1": 0.9,
        "s1/finding 2": 0.4,
        "s1/finding 3": 0.0,  # missed: its candidate is too unsure
        "s1/candidate 4": 0.3,
        "s2/candidate 1": 0.6,
    }
    assert whole.loc["s1/finding 3", "status"] == "present"
    assert whole.loc["s2/candidate 1", "status"] == "absent"


def test_matched_findings_flatter_and_a_table_shows_both(tmp_path):
    rng = np.random.default_rng(0)
    findings, candidates = {}, {}
    for number in range(40):
        positive = rng.random(2) < 0.5
        centres = np.array([[0.0, 0, 0], [60, 0, 0]])
        findings[f"s{number}"] = scan(centres, [5, 5], positive)
        seen = rng.random(2) < 0.7
        said = np.clip(rng.normal(0.3 + 0.4 * positive, 0.2), 0.01, 1)
        places = np.vstack([centres[seen], [[30, 30, 30]]])
        probabilities = [*said[seen], rng.random()]
        candidates[f"s{number}"] = marks(places, [0.9] * len(places), probabilities)
    rows = chain_scores(findings, candidates, least=0.5, label="malignant")
    pd.DataFrame(rows).to_csv(tmp_path / "chain.csv", index=False)
    names = ["auroc@malignant", "aggregated@max-patient:auroc@malignant"]
    table = build_table(load_scores(tmp_path / "chain.csv"), metrics=names, resamples=20)
    cells = {
        (column.task, column.metric): cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)
    }
    for part in (MATCHED, END_TO_END):
        held = [row for row in rows if row["task"] == part]
        area = roc_auc_score([row["status"] == "present" for row in held], [row["value"] for row in held])
        assert cells[part, names[0]] == pytest.approx(area)
    assert cells[MATCHED, names[0]] > cells[END_TO_END, names[0]]
    assert 0 <= cells[END_TO_END, names[1]] <= 1


def test_what_cannot_be_chained_is_refused():
    with pytest.raises(ValueError, match="expected scans among the findings, got 's9'"):
        chain_scores(FINDINGS, {"s9": CANDIDATES["s2"]}, least=0.5, label="malignant")
    with pytest.raises(
        ValueError, match=r"findings of 's1' is invalid: expected arrays of one length, got \(1, 2, 1\)"
    ):
        chain_scores({"s1": scan([0, 0, 0], [1, 2], [1])}, {}, least=0.5, label="malignant")
    assert chain_scores({"s2": FINDINGS["s2"]}, {}, least=0.5, label="malignant") == []
