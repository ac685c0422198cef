"""`predict`: images without a truth, whatever a model gives; from a hospital's export to DICOM-SEG."""

import csv
import json
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hospital_export import body, write_export

import medimg_eval as me
from medimg_eval.case import Boxes, Image, Mask, Points, Probabilities
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import read, read_mask, write_image
from medimg_eval.models import Classifier, Detector, Embedder, Segmenter, VisionLanguageModel
from tests.helpers.printed import said

QUIET = {"trainer": {"accelerator": "cpu"}, "num_workers": 0}
WORDS = ["trainer.accelerator=cpu", "num_workers=0"]
LIVER = {"labels": {1: "liver"}}


class Threshold(Segmenter):
    """Also the softmax of two classes; fails on cases that are named."""

    uses_torch = False

    def __init__(self, level: float = 200.0, fails_on: tuple[str, ...] = ()):
        self.level, self.fails_on = level, tuple(fails_on)

    def segment(self, prompts):
        if lost := {prompt.case_id for prompt in prompts} & set(self.fails_on):
            raise RuntimeError(f"no answer to {min(lost)}")
        return [(prompt.image.array[0] > self.level).astype(np.uint8) for prompt in prompts]

    def give_probabilities(self, prompts):
        inside = [(prompt.image.array[0] > self.level).astype(np.float32) for prompt in prompts]
        return [
            Probabilities(np.stack([1 - one, one]), (0, 1), p.image.affine)
            for one, p in zip(inside, prompts, strict=True)
        ]


class Echo(VisionLanguageModel):
    """Says what it was asked and shown."""

    uses_torch = False

    def generate(self, prompts, decoding):
        return [f"{prompt.text} {prompt.image.shape} {decoding.max_new_tokens}" for prompt in prompts]

    def usage(self):
        return {"requests": 2}


@pytest.fixture
def export(folder):
    return write_export(folder / "export")


@pytest.fixture
def pictures(folder):
    import imagecodecs

    for name, value in (("a", 10), ("b", 200)):
        (folder / "pictures").mkdir(exist_ok=True)
        encoded = imagecodecs.png_encode(np.full((4, 6), value, np.uint8))
        (folder / "pictures" / f"{name}.png").write_bytes(encoded)
    return "pictures"


