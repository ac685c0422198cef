"""Video: the right frame by index and time, and no more decoded than it takes."""

import multiprocessing
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from medimg_eval import imaging
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.video import reading as module
from medimg_eval.imaging.video.reading import Video, write_video

av = pytest.importorskip("av")


def clip(count, rows=48, columns=64, seed=0):
    """Noise, so that no two frames are alike."""
    return np.random.default_rng(seed).integers(0, 256, (count, rows, columns, 3), dtype=np.uint8)


def numbered(count, rows=48, columns=64):
    """Flat grey frames whose value tells their number, even after compression with loss."""
    return np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None] * 4, (count, rows, columns, 3))


def encoded(path, frames, codec="libx264", stamps=None, base=Fraction(1, 25), gop=12, layout="yuv420p", **options):
    """A file with chosen time stamps, codec and options."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options={"threads": "1", **options})
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt, stream.gop_size, stream.time_base = layout, gop, base
        stream.codec_context.time_base = base
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            picture.pts, picture.time_base = number if stamps is None else stamps[number], base
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def values(frames):
    """Which of the `numbered` frames these are."""
    return np.rint(frames.mean(axis=(0, 2, 3)) / 4).astype(int).tolist()


@settings(deadline=None, max_examples=10)
@given(
    count=st.integers(1, 6),
    rows=st.integers(3, 20),
    columns=st.integers(3, 20),
    fps=st.sampled_from([1, 24, 29.97]),
    suffix=st.sampled_from([".mp4", ".mkv"]),
)
def test_lossless_frames_come_back_identical(count, rows, columns, fps, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("v") / f"v{suffix}"
    frames = clip(count, rows, columns)
    write_video(path, frames, fps)
    image = imaging.read(path)
    assert image.array.dtype == np.uint8
    assert np.array_equal(np.moveaxis(image.array, 0, -1), frames)
    assert image.units == "pixel"
    assert imaging.read_grid(path).difference(image.geometry) is None
    with Video(path) as video:
        assert video.shape == (count, rows, columns)
        assert video.times == pytest.approx(np.arange(count) / fps, abs=2e-3)  # Matroska counts milliseconds


def test_the_same_frames_make_the_same_bytes(tmp_path):
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, iter(clip(5)), 25)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]


@pytest.mark.parametrize("reordered", [0, 3])
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "ts"])
def test_frames_come_in_the_order_they_are_shown_in(tmp_path, suffix, reordered):
    path = encoded(tmp_path / f"v.{suffix}", numbered(40), bf=str(reordered))
    with Video(path) as video:
        assert len(video) == 40
        assert values(video.frames(range(40))) == list(range(40))
        assert values(video.frames([31, 2, 2, 17])) == [31, 2, 2, 17]
        assert video.times == pytest.approx(np.arange(40) / 25, abs=1e-3)
        assert video.fps == pytest.approx(25, rel=1e-2)


def test_mpeg_4_in_avi_with_reordered_frames_is_in_order(tmp_path):
    path = encoded(tmp_path / "v.avi", clip(40), codec="mpeg4", bf="2")
    with av.open(str(path)) as container:
        every = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    with Video(path) as video:
        assert len(video) == 40
        for index in (39, 0, 13, 14, 12):
            assert np.array_equal(np.moveaxis(video.frame(index), 0, -1), every[index])


def test_open_groups_of_pictures_are_read_across_their_key_frames(tmp_path):
    path = encoded(tmp_path / "v.mkv", numbered(60), bf="3", **{"x264-params": "open-gop=1:keyint=10:min-keyint=5"})
    for index in range(60):
        with Video(path) as video:
            assert values(video.frames([index])) == [index]


def test_one_frame_costs_its_group_of_pictures_and_no_more(tmp_path):
    write_video(tmp_path / "v.mp4", clip(120), 25, keyframe_every=12)
    with Video(tmp_path / "v.mp4") as video:
        assert len(video) == 120
        assert video.times[-1] == pytest.approx(119 / 25)
        assert video.decoded == 0  # counting and timing decode nothing
        video.frame(100)
        assert video.decoded == 100 - 96 + 1
        video.frame(103)
        assert video.decoded == 103 - 96 + 1  # goes on from where it stopped
        video.frames([5, 1, 3, 62])
        assert video.decoded == 8 + 6 + 3  # 0 to 5 once for three frames, 60 to 62


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_reordered_frames_cost_no_more_than_their_group_either(tmp_path, suffix):
    path = encoded(tmp_path / f"v.{suffix}", numbered(60), bf="3", sc_threshold="0", gop=12)
    for index in (12, 13, 30, 59):
        with Video(path) as video:
            assert values(video.frame(index)[:, None]) == [index]
            assert video.decoded <= index % 12 + 1 + (12 if suffix == "ts" else 0)


def test_all_frames_one_after_the_other_are_decoded_once(tmp_path):
    write_video(tmp_path / "v.mp4", clip(60), 25, keyframe_every=12)
    with Video(tmp_path / "v.mp4") as video:
        for index in range(60):
            video.frame(index)
        assert video.decoded == 60


def test_variable_frame_rate_is_read_from_the_stamps(tmp_path):
    stamps = [0, 1, 2, 10, 11, 30]
    path = encoded(tmp_path / "v.mp4", numbered(6), stamps=stamps, base=Fraction(1, 10))
    with Video(path) as video:
        assert video.times == pytest.approx(np.array(stamps) / 10)
        assert [video.index_at(second) for second in (0, 0.05, 0.1, 0.99, 1.0, 2.9, 3.0)] == [0, 0, 1, 2, 3, 4, 5]
        assert values(video.frame(video.index_at(1.05))[:, None]) == [3]
        assert video.fps == pytest.approx(5 / 3)
    assert values(imaging.read(path, seconds=[0.2, 3.0]).array) == [2, 5]
    assert imaging.read_grid(path, seconds=[0.2, 3.0]).shape == (2, 48, 64)


def test_times_count_from_the_first_frame_wherever_the_stamps_start(tmp_path):
    path = encoded(tmp_path / "v.ts", numbered(10), stamps=range(50, 60))
    with Video(path) as video:
        assert video.times[0] == 0
        assert video.times[9] == pytest.approx(9 / 25)
        assert values(video.frame(video.index_at(0))[:, None]) == [0]


def test_the_time_of_each_frame_finds_that_frame(tmp_path):
    write_video(tmp_path / "v.mp4", clip(50, 4, 4), 29.97)
    with Video(tmp_path / "v.mp4") as video:
        assert [video.index_at(second) for second in video.times] == list(range(50))
        assert [video.index_at(index / 29.97) for index in range(50)] == list(range(50))


@pytest.mark.parametrize("degrees", [90, 180, -90])
def test_a_turned_video_is_read_upright_as_opencv_reads_it(tmp_path, degrees):
    frames = clip(3, 12, 20)
    path = tmp_path / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264rgb", rate=25, options={"qp": "0"})
        stream.height, stream.width, stream.pix_fmt = 12, 20, "rgb24"
        stream.set_display_rotation(degrees)
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    image = imaging.read(path)
    assert np.array_equal(image.array[:, 1], np.moveaxis(np.rot90(frames[1], degrees // 90), -1, 0))
    assert any("turned by" in note for note in image.notes)
    assert imaging.read_grid(path).shape == image.array.shape[1:]
    cv2 = pytest.importorskip("cv2")
    assert np.array_equal(np.moveaxis(image.array[:, 0], 0, -1), cv2.VideoCapture(str(path)).read()[1][..., ::-1])


def test_lossy_frames_are_what_opencv_decodes_and_close_to_what_was_written(tmp_path):
    y, x = np.mgrid[:48, :64]
    frames = np.stack([np.stack([x * 2 + shift, y * 3, 200 - x], axis=2) for shift in range(10)]).astype(np.uint8)
    write_video(tmp_path / "v.mp4", frames, 25, lossless=False)
    read = np.moveaxis(imaging.read(tmp_path / "v.mp4").array, 0, -1)
    assert np.abs(read.astype(int) - frames).mean() < 4
    cv2 = pytest.importorskip("cv2")
    capture = cv2.VideoCapture(str(tmp_path / "v.mp4"))
    for frame in read:
        assert np.abs(frame.astype(int) - capture.read()[1][..., ::-1]).max() <= 2


def test_ten_bits_and_oblong_pixels_are_noted(tmp_path):
    path = encoded(tmp_path / "v.mkv", numbered(3), codec="ffv1", layout="yuv420p10le")
    assert "10 bits" in imaging.read(path).notes[0]
    path = encoded(tmp_path / "w.mp4", numbered(3), **{"x264-params": "sar=4/3"})
    assert "1.33 times as wide" in imaging.read(path).notes[0]


def test_a_video_travels_to_other_processes_as_its_path(tmp_path):
    frames = clip(30, 16, 16)
    write_video(tmp_path / "v.mp4", frames, 25, keyframe_every=5)
    video = Video(tmp_path / "v.mp4")
    video.frame(20)
    copy = pickle.loads(pickle.dumps(video))
    assert len(pickle.dumps(video)) < 500
    assert np.array_equal(copy.frame(7), np.moveaxis(frames[7], -1, 0))
    copy.close()
    video.close()
    assert np.array_equal(video.frame(29), np.moveaxis(frames[29], -1, 0))  # opens itself again
    video.close()


@pytest.mark.slow
def test_workers_that_inherit_an_open_video_do_not_disturb_each_other(tmp_path):
    frames = clip(60, 64, 64)
    write_video(tmp_path / "v.mp4", frames, 25, keyframe_every=5)
    video = Video(tmp_path / "v.mp4")
    video.frame(3)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def work(start):
        same = all(np.array_equal(video.frame(i), np.moveaxis(frames[i], -1, 0)) for i in range(start, 60, 3))
        answers.put(same)

    workers = [context.Process(target=work, args=(start,), daemon=True) for start in range(3)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=30) for _ in workers] == [True] * 3
    for worker in workers:
        worker.join()
    video.close()


def folder(path, frames, name="frame_{}.png", **options):
    path.mkdir()
    for number, frame in enumerate(frames):
        Pillow.fromarray(frame).save(path / name.format(number), **options)
    return path


def test_a_folder_of_frames_is_a_clip_in_natural_order(tmp_path):
    frames = clip(12, 8, 10)
    path = folder(tmp_path / "frames", frames)
    (path / "labels.csv").write_text("frame,label\n")
    assert np.array_equal(np.moveaxis(imaging.read(path).array, 0, -1), frames)
    assert imaging.read_grid(path).shape == (12, 8, 10)
    assert np.array_equal(imaging.read(path, frames=[10, 2]).array, np.moveaxis(frames[[10, 2]], -1, 0))
    with Video(path, fps=10) as video:
        assert video.shape == (12, 8, 10)
        assert np.array_equal(video.frame(video.index_at(0.35)), np.moveaxis(frames[3], -1, 0))
        assert len(pickle.loads(pickle.dumps(video)).times) == 12
    with pytest.raises(CaseError, match=r"frames: is a folder of frames, which states no times; give fps="):
        imaging.read(path, seconds=[0.1])
    assert imaging.read(path, seconds=[0.1], fps=10).attributes == {"fps": "10"}


def test_grey_frames_of_16_bits_stay_that(tmp_path):
    frames = clip(3)[..., 0].astype(np.uint16) * 100
    image = imaging.read(folder(tmp_path / "f", frames))
    assert image.array.dtype == np.uint16
    assert np.array_equal(image.array[0], frames)


def test_an_odd_frame_out_is_named(tmp_path):
    path = folder(tmp_path / "f", clip(3, 8, 10))
    Pillow.fromarray(clip(1, 8, 11)[0]).save(path / "frame_1.png")
    with pytest.raises(CaseError, match=r"frame_1\.png: has 8 x 11 rows and columns, the first frame .* 8 x 10"):
        imaging.read(path)
    Pillow.fromarray(clip(1, 8, 10)[0, ..., 0]).save(path / "frame_1.png")
    with pytest.raises(CaseError, match=r"frame_1\.png: has 1 channels"):
        imaging.read(path)


def test_images_and_masks_in_one_folder_are_no_clip(tmp_path):
    path = folder(tmp_path / "f", clip(2))
    Pillow.fromarray(clip(1)[0]).save(path / "frame_0.jpg")
    with pytest.raises(CaseError, match=r"f: holds frames of several kinds \(\.jpg, \.png\)"):
        Video(path)
    (tmp_path / "e").mkdir()
    with pytest.raises(CaseError, match=r"e: holds no frames"):
        Video(tmp_path / "e")


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
@pytest.mark.parametrize("part", [0.3, 0.7, 0.97])
def test_a_file_cut_short_is_an_error_that_names_it(tmp_path, suffix, part):
    whole = encoded(tmp_path / f"whole.{suffix}", clip(30), bf="2").read_bytes()
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole[: int(part * len(whole))])
    for call in (imaging.read, imaging.read_grid):
        with pytest.raises(CaseError, match=rf"cut\.{suffix}: is cut short"):
            call(path)


def test_a_file_cut_short_behind_its_header_is_noticed_too(tmp_path):
    encoded(tmp_path / "a.mp4", clip(30))
    with av.open(str(tmp_path / "a.mp4")) as source:
        fast = av.open(str(tmp_path / "b.mp4"), "w", options={"movflags": "+faststart"})
        stream = fast.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                fast.mux(packet)
        fast.close()
    whole = (tmp_path / "b.mp4").read_bytes()
    (tmp_path / "b.mp4").write_bytes(whole[:-500])
    with pytest.raises(CaseError, match=r"b\.mp4: is cut short: it holds \d+ of \d+ bytes"):
        imaging.read(tmp_path / "b.mp4", frames=[0])


def test_damage_in_the_middle_spares_the_frames_before_it(tmp_path):
    path = tmp_path / "v.mp4"
    write_video(path, clip(24), 25, keyframe_every=12)
    data = bytearray(path.read_bytes())
    start = data.find(b"mdat") + (len(data) - data.find(b"mdat")) * 3 // 4
    data[start : start + 20_000] = b"\x55" * 20_000
    path.write_bytes(data)
    assert imaging.read(path, frames=[0, 11]).array.shape == (3, 2, 48, 64)
    with pytest.raises(CaseError, match=r"v\.mp4: (is damaged|frame \d+ is damaged)"):
        imaging.read(path)


def test_sound_without_pictures_is_refused(tmp_path):
    path = tmp_path / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 8000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(CaseError, match=r"v\.mp4: holds no video stream"):
        imaging.read(path)


def test_frames_and_times_that_do_not_exist_are_named_with_what_does(tmp_path):
    path = tmp_path / "v.mp4"
    write_video(path, clip(10, 8, 8), 10)
    for wrong in (10, -1):
        with pytest.raises(CaseError, match=rf"v\.mp4: has 10 frames, counted from 0, so there is no frame {wrong}"):
            imaging.read(path, frames=[wrong])
    for wrong in (1.0, -0.1):
        with pytest.raises(CaseError, match=r"v\.mp4: has no frame at .* it lasts 1 s"):
            imaging.read(path, seconds=[wrong])
    with pytest.raises(CaseError, match=r"v\.mp4: expected at least one frame"):
        imaging.read(path, frames=[])
    with pytest.raises(UsageError, match=r"v\.mp4: expected frames or seconds"):
        imaging.read(path, frames=[0], seconds=[0])
    with pytest.raises(UsageError, match=r"v\.mp4: fps=25 is for folders"):
        imaging.read(path, fps=25)
    with pytest.raises(CaseError, match=r"n\.mp4: no such file"):
        Video(tmp_path / "n.mp4")


def test_a_long_video_is_not_read_whole_unasked(tmp_path, monkeypatch):
    path = tmp_path / "v.mp4"
    write_video(path, clip(10, 8, 8), 10)
    monkeypatch.setattr(module, "WHOLE_CLIP_BYTES", 10 * 8 * 8 * 3 - 1)
    with pytest.raises(CaseError, match=r"v\.mp4: holds 10 frames, .* GiB once decoded; say which"):
        imaging.read(path)
    assert imaging.read(path, frames=range(10)).array.shape == (3, 10, 8, 8)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    for frames, options in [
        (clip(2).astype(np.float32), {}),
        (clip(2)[..., 0], {}),
        (clip(0), {}),
        (clip(2, 7, 8), {"lossless": False}),
    ]:
        with pytest.raises(UsageError, match=r"v\.mp4: expected"):
            write_video(tmp_path / "v.mp4", frames, 25, **options)
    assert list(tmp_path.iterdir()) == []
