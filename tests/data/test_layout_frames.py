"""Videos and files that label their frames; a case is a film or a labelled frame."""

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import FrameRows, Frames
from medimg_eval.data.splits import SplitLists
from medimg_eval.data.targets import BoxColumns, ClassName, MaskTarget, PointColumns
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.video.reading import write_video

HEADER = "int_time,int_step,int_instrument1,int_instrument2\n"


@pytest.fixture
def pitvis(tmp_path):
    """Two videos of 9 frames, 4 a second; frame i of video v is of grey 20 i + v; a label each second."""
    for number in (1, 2):
        frames = np.stack([np.full((16, 16, 3), 20 * i + number, np.uint8) for i in range(9)])
        write_video(tmp_path / f"video_{number:02d}.mp4", frames, 4)
        (tmp_path / f"annotations_{number:02d}.csv").write_text(HEADER + f"0,-1,-1,-2\n1,{number},18,-2\n2,0,5,6\n")
    return {
        "root": str(tmp_path),
        "video": "video_{video}.mp4",
        "labels": FrameRows("annotations_{video}.csv", "int_time", unit=4),
    }


def test_a_video_is_a_case_with_the_labels_of_its_frames(pitvis):
    first, second = Frames(**pitvis).cases("test")
    labels = second.target.read()
    assert (second.id, second.patient) == ("02", "02")
    np.testing.assert_array_equal(labels.frames, [0, 4, 8])
    (by_second, _) = Frames(**pitvis, every=4).cases("test")
    np.testing.assert_array_equal(by_second.target.read().frames, [0, 1, 2])
    assert {name: column.tolist() for name, column in labels.columns.items()} == {
        "int_step": [-1, 2, 0],
        "int_instrument1": [-1, 18, 5],
        "int_instrument2": [-2, -2, 6],
    }
    assert [int(frame.mean()) for frame in first.images[0].frames([0, 8])] == [1, 161]


def test_a_labelled_frame_may_be_a_case(pitvis):
    layout = Frames(**pitvis, unit="frame", target=ClassName("int_step", ["-1", "0", "1", "2"]))
    cases = layout.cases("test")
    assert [case.id for case in cases][3:] == ["02-000000", "02-000004", "02-000008"]
    assert [case.patient for case in cases] == ["01"] * 3 + ["02"] * 3
    image = cases[4].images[0].read()
    assert image.array.shape == (3, 16, 16)
    assert (image.array == 82).all()  # frame 4 of video 2
    assert cases[4].target.read().values == {"-1": 0, "0": 0, "1": 0, "2": 1}
    assert cases[4].images[0].geometry().shape == (16, 16)


def test_videos_are_split_whole(pitvis, tmp_path):
    (tmp_path / "test.txt").write_text("02\n")
    layout = Frames(
        **pitvis,
        splits=SplitLists({"test": "test.txt"}, key="{video}"),
        unit="frame",
        target=ClassName("int_step", ["-1", "0", "2"]),
    )
    assert {case.patient for case in layout.cases("test")} == {"02"}


def test_folders_of_frames_with_one_table_points_and_masks(tmp_path):
    """As BleedOrigin: frames, and a table of all with frame, x, y; a mask for a frame."""
    for video in ("esd1", "esd2"):
        (tmp_path / "frames" / video).mkdir(parents=True)
        for index in (0, 1, 10):  # frame 10 is the third
            Pillow.fromarray(np.full((8, 9), index, np.uint8)).save(tmp_path / "frames" / video / f"{index}.png")
    (tmp_path / "masks").mkdir()
    Pillow.fromarray(np.ones((8, 9), np.uint8)).save(tmp_path / "masks/esd2_2.png")
    (tmp_path / "points.csv").write_text("clip,frame,x,y\nesd2,2,5,3\nesd1,0,1,2\n")
    settings = {
        "root": str(tmp_path),
        "video": "frames/{video}",
        "labels": FrameRows("points.csv", "frame", video="clip"),
        "unit": "frame",
    }
    cases = Frames(**settings, target=PointColumns(["x", "y"], "voxel", name="bleeding")).cases("test")
    assert [case.id for case in cases] == ["esd1-000000", "esd2-000002"]
    np.testing.assert_array_equal(cases[1].target.read().positions, [[3, 5]])
    assert int(cases[1].images[0].read().array.max()) == 10
    masked = Frames(**settings, target=MaskTarget("masks/{video}_{index}.png")).cases("test")[1]
    assert masked.images[0].geometry().difference(masked.target.read().geometry) is None


