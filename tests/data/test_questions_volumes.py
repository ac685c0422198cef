"""K4 and K5: questions about volumes and videos, and trees of one JSON a sample, as their authors write them."""

import json

import nibabel as nib
import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import Questions
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.video.reading import write_video


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def picture(path, level, size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.full(size[::-1], level, np.uint8)).save(path)


def key(case):
    return case.target.read().value


RIGHT, FRONT, HEAD, SHAPE = 1000.0, 2000.0, 3000.0, (5, 6, 7)


@pytest.fixture(params=["RAS", "LPS", "PIR"])
def patient(request, tmp_path):
    """A volume whose outermost voxels on the patient's right, front and head are marked, stored along three ways."""
    ras = np.zeros(SHAPE, np.float32)
    ras[:, :, 3] = 10
    ras[-1, 2, 3] = RIGHT
    ras[2, -1, 3] = FRONT
    ras[2, 2, -1] = HEAD
    image = nib.Nifti1Image(ras, np.diag([2.0, 2.0, 3.0, 1.0]))
    ornt = nib.orientations.axcodes2ornt(tuple(request.param))
    (tmp_path / "ct" / "BDMAP_1").mkdir(parents=True)
    nib.save(image.as_reoriented(ornt), tmp_path / "ct" / "BDMAP_1" / "ct.nii.gz")
    row = {"qid": 1, "image_id": "BDMAP_1", "mc_question": "Large?\nA. yes\nB. no\nC. 3.5 cm", "correct_option": "C"}
    write_json(tmp_path / "test_qa.json", {"version": 2, "questions": [row]})
    return tmp_path


def seen(root, **spec):
    (case,) = Questions(
        root=str(root),
        records={"test": "test_qa.json"},
        at="questions",
        id="qid",
        question="mc_question",
        options={"inside": "mc_question"},
        answer={"letter": "correct_option"},
        images={"volume": "ct/{image_id}/ct.nii.gz", **spec},
    ).cases("test")
    assert (case.question.options, key(case)) == ({"A": "yes", "B": "no", "C": "3.5 cm"}, "C")
    return [image.read().array for image in case.images]


def place(array, value):
    return [tuple(map(int, one)) for one in np.argwhere(array[0] == value)]


def test_an_axial_slice_has_the_patients_right_on_the_left_and_the_front_above(patient):
    (axial,) = seen(patient, slices="middle", clip=[0, 2000])
    assert (axial.shape, axial.dtype) == ((1, 6, 5), np.uint8)
    assert place(axial, 255) == [(0, 2)]  # the front is above, in the middle
    assert place(axial, 128) == [(3, 0)]  # the right is on the left


def test_coronal_and_sagittal_slices_have_the_head_above(patient):
    (coronal,) = seen(patient, slices=[SHAPE[1] - 1 - 2], plane="coronal", clip=[0, 3000])
    assert (coronal.shape, place(coronal, 255)) == ((1, 7, 5), [(0, 2)])
    assert place(coronal, 85) == [(3, 0)]
    (sagittal,) = seen(patient, slices=[SHAPE[0] - 1 - 2], plane="sagittal", clip=[0, 3000])
    assert (sagittal.shape, place(sagittal, 255)) == ((1, 7, 6), [(0, 3)])
    assert place(sagittal, 170) == [(3, 0)]  # the face is to the left


def test_slices_are_counted_from_the_feet_and_evenly_spaced(patient):
    assert [int(one.max()) for one in seen(patient, slices={"count": 4}, clip=[0, 3000])] == [0, 0, 0, 255]
    assert [len(place(one, 255)) for one in seen(patient, slices={"from": 5, "to": 6}, clip=[0, 3000])] == [0, 1]
    chosen = seen(patient, slices={"count": 3, "from": 3, "to": 6}, clip=[0, 20])
    assert [int(one.max()) for one in chosen] == [255, 0, 255]  # 3, 4.5 cut down to 4, 6
    (window,) = seen(patient, slices=[3], window=[10, 40])
    assert int(np.bincount(window.ravel()).argmax()) == 128


