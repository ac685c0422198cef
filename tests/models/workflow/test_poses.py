"""Sequences of poses: their files, ST-GCN's graph, and a network that learns from them."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.case import Findings, Image, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.video import read_poses

POSES = np.arange(2 * 17 * 3, dtype=float).reshape(2, 17, 3)


def write_openpose(folder):
    folder.mkdir()
    for number, pose in ((10, POSES[1]), (2, POSES[0])):  # frame 2 comes before 10
        people = [{"pose_keypoints_2d": pose.ravel().tolist()}]
        (folder / f"clip_{number}_keypoints.json").write_text(json.dumps({"people": people}))
    (folder / "clip_11_keypoints.json").write_text(json.dumps({"people": []}))


def test_poses_are_the_same_from_arrays_and_json(tmp_path):
    np.save(tmp_path / "a.npy", POSES)
    np.savez(tmp_path / "a.npz", poses=POSES)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(POSES))
    people = [{"image_id": name, "keypoints": POSES[n].ravel().tolist()} for n, name in ((1, "10.jpg"), (0, "2.jpg"))]
    (tmp_path / "list.json").write_text(json.dumps(people))
    (tmp_path / "coco.json").write_text(json.dumps({"annotations": people}))
    for name in ("a.npy", "a.npz", "a.pkl", "list.json", "coco.json"):
        np.testing.assert_array_equal(read_poses(tmp_path / name), POSES)
    write_openpose(tmp_path / "openpose")
    found = read_poses(tmp_path / "openpose")
    np.testing.assert_array_equal(found[:2], POSES)
    assert not found[2].any()


def test_what_was_not_found_has_a_score_of_0_and_what_has_none_one_of_1(tmp_path):
    poses = POSES[..., :2].copy()
    poses[0, 3] = np.nan
    np.save(tmp_path / "a.npy", poses)
    found = read_poses(tmp_path / "a.npy")
    assert found[0, 3].tolist() == [0, 0, 0]
    assert found[1, 3].tolist() == [*poses[1, 3], 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", None, "there is no such file"),
        ("a.pkl", pickle.dumps(print), "holds builtins.print"),
        (
            "a.json",
            b'[{"image_id": 1, "keypoints": [1, 2, 3]}, {"image_id": 1, "keypoints": [1, 2, 3]}]',
            "several people",
        ),
        ("a.json", b'{"people": []}', "not understood as poses"),
        ("b.pkl", pickle.dumps(np.zeros((2, 3))), "got \\(2, 3\\)"),
    ],
)
def test_files_that_cannot_be_meant(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CaseError, match=message):
        read_poses(tmp_path / name)


def test_partitions_of_a_chain_of_three_joints():
    from medimg_eval.models.workflow.pose_network import spatial_partitions

    # Joint 0 is the centre of 0 - 1 - 2; columns are divided by how many joints they link: 2, 3, 2.
    own, towards, away = spatial_partitions(3, [(0, 1), (1, 2)], 0).numpy()
    np.testing.assert_allclose(own, np.diag([1 / 2, 1 / 3, 1 / 2]))
    np.testing.assert_allclose(towards, [[0, 1 / 3, 0], [0, 0, 1 / 2], [0, 0, 0]])
    np.testing.assert_allclose(away, [[0, 0, 0], [1 / 2, 0, 0], [0, 1 / 3, 0]])


@pytest.mark.parametrize("joints", [17, 18, 25])
def test_skeletons_are_one_piece(joints):
    from medimg_eval.models.workflow.pose_network import CENTRES, read_bones, spatial_partitions

    parts = spatial_partitions(joints, read_bones(joints), CENTRES[joints]).numpy()
    linked = np.linalg.matrix_power((parts.sum(0) > 0).astype(float), joints) > 0
    assert linked.all()


def test_st_gcn_has_its_size_and_unknown_skeletons_are_refused():
    from medimg_eval.models.workflow.pose_network import PoseNetwork, read_bones

    network = PoseNetwork(18, read_bones(18), 400)
    assert 2.9e6 < sum(one.numel() for one in network.parameters()) < 3.2e6  # 3.1 million, as ST-GCN on Kinetics
    with pytest.raises(ValueError, match="expected the bones of 5 joints"):
        read_bones(5)
    assert read_bones(2, [[0, 1]]) == [(0, 1)]


def lesson(raised, rng):
    """A person of five joints in a chain, who moves, and raises the last joint or does not."""
    poses = np.concatenate(
        [rng.normal(0, 0.05, (20, 5, 2)) + np.arange(5)[None, :, None] + 100, np.ones((20, 5, 1))], 2
    )
    if raised:
        poses[10:, 4, 1] -= 3
    image = Image(np.moveaxis(poses, -1, 0).astype(np.float32), np.eye(4), modality="POSE", units="pixel")
    prompt = Prompt("p", (image,), {1: "up", 2: "down"}, options={"1": "up", "2": "down"})
    return SimpleNamespace(prompt=prompt, target=Findings({"up": float(raised), "down": float(not raised)}))


@pytest.mark.slow
def test_a_network_learns_from_poses_and_is_read_again(tmp_path):
    pytest.importorskip("torch").set_num_threads(1)
    from medimg_eval.models import PoseClassifier

    rng = np.random.default_rng(0)
    settings = {"frames": 12, "width": 2, "edges": [[0, 1], [1, 2], [2, 3], [3, 4]], "epochs": 25, "dropout": 0.0}
    settings |= {"learning_rate": 0.01, "batch": 4}
    model = PoseClassifier(**settings)
    with pytest.raises(UserError, match="fit the model first"):
        model.check_ready()
    told = model.learn([lesson(n % 2 == 0, rng) for n in range(12)], None, tmp_path / "run", "classify")
    assert told["sequences"] == 12
    again = PoseClassifier(**settings, checkpoint=str(tmp_path / "run"))
    again.check_ready()
    asked = [lesson(raised, rng).prompt for raised in (True, False, True, False)]
    found = again.classify(asked)
    assert [max(row, key=row.get) for row in found] == ["up", "down", "up", "down"]
    assert all(sum(row.values()) == pytest.approx(1) for row in found)
    assert found == model.classify(asked)
    with pytest.raises(CaseError, match="fitted on up, down"):
        again.classify([Prompt("p", asked[0].images, {1: "down", 2: "up"})])
    with pytest.raises(CaseError, match=r"expected one sequence of poses \(3, frame, 5\)"):
        again.classify([Prompt("p", (Image(np.zeros((3, 4, 6)), np.eye(4)),), asked[0].labels)])