def test_a_table_that_is_not_understood_names_file_and_line(pitvis, tmp_path):
    case = Frames(**pitvis).cases("test")[1]
    for rows, message in [
        ("0,1,1,1\n1.1,1,1,1\n", r"annotations_02\.csv, line 3: column 'int_time' holds '1\.1', expected a frame of 0"),
        ("", r"annotations_02\.csv: labels no frame of the grid"),
        ("0,1,1,1\n0,1,1,1\n", r"annotations_02\.csv: frame 0 is labelled a second time"),
    ]:
        (tmp_path / "annotations_02.csv").write_text(HEADER + rows)
        with pytest.raises(CaseError, match=message):
            case.target.read()


def test_a_frame_beyond_the_end_is_named_when_it_is_read(pitvis, tmp_path):
    (tmp_path / "annotations_02.csv").write_text(HEADER + "9,1,1,1\n")
    case = Frames(**pitvis, unit="frame", target=ClassName("int_step", ["-1", "0", "1"])).cases("test")[-1]
    with pytest.raises(CaseError, match=r"video_02\.mp4: has 9 frames, counted from 0, so there is no frame 36"):
        case.images[0].read()


def test_missing_tables_and_targets_are_named(pitvis):
    missing = {**pitvis, "labels": FrameRows("labels_{video}.csv", "int_time")}
    with pytest.raises(UserError, match=r"labels_\{video\}\.csv: there is no such file"):
        Frames(**missing).cases("test")
    with pytest.raises(UserError, match=r"expected \{video\} in its name, or the column `video`"):
        Frames(**{**pitvis, "labels": FrameRows("annotations_01.csv", "int_time")}).cases("test")
    with pytest.raises(UserError, match="every names neither '01' nor 'others'"):
        Frames(**pitvis, every={"02": 4}).cases("test")
    with pytest.raises(UserError, match=r"task\.layout\.target says how the truth is written down, and is not set"):
        Frames(**pitvis, unit="frame").cases("test")


def test_boxes_of_frames_come_from_their_rows(tmp_path):
    (tmp_path / "frames/v1").mkdir(parents=True)
    Pillow.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / "frames/v1/0.png")
    (tmp_path / "polyps.csv").write_text("video,frame,x,y,w,h\nv1,0,2,1,2,3\n")
    (case,) = Frames(
        root=str(tmp_path),
        video="frames/{video}",
        labels=FrameRows("polyps.csv", "frame", video="video"),
        unit="frame",
        target=BoxColumns(["x", "y", "w", "h"], "sizes", name="polyp"),
    ).cases("test")
    np.testing.assert_array_equal(case.target.read().corners, [[1, 2, 3, 3]])


def test_pictures_of_several_films_share_a_folder_and_splits_have_one_each(tmp_path):
    """As Endoscapes: {split}/{video}_{frame}.jpg, whose numbers are those of frames of the video."""
    for split, name in (("train", "7_25"), ("train", "7_150"), ("test", "70_5")):
        (tmp_path / split).mkdir(exist_ok=True)
        Pillow.fromarray(np.full((8, 9, 3), len(name), np.uint8)).save(tmp_path / split / f"{name}.png")
        (tmp_path / split / "labels.csv").write_text(
            "film,n,C1\n" + ("7,25,1\n7,150,0\n" if split == "train" else "70,5,1\n")
        )
    layout = {
        "root": str(tmp_path),
        "video": "{split}/{video}_{frame}.png",
        "labels": FrameRows("{split}/labels.csv", "n", video="film"),
    }
    (case,) = Frames(**layout).cases("train")
    assert (case.id, case.target.read().columns["C1"].tolist()) == ("7", [1, 0])
    assert [int(frame.max()) for frame in case.images[0].frames([25, 150])] == [4, 5]
    with pytest.raises(CaseError, match="there is no picture of frame 26"):
        list(case.images[0].frames([26]))
    (frame,) = Frames(**layout, unit="frame", target=ClassName("C1", ["0", "1"])).cases("test")
    assert (frame.id, int(frame.images[0].read().array.max())) == ("70-000005", 4)