def test_a_slice_that_there_is_not_and_a_volume_that_is_missing_are_named(patient):
    with pytest.raises(CaseError, match=r"ct\.nii\.gz: has 7 axial slices, counted from 0, so there is no slice 9"):
        seen(patient, slices=[9])
    (patient / "ct" / "BDMAP_1" / "ct.nii.gz").unlink()
    with pytest.raises(CaseError, match=r"ct\.nii\.gz: no such file"):
        seen(patient)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"slices": "centre"}, "slices is 'centre', expected middle, a list, or count"),
        ({"slices": {"count": 0}}, r"slices\.count is 0, expected a whole number from 1 on"),
        ({"window": [50]}, r"window is \[50\], expected \[level, width\]"),
        ({"plane": "axiel"}, "plane is 'axiel', expected one of axial, coronal, sagittal"),
    ],
)
def test_slices_that_cannot_be_meant_are_refused(patient, spec, words):
    with pytest.raises(UsageError, match=words):
        seen(patient, **spec)


def test_every_volume_is_asked_every_question_as_in_3dreasonknee(tmp_path):
    for name in ("a", "b"):
        nib.save(nib.Nifti1Image(np.ones((3, 4, 5), np.int16), np.eye(4)), tmp_path / f"{name}.nii.gz")
    (tmp_path / "test_split.csv").write_text("patient_id,image_filepath\np1,a.nii.gz\np2,b.nii.gz\n")
    write_json(tmp_path / "questions.json", {"1": "Grade?", "2": "Size?"})
    cases = Questions(
        root=str(tmp_path),
        records={"test": "test_split.csv"},
        expand=[{"cross": "questions.json", "at": "*", "as": "q"}],
        id="{stem}-{patient_id}-{q.key1}",
        kind="open",
        question="q.value",
        images={"volume": "image_filepath", "slices": {"count": 2}, "plane": "sagittal", "clip": [0, 400]},
        patient="patient_id",
    ).cases("test")
    assert [(case.id, case.question.text, case.patient) for case in cases] == [
        ("test_split-p1-1", "Grade?", "p1"),
        ("test_split-p1-2", "Size?", "p1"),
        ("test_split-p2-1", "Grade?", "p2"),
        ("test_split-p2-2", "Size?", "p2"),
    ]
    assert [image.read().array.shape for image in cases[0].images] == [(1, 5, 4)] * 2
    assert cases[0].target.read().value is None


def test_boxes_about_the_labels_of_a_volume(tmp_path):
    labels = np.zeros((5, 6, 7), np.uint8)
    labels[1:3, 2:5, 3] = 4
    nib.save(nib.Nifti1Image(labels, np.eye(4)), tmp_path / "label.nii.gz")
    (tmp_path / "test.csv").write_text("question,label_filepath\nWhere?,label.nii.gz\n")
    settings = {"root": str(tmp_path), "records": "test.csv", "kind": "boxes3d"}
    (case,) = Questions(**settings, answer={"labels": "label_filepath", "names": {4: "tibia", 5: "femur"}}).cases(
        "test"
    )
    assert key(case) == {"tibia": (1, 2, 3, 3, 5, 4)}
    assert case.target.files == (tmp_path / "test.csv", tmp_path / "label.nii.gz")
    (case,) = Questions(**settings, answer={"labels": "label_filepath", "names": {9: "tibia"}}).cases("test")
    with pytest.raises(CaseError, match=r"label\.nii\.gz: holds none of the labels 9 \(tibia\)"):
        case.target.read()


def test_frames_of_a_video_are_the_middles_of_equal_stretches(tmp_path):
    frames = np.stack([np.full((16, 16, 3), 10 * place, np.uint8) for place in range(12)])
    write_video(tmp_path / "v1.mp4", frames, 4)
    write_json(tmp_path / "test.json", [{"data_id": "v1", "question": "q", "answer": "yes"}])
    (case,) = Questions(
        root=str(tmp_path),
        records="test.json",
        kind="yes_no",
        answer={"value": "answer"},
        images={"video": "{data_id}.mp4", "frames": 4},
    ).cases("test")
    arrays = [image.read().array for image in case.images]
    assert [int(array.mean()) for array in arrays] == [10, 40, 70, 100]
    assert arrays[0].shape == (3, 16, 16)


