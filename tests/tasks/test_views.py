"""Volumes and videos whole: who is shown what, what a run records of it, and that no way of storing turns a side."""

import base64
import gzip
import itertools
import json

import nibabel as nib
import numpy as np
import pytest

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import VideoPrompt, VolumePrompt
from medimg_eval.imaging.video import write_video
from medimg_eval.instantiate import build_task
from medimg_eval.models import VisionLanguageModel, VolumeModel
from medimg_eval.results import load_runs
from medimg_eval.results.report import by_task
from medimg_eval.results.table.table import named_runs
from medimg_eval.viewer.scene import CaseView
from tests.helpers.running import evaluate, rescore

SHAPE = (3, 4, 5)
RIGHT_FRONT_HEAD = (2, 3, 4)  # of RAS+ axes the last voxel of each: the patient's right, front and head


class Looks(VisionLanguageModel):
    """Says what it was shown."""

    uses_torch = False

    def generate(self, prompts, decoding):
        return [" ".join(type(image).__name__ for image in prompt.images) for prompt in prompts]


class LooksAtVolumes(Looks):
    takes_views = ("volume",)


class LooksAtVideos(Looks):
    takes_views = ("pictures", "video")


def volume(folder, code="LPS"):
    ras = np.full(SHAPE, -1000, np.int16)
    ras[RIGHT_FRONT_HEAD] = 400
    ras[0, 0, 0] = 40
    stored, wanted = (nib.orientations.axcodes2ornt(tuple(axes)) for axes in ("RAS", code))
    turn = nib.orientations.ornt_transform(stored, wanted)
    nib.save(nib.Nifti1Image(ras, np.diag([0.8, 0.8, 2.5, 1.0])).as_reoriented(turn), folder / "a.nii.gz")
    return ras


def task(folder, images, **more):
    (folder / "rows.json").write_text(json.dumps([{"id": "q1", "question": "Large?", "answer": "yes", "scan": "a"}]))
    config = {
        "_target_": "medimg_eval.tasks.QuestionTask",
        "name": "whole",
        "layout": {
            "_target_": "medimg_eval.data.layouts.Questions",
            "root": str(folder),
            "records": {"test": "rows.json"},
            "id": "id",
            "question": "question",
            "kind": "open",
            "answer": {"value": "answer"},
            "images": images,
            "modality": "CT",
        },
        "template": {"user": "{question}"},
        "splits": {"test": "test"},
        "metrics": ["exact_match"],
        **more,
    }
    return build_task(config)


SLICES = {"volume": "{scan}.nii.gz", "slices": [0, 4], "window": "soft tissue"}


def run(folder, images, model, **more):
    spec = ModelSpec(model.__name__, model, {"name": model.__name__}, load=model)
    return evaluate(task(folder, images, **more), spec, Settings(runs=folder / "runs", score_workers=0))


def stored(folder):
    (line,) = (json.loads(file.read_text()) for file in folder.glob("predictions-*.jsonl"))
    return line["answer"]["texts"][0], line["shown"]


def test_a_model_of_volumes_gets_the_whole_and_one_of_pictures_the_slices_of_the_rule(tmp_path):
    volume(tmp_path)
    pictures = run(tmp_path, SLICES, Looks)
    whole = run(tmp_path, SLICES, LooksAtVolumes)
    assert stored(pictures) == ("Image Image", ["axial slices 0 4 of 5, -160 as black and 240 as white"])
    assert stored(whole) == ("VolumePrompt", ["the volume whole, 3 x 4 x 5 voxels, RAS+"])
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["view"] == "volume"
    assert "volume shown whole" in manifest["signature"]
    assert "view" not in json.loads((pictures / "manifest.json").read_text())
    again = rescore(whole, task(tmp_path, SLICES))  # which asks no model, and knows the view from the run
    assert again is not None
    assert json.loads((whole / "manifest.json").read_text())["signature"] == manifest["signature"]


def test_the_rule_is_part_of_what_a_run_is(tmp_path):
    volume(tmp_path)
    folders = [run(tmp_path, {**SLICES, **change}, Looks) for change in ({}, {"slices": [1]}, {"window": "lung"})]
    assert len({folder.name for folder in folders}) == 3


@pytest.mark.parametrize("code", ["RAS", "LPS", "SPL", "AIR"])
def test_a_volume_comes_in_its_own_units_and_with_its_sides(tmp_path, code):
    expected = volume(tmp_path, code)
    whole = task(tmp_path, SLICES, view="volume")
    (image,) = whole.read_images(whole.cases("test")[0])
    assert isinstance(image, VolumePrompt)
    assert np.array_equal(image.array[0], expected)
    assert image.spacing == pytest.approx((0.8, 0.8, 2.5))
    assert (image.intensity, image.orientation_before, image.slices) == ("HU", code, (0, 4))
    assert image.window == (-160, 240)
    assert image.windows["lung"] == (-600, 1500)


@pytest.mark.slow
def test_all_48_ways_of_storing_a_volume_give_the_same_array_and_the_same_slices(tmp_path):
    axes = list(itertools.permutations(("LR", "PA", "IS")))
    codes = ["".join(letters) for order in axes for letters in itertools.product(*order)]
    assert len(set(codes)) == 48
    seen = []
    for code in codes:
        volume(tmp_path, code)
        for view in ("volume", "pictures"):
            shown = task(tmp_path, SLICES, view=view)
            seen.append((view, [image.array.tolist() for image in shown.read_images(shown.cases("test")[0])]))
    assert all(one == seen[one[0] == "pictures"] for one in seen)


