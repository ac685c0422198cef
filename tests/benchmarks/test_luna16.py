"""LUNA16: nodules in world coordinates, irrelevant findings, ten subsets."""

import numpy as np
import pytest
import SimpleITK

from medimg_eval.case import Points
from tests.helpers.benchmark_files import ids, task

HEADER = "seriesuid,coordX,coordY,coordZ,diameter_mm\n"
ORIGIN, SPACING = (-100.0, -50.0, 20.0), (2.0, 2.0, 4.0)


def voxel(i, j, k):
    """World coordinates, as the tables hold them, of a voxel."""
    return ",".join(str(start + step * n) for start, step, n in zip(ORIGIN, SPACING, (i, j, k), strict=True))


@pytest.fixture
def luna(tmp_path):
    for subset in range(10):
        (tmp_path / f"subset{subset}").mkdir()
        for letter in "ab":
            image = SimpleITK.GetImageFromArray(np.zeros((8, 20, 30), np.int16))  # slice, row, column
            image.SetOrigin(ORIGIN)
            image.SetSpacing(SPACING)
            SimpleITK.WriteImage(image, tmp_path / f"subset{subset}/1.3.6.{subset}{letter}.mhd")
    (tmp_path / "annotations.csv").write_text(
        HEADER + f"1.3.6.0a,{voxel(10, 5, 3)},8.0\n1.3.6.0a,{voxel(20, 15, 6)},5.0\n1.3.6.1a,{voxel(1, 1, 1)},6.0\n"
    )
    (tmp_path / "annotations_excluded.csv").write_text(HEADER + f"1.3.6.0a,{voxel(3, 3, 3)},-1.0\n")
    return tmp_path


def test_the_nodules_of_a_scan_are_put_onto_its_grid(luna):
    one = task("luna16", luna)
    cases = one.cases("test")
    assert ids(cases) == ["1.3.6.0a", "1.3.6.0b"]
    found = cases[0].target.read()
    assert found.names == ("nodule", "nodule", "irrelevant finding")
    np.testing.assert_allclose(found.positions, [[10, 5, 3], [20, 15, 6], [3, 3, 3]], atol=1e-6)
    np.testing.assert_allclose(found.values, [8, 5, -1])
    assert cases[1].target.read().names == ()  # no row means no nodule


def test_nine_subsets_are_fitted_on(luna):
    one = task("luna16", luna)
    parts = {part: len(one.cases(part)) for part in ("fit", "validate", "test")}
    assert parts == {"fit": 16, "validate": 2, "test": 2}


def test_a_candidate_within_the_radius_is_a_hit_and_on_an_irrelevant_finding_nothing(luna):
    one = task("luna16", luna)
    case, _ = one.cases("test")
    positions = np.array([[11.9, 5, 3], [22, 15, 6], [3, 3, 3], [28, 1, 1]], float)  # 3.8 mm, 4 mm, on it, far
    answer = Points(positions, ("nodule",) * 4, scores=np.array([0.9, 0.8, 0.7, 0.6]))
    scores = one.score(case, answer)
    statuses = {round(score.value, 3): score.status for score in scores if score.metric == "detection_score"}
    assert statuses == {0.9: "hit", 0.8: "false", 0.7: "ignored", 0.6: "false"}
    assert [score.value for score in scores if score.metric == "detection_recall"] == [0.5]