def test_a_json_beside_the_pictures_of_each_sample_as_in_lmod(tmp_path):
    for number, stage in ((1, 2), (2, None)):
        folder = tmp_path / "OIMHS" / f"case_{number}"
        picture(folder / "annotated" / "bbox_annotated.png", 50 + number)
        boxes = [{"annotation_ID": 1, "region_type": "irc"}, {"annotation_ID": 2, "region_type": "choroid"}]
        metadata = {"dataset_id": "OIMHS", "stage": stage, "patient_sex": "F"}
        write_json(
            folder / "information.json",
            {"annotations": {"bounding_boxes": boxes}, "metadata": metadata, "image_type": {"a": 1}},
        )
    settings = {
        "root": str(tmp_path),
        "records": "*/*/information.json",
        "at": ".",
        "id": "{path~^(.*)/information}",
        "question": "Name each box of {folder}.",
        "images": "{path~^(.*)/information}/annotated/bbox_annotated.png",
    }
    first, second = Questions(
        **settings,
        kind="regions",
        answer={"value": "annotations.bounding_boxes", "key": "annotation_ID", "name": "region_type"},
        attributes={"sex": "metadata.patient_sex"},
    ).cases("test")
    assert (first.id, first.question.text) == ("OIMHS/case_1", "Name each box of case_1.")
    assert (key(first), first.attributes) == ({"1": "irc", "2": "choroid"}, {"sex": "F"})
    assert [case.images[0].read().array.max() for case in (first, second)] == [51, 52]
    staged = Questions(**settings, kind="number", answer={"value": "metadata.stage"}).cases("test")
    assert key(staged[0]) == 2.0
    with pytest.raises(CaseError, match=r"case_2/information\.json, item 1: the answer 'metadata\.stage' is empty"):
        staged[1].target.read()


def test_one_json_of_one_or_two_questions_a_sample_as_in_ver_bench(tmp_path):
    for name in ("sa_1", "sa_2"):
        picture(tmp_path / "Image" / f"{name}.png", 5)
    write_json(
        tmp_path / "Annotation" / "sa_1.json", {"question": "q", "answer": "a", "visual_clues": [{"clue1": "c"}]}
    )
    write_json(
        tmp_path / "Annotation" / "sa_2.json",
        {"question": ["q1", "q2"], "answer": ["a1", "a2"], "visual_clues": [[{"clue1": "x"}], [{"clue2": "y"}]]},
    )
    cases = Questions(
        root=str(tmp_path),
        records="Annotation/*.json",
        at=".",
        expand=[{"explode": ["question", "answer", "visual_clues"]}],
        id="{stem}-{question_number}",
        kind="open",
        answer={"value": "answer"},
        more={"clues": "visual_clues"},
        images="Image/{stem}.png",
    ).cases("test")
    assert [(case.id, case.question.text, key(case)) for case in cases] == [
        ("sa_1-1", "q", "a"),
        ("sa_2-1", "q1", "a1"),
        ("sa_2-2", "q2", "a2"),
    ]
    assert [case.target.read().more["clues"] for case in cases] == [
        [{"clue1": "c"}],
        [{"clue1": "x"}],
        [{"clue2": "y"}],
    ]


def test_steps_of_tasks_keep_their_order_and_boxes_become_pixels_as_in_medspot(tmp_path):
    steps = []
    for number in (2, 1):
        picture(tmp_path / f"step{number}.png", number, (200, 100))
        actions = [{"type": "click", "bbox": [10, 20, 30, 40]}]
        steps.append({"step_id": number, "image_path": f"step{number}.png", "instruction": "go", "actions": actions})
    for software in ("Horos", "Orthanc"):
        write_json(tmp_path / "Annotations" / f"{software}_Annotation.json", {"tasks": [{"steps": steps}]})
    cases = Questions(
        root=str(tmp_path),
        records="Annotations/*_Annotation.json",
        at="tasks",
        expand=[{"explode": "steps"}],
        id="{stem}-{row_number}-{steps.step_id}",
        kind="point",
        question="steps.instruction",
        answer={"value": "steps.actions.0.bbox", "box": "xywh", "scale": "percent"},
        more={"size": "image"},
        images="steps.image_path",
        attributes={"software": "{stem~^(.*)_Annotation$}"},
        set="{stem}-{row_number}",
        order="steps.step_id",
    ).cases("test")
    assert [case.id.rpartition("-")[2] for case in cases] == ["1", "2", "1", "2"]
    assert [case.attributes["software"] for case in cases] == ["Horos", "Horos", "Orthanc", "Orthanc"]
    found = cases[0].target.read()
    assert (found.value, found.more["size"]) == ((20.0, 20.0, 80.0, 60.0), (200, 100))