def rows(path):
    with Path(path).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_an_export_goes_from_check_to_masks_to_dicom_seg(folder, export, capsys, monkeypatch):
    """The blocks of 300 HU, 4 x 4 x 3 voxels, are found in both phases, at their places in the patient."""
    (folder / "my_model.py").write_text(
        "from medimg_eval.models import Segmenter\n"
        "class Bright(Segmenter):\n"
        "    uses_torch = False\n"
        "    def segment(self, prompts):\n"
        "        return [(prompt.image.array[0] > 200).astype('uint8') for prompt in prompts]\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    assert start(["check", "path=export"]) == 0
    capsys.readouterr()
    asked = ["predict", "model._target_=my_model.Bright", "images=export", "labels={1: liver}", "out=masks", *WORDS]
    assert start(asked) == 0
    printed, _ = said(capsys)
    assert "Bright: 2 of 2 images answered masks/predictions/: 2 masks/dicom_seg/: 2" in printed
    for what in ("document: README.pdf", "other images: logo.png", "DICOM KO object", "DICOM PR object", "capture)"):
        assert what in printed
    for number, image in export.items():
        found = read_mask(f"masks/dicom_seg/series_{number}.dcm", grid=image.geometry)
        stored = read_mask(f"masks/predictions/series_{number}.nii.gz")
        np.testing.assert_array_equal(found.labels, image.array[0] > 200)
        np.testing.assert_array_equal(stored.labels, found.labels)
        assert stored.geometry.difference(image.geometry) is None
        assert found.names == {1: "liver"}
    before = {path: path.stat().st_mtime_ns for path in (folder / "masks").rglob("*.dcm")}
    assert start(asked) == 0
    assert "every case was answered before" in said(capsys)[1]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_dicom_seg_says_what_made_it_and_is_like_no_other(folder, export):
    pytest.importorskip("highdicom")
    me.predict(Threshold(level=5000), "export", **LIVER, out="none", name="U-Net", **QUIET)  # both are empty
    found = [pydicom.dcmread(path) for path in sorted((folder / "none" / "dicom_seg").iterdir())]
    assert len({one.SOPInstanceUID for one in found}) == len(found) == 2
    segment = found[0].SegmentSequence[0]
    assert (segment.SegmentLabel, segment.SegmentAlgorithmType, segment.SegmentAlgorithmName) == (
        "liver",
        "AUTOMATIC",
        "U-Net",
    )
    assert segment.SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Liver"
    source = pydicom.dcmread(next((folder / "export").rglob("SE000002/*")))
    assert found[0].ReferencedSeriesSequence[0].SeriesInstanceUID == source.SeriesInstanceUID
    assert found[0].StudyInstanceUID == source.StudyInstanceUID


@pytest.mark.parametrize(
    ("series", "names"),
    [
        (3, ["series_3"]),
        ("description~portal", ["series_3"]),
        ([2, "description~PORTAL"], ["series_2", "series_3"]),
        (99, ["series_99"]),
    ],
)
def test_series_are_chosen_by_number_and_description(export, series, names):
    run = me.predict(Threshold(), "export", series=series, **LIVER, **QUIET)
    assert [trial.id for trial in run.predictions] == names


@pytest.mark.parametrize("word", ["description~portal", "[3,description~portal ven]", "'description~portal'"])
def test_a_tilde_needs_no_quotes_on_the_command_line(export, word, capsys):
    words = ["predict", "model=gaussian_mixture", "images=export", "labels={1: liver}", f"series={word}", "out=out"]
    assert start([*words, *WORDS]) == 0
    assert "1 of 1 images answered" in said(capsys)[0]


def test_a_series_that_is_not_there_is_refused_with_those_that_are(export):
    with pytest.raises(
        UserError, match="no series 7; it holds 2: CT, 5 files of 14 x 16; 3: CT, 5 .*; 99: CT, one file"
    ):
        me.predict(Threshold(), "export", series=7, **LIVER, **QUIET)


def test_command_and_python_are_one_run(folder, export, monkeypatch, capsys):
    run = me.predict("gaussian_mixture", "export", labels={1: "dark", 2: "bright"}, runs="runs", **QUIET)
    words = ["predict", "model=gaussian_mixture", "images=export", "labels={1: dark, 2: bright}", *WORDS]
    assert start(words) == 0
    assert [path.name for path in (folder / "runs" / "predict").iterdir()] == [run.folder.name]
    assert "every case was answered before" in said(capsys)[1]


def test_what_fails_is_named_and_tried_again(folder, export, capsys):
    """Of series 2 a slice is cut short; the model fails on series 3, and then no longer."""
    damaged = next((folder / "export").rglob("SE000002/*"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-100])
    run = me.predict(Threshold(fails_on=["series_3"]), "export", **LIVER, out="run", identity="x", **QUIET)
    found = {row.case: (row.stage, row.message) for row in run.failures.itertuples()}
    assert set(found) == {"series_2", "series_3"}
    assert found["series_2"][0] == "read"
    assert damaged.name in found["series_2"][1]
    assert found["series_3"][0] == "answer"
    assert not (folder / "run" / "dicom_seg").exists()
    again = me.predict(Threshold(), "export", **LIVER, out="run", identity="x", **QUIET)
    assert list(again.failures["case"]) == ["series_2"]
    assert [trial.id for trial in again.predictions] == ["series_3"]
    assert repr(again).startswith("<finished run")
    with pytest.raises(UserError, match="has no scores: no truth is known"):
        _ = again.scores
    for words in (f"runs={folder / 'run'}", "runs=run"):
        assert start(["table", words]) == 1
    assert "only `test` runs have scores" in said(capsys)[1]


def test_failures_end_the_command_grouped(folder, export, capsys):
    for path in (folder / "export").rglob("SE00000[23]/*"):
        path.write_bytes(path.read_bytes()[:-100])
    words = ["predict", "model=gaussian_mixture", "images=export", "labels={1: liver}", "out=out", *WORDS]
    assert start(words) == 1
    printed, told = said(capsys)
    assert "0 of 2 images answered" in printed
    assert "2 failures in out: 2 times, such as series_2 (read)" in told
    assert "is cut short within its pixels" in told


def test_probabilities_come_in_the_form_that_a_run_keeps(folder, export):
    run = me.predict(Threshold(), "export", output="probabilities", **LIVER, **QUIET)
    stored = read(run.folder / "predictions" / "series_2.b2nd")
    assert stored.shape == (2, *export[2].array.shape[1:])


def test_a_nifti_has_no_dicom_seg(folder):
    write_image("scan.nii.gz", body(0))
    run = me.predict(Threshold(), "scan.nii.gz", **LIVER, out="out", **QUIET)
    assert [trial.id for trial in run.predictions] == ["scan"]
    assert not (folder / "out" / "dicom_seg").exists()
    assert run.predictions["scan"].labels.sum() == 48


def test_a_language_model_is_asked_one_thing_about_every_image(folder, pictures):
    run = me.predict(
        Echo(), pictures, prompt="What is it?", out="out", decoding={"max_new_tokens": 9}, identity="e", **QUIET
    )
    assert run.usage == {"requests": 2}
    told = rows("out/answers.csv")
    assert told == [
        {"id": name, "image": f"{name}.png", "question": "What is it?", "prediction": "What is it? (1, 4, 6) 9"}
        for name in ("a", "b")
    ]
    lines = (folder / "out" / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == told
    with pytest.raises(UserError, match="data, model or settings have changed"):
        me.predict(Echo(), pictures, prompt="What else?", out="out", decoding={"max_new_tokens": 9}, **QUIET)


def test_questions_of_a_table_are_asked_about_their_images(folder, pictures):
    table = [
        {"image": "b.png", "id": "q1", "question": "Is it bright?", "options": ["yes", "no"]},
        {"question": "=what is it?"},
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    me.predict(Echo(), pictures, questions="asked.jsonl", out="out", **QUIET)
    told = rows("out/answers.csv")
    assert [row["id"] for row in told] == ["q1", "a-2", "b-2"]
    assert json.loads(told[0]["options"]) == {"A": "yes", "B": "no"}
    assert told[0]["prediction"].startswith("Is it bright?\nA. yes\nB. no")
    assert told[1]["question"] == "'=what is it?"  # no formula for a spreadsheet
    (folder / "asked.jsonl").write_text(json.dumps({"image": "c", "question": "?"}))
    with pytest.raises(UserError, match=r"asked.jsonl, line 1: there is no image 'c'; of 2 the first are a, b"):
        me.predict(Echo(), pictures, questions="asked.jsonl", **QUIET)


def test_classes_boxes_and_points_come_as_tables(folder, pictures):
    class Brightness(Classifier):
        uses_torch = False

        def classify(self, prompts):
            return [{"bright": float(prompt.image.array.mean() / 255)} for prompt in prompts]

    class Corner(Detector):
        uses_torch = False

        def __init__(self, points: bool):
            self.points = points

        def detect(self, prompts):
            if self.points:
                return [Points(np.array([[1.0, 2.0]]), ("tip",)) for _ in prompts]
            return [Boxes(np.array([[0.0, 1, 2, 3]]), ("spot",), np.array([0.5])) for _ in prompts]

    me.predict(Brightness(), pictures, labels=["bright"], out="classes", **QUIET)
    assert [row["case"] for row in rows("classes/classes.csv")] == ["a", "b"]
    assert float(rows("classes/classes.csv")[1]["bright"]) == pytest.approx(200 / 255)
    me.predict(Corner(points=False), pictures, labels=["spot"], out="boxes", **QUIET)
    (first, _) = rows("boxes/places.csv")
    assert first == {  # rows are y, columns x
        "case": "a", "label": "spot", "x_max": "3.0", "x_min": "1.0", "y_max": "2.0", "y_min": "0.0", "score": "0.5"
    }  # fmt: skip
    me.predict(Corner(points=True), pictures, output="points", labels=["tip"], out="points", **QUIET)
    assert rows("points/places.csv")[0] == {"case": "a", "label": "tip", "x": "2.0", "y": "1.0"}


def test_a_benchmark_lends_its_labels_and_not_its_permission(folder, export):
    run = me.predict("gaussian_mixture", "export", task="brain_tissue", out="out", **QUIET)
    assert run.task.numbered_labels() == {1: "grey matter", 2: "white matter"}
    assert run.task.may_leave == "ask"
    assert {path.name for path in (folder / "out" / "dicom_seg").iterdir()} == {"series_2.dcm", "series_3.dcm"}


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (Threshold, {}, "nothing says which structures there are; add 'labels={1: liver"),
        (Echo, {}, "nothing is asked; add prompt="),
        (Echo, {"prompt": "a", "questions": "b"}, "both say what is asked"),
        (Echo, {"output": "masks", **LIVER}, r"lacks segment\(\); it can give answers"),
        (Threshold, {"output": "mask"}, "got 'mask'; did you mean 'masks'"),
        (Threshold, {"task": "slake", "prompt": "a"}, "asks for no masks"),
    ],
)
def test_what_cannot_be_asked_is_refused_first(export, model, settings, words):
    with pytest.raises(UsageError, match=words):
        me.predict(model(), "export", **settings, **QUIET)


def test_what_is_written_does_not_lie_among_the_images(folder, export):
    for settings, images in (({"out": "export/masks"}, "export"), ({}, ".")):
        with pytest.raises(UsageError, match="where images are looked for; name a folder elsewhere by out=DIR"):
            me.predict(Threshold(), images, **settings, **LIVER, **QUIET)


def test_nothing_goes_to_a_server_without_a_word(pictures):
    class Elsewhere(Echo):
        remote = True
        base_url = "https://api.example.com"

    with pytest.raises(UserError, match=r"would send images, questions to api.example.com.*add may_leave=yes"):
        me.predict(Elsewhere(), pictures, prompt="What?", **QUIET)


def test_a_model_may_know_its_own_labels(export):
    class Known(Threshold):
        def own_labels(self):
            return {1: "bone"}

    assert me.predict(Known(), "export", **QUIET).task.numbered_labels() == {1: "bone"}


def test_a_model_that_was_fitted_here_knows_those_of_its_task(export, folder):
    (folder / "fitted").mkdir()
    task = {"_target_": "medimg_eval.tasks.SegmentationTask", "name": "t", "labels": {"1": "bone"}, "layout": {}}
    (folder / "fitted" / "manifest.json").write_text(json.dumps({"command": "fit", "task_config": task, "metrics": []}))

    class Fitted(Threshold):
        file_arguments = ()

        def __init__(self, checkpoint: str):
            super().__init__()

    assert me.predict(Fitted(checkpoint="fitted"), "export", **QUIET).task.numbered_labels() == {1: "bone"}


def test_a_model_that_gives_nothing_of_use_is_refused(export):
    class Vectors(Embedder):
        def embed(self, prompts):
            return []

    with pytest.raises(UsageError, match="lacks a method for any output; predict asks for masks, prob"):
        me.predict(Vectors(), "export", **QUIET)


def test_odd_folders_are_told_apart(folder):
    with pytest.raises(UserError, match="nowhere: no such folder or file of images"):
        me.predict(Threshold(), "nowhere", **LIVER, **QUIET)
    (folder / "mixed").mkdir()
    (folder / "mixed" / "notes.txt").write_text("words")
    with pytest.raises(UserError, match="mixed: holds no image; of 1 things passed over, .*notes.txt is of no known"):
        me.predict(Threshold(), "mixed", **LIVER, **QUIET)
    write_image(folder / "mixed" / "a.nii.gz", body(0))
    np.save(folder / "mixed" / "b.npy", np.zeros((3, 3)))
    with pytest.raises(UserError, match="images of several kinds, 1 of volume, such as .* and 1 of array"):
        me.predict(Threshold(), "mixed", **LIVER, **QUIET)


def test_images_of_one_name_are_told_apart_by_their_folders(folder):
    for place in ("p1", "p2"):
        (folder / "in" / place).mkdir(parents=True)
        write_image(folder / "in" / place / "ct.nii.gz", body(0))
    run = me.predict(Threshold(), "in", **LIVER, **QUIET)
    assert [trial.id for trial in run.predictions] == ["p1-ct", "p2-ct"]


def test_a_task_without_a_truth_is_not_tested(folder):
    write_image("scan.nii.gz", body(0))
    run = me.predict(Threshold(), "scan.nii.gz", **LIVER, **QUIET)
    with pytest.raises(UsageError, match="knows no truth, so nothing can be scored; use predict"):
        me.test(run.task, Threshold(), **QUIET)


def test_masks_that_lie_elsewhere_fail(folder):
    class Moved(Segmenter):
        uses_torch = False

        def segment(self, prompts):
            return [Mask(np.zeros(prompt.image.shape[1:], np.uint8), np.eye(4)) for prompt in prompts]

    write_image("scan.nii.gz", Image(np.zeros((1, 4, 4, 4), np.int16), np.diag([2.0, 2, 2, 1])))
    run = me.predict(Moved(), "scan.nii.gz", **LIVER, **QUIET)
    assert list(run.failures["stage"]) == ["check"]
