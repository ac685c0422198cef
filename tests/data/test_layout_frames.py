"""Videos and their tables of frame labels, as PitVis and Kvasir-Capsule lay them out."""

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import Frames
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
        "table": "annotations_{video}.csv",
        "frame": "int_time",
        "stride": 4,
    }


def test_a_video_is_a_case_with_the_labels_of_its_frames(pitvis):
    first, second = Frames(**pitvis).cases("test")
    labels = second.target.read()
    assert (second.id, second.patient) == ("02", "02")
    np.testing.assert_array_equal(labels.frames, [0, 4, 8])
    assert {name: column.tolist() for name, column in labels.columns.items()} == {
        "int_step": [-1, 2, 0],
        "int_instrument1": [-1, 18, 5],
        "int_instrument2": [-2, -2, 6],
    }
    assert first.images[0].read().array.shape == (3, 9, 16, 16)


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
        "table": "points.csv",
        "video_column": "clip",
        "frame": "frame",
        "unit": "frame",
    }
    cases = Frames(**settings, target=PointColumns(["x", "y"], "voxel", name="bleeding")).cases("test")
    assert [case.id for case in cases] == ["esd1-000000", "esd2-000002"]
    np.testing.assert_array_equal(cases[1].target.read().positions, [[3, 5]])
    assert int(cases[1].images[0].read().array.max()) == 10
    masked = Frames(**settings, target=MaskTarget("masks/{video}_{index}.png")).cases("test")[1]
    assert masked.images[0].geometry().difference(masked.target.read().geometry) is None


def test_a_table_that_is_not_understood_names_file_and_line(pitvis, tmp_path):
    (tmp_path / "annotations_02.csv").write_text(HEADER + "0,1,1,1\n1.1,1,1,1\n")
    with pytest.raises(
        UserError, match=r"annotations_02\.csv, line 3: column 'int_time' holds '1\.1', expected a frame"
    ):
        Frames(**pitvis).cases("test")
    (tmp_path / "annotations_02.csv").write_text(HEADER)
    with pytest.raises(UserError, match=r"annotations_02\.csv: holds no row"):
        Frames(**pitvis).cases("test")
    (tmp_path / "annotations_02.csv").rename(tmp_path / "annotations_03.csv")
    (tmp_path / "annotations_03.csv").write_text(HEADER + "0,1,1,1\n")
    with pytest.raises(
        UserError, match=r"annotations_03\.csv, line 2: speaks of the video '03', but there is no .*video_03\.mp4"
    ):
        Frames(**pitvis).cases("test")


def test_a_frame_beyond_the_end_is_named_when_it_is_read(pitvis, tmp_path):
    (tmp_path / "annotations_02.csv").write_text(HEADER + "9,1,1,1\n")
    case = Frames(**pitvis, unit="frame", target=ClassName("int_step", ["-1", "0", "1"])).cases("test")[-1]
    with pytest.raises(CaseError, match=r"video_02\.mp4: has 9 frames, counted from 0, so there is no frame 36"):
        case.images[0].read()


def test_missing_tables_and_targets_are_named(pitvis):
    with pytest.raises(UserError, match=r"labels_\{video\}\.csv: there is no such table"):
        Frames(**{**pitvis, "table": "labels_{video}.csv"}).cases("test")
    with pytest.raises(UserError, match=r"task\.layout\.target says how the truth is written down, and is not set"):
        Frames(**pitvis, unit="frame").cases("test")


def test_boxes_of_frames_come_from_their_rows(tmp_path):
    (tmp_path / "frames/v1").mkdir(parents=True)
    Pillow.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / "frames/v1/0.png")
    (tmp_path / "polyps.csv").write_text("video,frame,x,y,w,h\nv1,0,2,1,2,3\n")
    (case,) = Frames(
        root=str(tmp_path),
        video="frames/{video}",
        table="polyps.csv",
        frame="frame",
        unit="frame",
        target=BoxColumns(["x", "y", "w", "h"], "sizes", name="polyp"),
    ).cases("test")
    np.testing.assert_array_equal(case.target.read().corners, [[1, 2, 3, 3]])