def film(folder):
    frames = np.stack([np.full((16, 16, 3), 10 * number, np.uint8) for number in range(12)])
    write_video(folder / "a.mp4", frames, 4.0)


def test_a_video_comes_with_the_times_of_its_frames_to_who_asks_for_it(tmp_path):
    film(tmp_path)
    images = {"video": "{scan}.mp4", "frames": 3}
    pictures, whole = run(tmp_path, images, LooksAtVideos), run(tmp_path, images, LooksAtVideos, view="video")
    words = "frames 2 6 10 of 12, at 0.5 1.5 2.5 s"  # the middles of three stretches of four frames
    assert stored(pictures) == ("Image Image Image", [words])
    assert stored(whole) == ("VideoPrompt", [words])
    shown = task(tmp_path, images, view="video")
    (video,) = shown.read_images(shown.cases("test")[0])
    assert isinstance(video, VideoPrompt)
    assert (video.indices, video.times, video.fps, video.frames_total) == ((2, 6, 10), (0.5, 1.5, 2.5), 4.0, 12)
    assert video.array[0, :, 0, 0].tolist() == [20, 60, 100]
    assert video.frames([11])[0, 0, 0, 0] == 110


def test_frames_at_stated_times(tmp_path):
    film(tmp_path)
    shown = task(tmp_path, {"video": "{scan}.mp4", "seconds": [0, 2.6]})
    assert [int(image.array.max()) for image in shown.read_images(shown.cases("test")[0])] == [0, 100]
    with pytest.raises(UsageError, match="frames or seconds of a video, got both"):
        task(tmp_path, {"video": "{scan}.mp4", "seconds": [0], "frames": 2}).cases("test")


def test_who_takes_no_volume_is_refused_and_pictures_are_no_volume(tmp_path):
    volume(tmp_path)
    with pytest.raises(UsageError, match="task.view=volume is invalid: Looks takes pictures"):
        run(tmp_path, SLICES, Looks, view="volume")
    with pytest.raises(UsageError, match="window is 'lungs', expected a known name; did you mean 'lung'"):
        task(tmp_path, {**SLICES, "window": "lungs"}).cases("test")
    film(tmp_path)
    shown = task(tmp_path, {"video": "{scan}.mp4", "frames": 2}, view="volume")
    with pytest.raises(CaseError, match="expected a volume to be shown whole, got pictures"):
        shown.read_images(shown.cases("test")[0])


class FeedsANetwork(VolumeModel):
    """Says of the array of its network what a report must repeat: its shape, sum and one corner."""

    uses_torch = False
    convention = "radfm"

    def answer(self, volumes, prompt, decoding):
        (array,) = volumes
        return f"{tuple(array.shape)} {float(array.double().sum()):.3f} {float(array[0, -1, 0, -1]):.6f}"


class FeedsItOtherwise(FeedsANetwork):
    def read_volumes(self, prompt):
        return [array[:, :8, :8] for array in super().read_volumes(prompt)]


def first_scene(folder, voxels):
    runs = load_runs([folder / "runs"])
    (cases,) = by_task(runs, named_runs(runs))
    view = CaseView(task(folder, SLICES), cases.runs, voxels)
    return view.texts("q1"), view.scene("q1", folder / "scene")


def drawn_values(panel):
    stored = np.frombuffer(gzip.decompress(base64.b64decode(panel["data"])), np.int16).reshape(panel["shape"])
    return stored * panel["slope"] + panel["intercept"]


def test_a_report_draws_the_array_that_the_network_received(tmp_path):
    volume(tmp_path)
    folder = run(tmp_path, SLICES, FeedsANetwork)
    assert json.loads((folder / "manifest.json").read_text())["volume_rule"] == "radfm"
    answer, _ = stored(folder)
    texts, scene = first_scene(tmp_path, 4 * 512 * 512)
    assert not scene["problems"]
    (panel,) = scene["panels"]
    assert (panel["model"], panel["window"]) == (0, (0.0, 1.0))
    assert panel["title"] == "As the network received it (radfm): 4 x 512 x 512 slices, rows and columns, 0 to 1"
    values = drawn_values(panel)
    assert answer == f"(3, 512, 512, 4) {3 * values.sum():.3f} {values[-1, -1, 0]:.6f}"
    (reply,) = texts["answers"]
    assert reply["shown"] == ["the volume whole, 3 x 4 x 5 voxels, RAS+; brought to the network as radfm"]
    _, thinned = first_scene(tmp_path, 2 * 512 * 512)
    (panel,) = thinned["panels"]
    assert panel["title"].endswith("; of every 2 slices one is drawn, whole")
    assert np.array_equal(drawn_values(panel), values[::2])


def test_a_class_that_makes_its_arrays_itself_states_no_rule(tmp_path):
    volume(tmp_path)
    folder = run(tmp_path, SLICES, FeedsItOtherwise)
    assert "volume_rule" not in json.loads((folder / "manifest.json").read_text())
    _, scene = first_scene(tmp_path, 1 << 20)
    assert scene["panels"] == []
