"""Films: labels of frames from files to scores, online enforced, temporal networks on stored features."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.case import Case, FrameLabels
from medimg_eval.data.layouts import CocoFrames, FrameRows, Frames, FrameSpans, Triplets
from medimg_eval.data.records import Given
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.video import FilmFile, FrameFeatures, decoded_ahead, write_video
from medimg_eval.tasks import WorkflowTask
from medimg_eval.tasks.workflow.film_labels import longest_errors

PHASES = ("cut", "sew")


def film_case(tmp_path, phases, snare, features=None):
    path = tmp_path / "film.npy"
    np.save(path, np.zeros((len(phases), 2), np.float32) if features is None else features)
    labels = FrameLabels(np.arange(len(phases)), {"phase": np.array(phases, object), "snare": np.array(snare)})
    return Case("film", (FrameFeatures(path),), Given(labels, (path,)))


def task(**changes):
    settings = {
        "phases": PHASES,
        "presence": ["snare"],
        "metrics": ["video_accuracy", "presence_ap", "onset_accuracy@1"],
    }
    return WorkflowTask(name="films", layout=SimpleNamespace(cases=lambda split: []), **{**settings, **changes})


def values(rows):
    return {(row.metric, row.label): row.value for row in rows}


class Answering:
    """Answers by a generator that looks so many frames ahead."""

    def __init__(self, ahead=0):
        self.ahead = ahead

    def label_frames(self, prompts):
        return [self.follow(prompt.film) for prompt in prompts]

    def follow(self, film):
        frames, held = iter(film), []
        for frame in frames:
            held.append(frame)
            if len(held) > self.ahead:
                held.pop(0)
                yield {"cut": 0.9, "sew": 0.1, "snare": 0.5}
        yield from ({"cut": 0.9, "sew": 0.1, "snare": 0.5} for _ in held)


def test_scores_of_a_film_and_of_one_that_failed(tmp_path):
    case = film_case(tmp_path, ["cut", "cut", "sew", "sew"], [0, 1, 0, 0])
    given = [{"cut": 0.6, "sew": 0.4, "snare": s} for s in (0.1, 0.9, 0.2, 0.3)]
    found = values(task().score(case, task().accept(case, given)))
    assert found == {("video_accuracy", "all"): 0.5, ("presence_ap", "snare"): 1, ("onset_accuracy@1", "snare"): 1}
    assert all(row.value == 0 and row.status == "failed" for row in task().worst(case))


def test_frames_that_are_missing_are_wrong_and_unjudged_ones_do_not_count(tmp_path):
    case = film_case(tmp_path, ["cut", "?", "sew", "sew"], [0, 1, 0, 0])
    judged = task(unjudged=["?"], metrics=["video_accuracy"])
    labels = FrameLabels(np.array([0, 2]), {"phase": np.array(["cut", "sew"], object), "snare": np.array([0.0, 0])})
    assert values(judged.score(case, judged.accept(case, labels))) == {("video_accuracy", "all"): pytest.approx(2 / 3)}
    with pytest.raises(CaseError, match="the phase '\\?'"):
        task().accept(case, labels)


def test_a_rate_that_is_not_the_films_is_told_by_check(tmp_path):
    write_video(tmp_path / "film.mp4", np.zeros((8, 16, 16, 3), np.uint8), 4)
    labels = FrameLabels(np.arange(2), {"phase": np.array(PHASES, object), "snare": np.zeros(2)})
    case = Case("film", (FilmFile(tmp_path / "film.mp4", every=4),), Given(labels, ()))
    assert task(fps=1).check_case(case).notes == frozenset()
    (told,) = task(fps=4).check_case(case).notes
    assert told == "the video and task.layout.every give 1 frames a second, task.fps says 4"


def test_online_gives_no_look_ahead(tmp_path):
    case = film_case(tmp_path, ["cut", "sew", "sew"], [0, 0, 1])
    online = task(online=True)
    assert len(online.ask(Answering(0), [online.prompt(case, ())])[0]) == 3
    with pytest.raises(CaseError, match="took 2 frames before it answered frame 0"):
        online.ask(Answering(1), [online.prompt(case, ())])
    late = task(online=True, delay=1)
    assert len(late.ask(Answering(1), [late.prompt(case, ())])[0]) == 3
    whole = SimpleNamespace(label_frames=lambda prompts: [["cut"] * 3])
    with pytest.raises(CaseError, match="expected a generator"):
        online.ask(whole, [online.prompt(case, ())])
    film = online.prompt(case, ()).film
    with pytest.raises(CaseError, match="length"):
        film.count()
    list(film)
    with pytest.raises(CaseError, match="runs once"):
        list(film)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([{"cut": 1, "sew": 0, "snare": 0}], "answers 1 of 2 frames"),
        ([{"cut": 1, "sew": 0}] * 2, "no score of 'snare' for frame 0"),
        ({"phase": ["cut", "saw"], "snare": [0, 1]}, "holds 'saw'"),
        ({"phase": ["cut"], "snare": [0]}, "1 values of 'phase' for 2 frames"),
        ({"phase": ["cut", "sew"], "snare": [0, np.inf]}, "not finite"),
        ([{"cut": 1, "saw": 0, "snare": 0}] * 2, "holds 'saw'; did you mean 'sew'"),
        ([{"cut": 1, "sew": np.nan, "snare": 0}] * 2, "score of a phase that is not finite"),
        (
            FrameLabels(np.arange(0, 50, 25), {"phase": np.array(PHASES, object)}),
            "labels frame 25, .* model.every says",
        ),
        ("cut", "is str"),
    ],
)
def test_answers_that_cannot_be_meant(tmp_path, answer, message):
    with pytest.raises(CaseError, match=message):
        task().accept(film_case(tmp_path, PHASES, [0, 1]), answer)


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": (), "presence": ()},
        {"delay": 3},
        {"metrics": ["frame_f1@relaxed"]},
        {"phases": (), "metrics": ["edit_score"]},
        {"presence": ("cut",)},
        {"metrics": ["dice"]},
    ],
)
def test_tasks_that_cannot_be_meant(changes):
    with pytest.raises(UsageError):
        task(**changes)


def test_ribbons_of_truth_and_answer(tmp_path):
    case = film_case(tmp_path, ["cut", "sew", "sew"], [0, 0, 1])
    panel = task().answer_panels(case, [{"cut": 1, "sew": 0, "snare": 1}] * 3)[0]
    assert panel.title == "phases, errors in red, snare"
    picture = panel.read().array
    assert picture.shape == (3, 84, 720)  # wide, however few frames there are
    assert picture[:, 40, 239].tolist() == [255, 255, 255]  # right
    assert picture[:, 40, 240].tolist() == [200, 30, 30]  # wrong


def test_clips_around_the_longest_errors_lie_above_both_ribbons(tmp_path):
    write_video(tmp_path / "film.mp4", np.stack([np.full((32, 32, 3), 20 * k, np.uint8) for k in range(12)]), 4)
    phases = np.array(["cut"] * 6 + ["sew"] * 6, object)
    labels = FrameLabels(np.arange(12), {"phase": phases, "snare": np.zeros(12)})
    case = Case("film", (FilmFile(tmp_path / "film.mp4"),), Given(labels, (tmp_path / "film.mp4",)))
    said = ["cut"] * 6 + ["cut"] * 3 + ["sew"] * 2 + ["cut"]
    answer = FrameLabels(np.arange(12), {"phase": np.array(said, object), "snare": np.zeros(12)})
    _, first, second = task().answer_panels(case, answer)
    assert first.title == "00:06: sew, called cut"
    assert second.title == "00:11: sew, called cut"
    clip = first.read().array
    assert clip.shape == (3, 8, 44, 32)  # frames 2 to 9, and two ribbons of six rows
    assert clip[:, :, 5, 5].mean(0).round().tolist() == [40, 60, 80, 100, 120, 140, 160, 180]
    truth, prediction = clip[:, 0, 34, :], clip[:, 0, 42, :]
    assert (truth[:, :16] == truth[:, :1]).all()  # four of the eight frames are of the first phase
    assert (truth[:, 16:] == truth[:, -1:]).all()
    assert (prediction[:, :28] == truth[:, :1]).all()  # and seven are called so
    assert (clip[:, 3, 37, 12:16] == 0).all()  # the fourth frame is shown
    assert longest_errors(np.array([0, 0, -1, 1]), np.array([0, 0, 1, 1]), 3) == []


def test_frames_of_films_on_a_grid(tmp_path):
    frames = np.stack([np.full((16, 16, 3), 20 * k, np.uint8) for k in range(9)])
    write_video(tmp_path / "a.mp4", frames, 4)
    shown = list(FilmFile(tmp_path / "a.mp4", 4).frames([0, 2]))
    assert [int(frame.mean()) for frame in shown] == [0, 160]
    assert shown[0].shape == (3, 16, 16)
    assert list(decoded_ahead(range(30))) == list(range(30))
    with pytest.raises(ZeroDivisionError):
        list(decoded_ahead(1 / number for number in (1, 0)))
    np.save(tmp_path / "f.npy", np.zeros((2, 3)))
    with pytest.raises(CaseError, match="has 2 rows"):
        list(FrameFeatures(tmp_path / "f.npy").frames([2]))


def labels_of(tmp_path, source, every=1):
    layout = Frames(root=str(tmp_path), video="{video}.mp4", labels=source, every=every)
    return {case.id: case.target.read() for case in layout.cases("test")}


def test_tables_are_joined_on_the_grid(tmp_path):
    (tmp_path / "v1-phase.txt").write_text(
        "Frame\tPhase\n" + "".join(f"{k}\t{'cut' if k < 3 else 'sew'}\n" for k in range(6))
    )
    (tmp_path / "v1-tool.txt").write_text("Frame\tHook\n0\t1\n2\t0\n4\t1\n")
    phase = FrameRows("{video}-phase.txt", "Frame", {"phase": "Phase"}, separator="\t")
    tool = FrameRows("{video}-tool.txt", "Frame", separator="\t")
    found = labels_of(tmp_path, [phase, tool], every=2)["v1"]
    assert found.frames.tolist() == [0, 1, 2]
    assert found.columns["phase"].tolist() == ["cut", "cut", "sew"]
    assert found.columns["Hook"].tolist() == [1, 0, 1]


def test_lists_of_numbers_become_presence(tmp_path):
    (tmp_path / "a.csv").write_text("0,3,-1\n1,5,3\n")
    source = FrameRows(
        "{video}.csv", "t", header=["t", "one", "two"], listed=["one", "two"], members={"hook": 3, "clip": 5}
    )
    found = labels_of(tmp_path, source)["a"]
    assert (found.columns["hook"].tolist(), found.columns["clip"].tolist()) == ([1, 1], [0, 1])


def test_spans_nest_and_gaps_are_left_out(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"phases": [{"start": 0, "end": 4000, "label_name": "in"}, {"start": 1000, "end": 2000, "label_name": "out"},'
        ' {"start": 6000, "end": 7000, "label_name": "end"}]}'
    )
    spans = FrameSpans("{video}.json", "phase", label="label_name", within="phases", unit=0.001)
    found = labels_of(tmp_path, spans)["a"]
    assert found.frames.tolist() == [0, 1, 2, 3, 6]
    assert found.columns["phase"].tolist() == ["in", "out", "in", "in", "end"]
    (tmp_path / "Suturing_B001.txt").write_text("2 3 G1 \n4 4 G5 \n")
    spans = FrameSpans("{video}.txt", "gesture", header=["start", "end", "label"], separator=" ", closed=True)
    found = labels_of(tmp_path, spans)["Suturing_B001"]
    assert dict(zip(found.frames.tolist(), found.columns["gesture"].tolist(), strict=True)) == {
        2: "G1",
        3: "G1",
        4: "G5",
    }


def test_triplets_and_criteria_from_json(tmp_path):
    vector = [1, 0, 1.0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1]
    empty = [-1] * 14 + [0]
    names = {"0": "hook,cut,liver", "1": "grasper,hold,liver"}
    content = {
        "categories": {"triplet": names, "phase": {"0": "start", "1": "end"}},
        "annotations": {"1": [vector], "0": [empty]},
    }
    (tmp_path / "VID01.json").write_text(json.dumps(content))
    found = labels_of(tmp_path, Triplets("{video}.json"))["VID01"]
    assert found.columns["grasper,hold,liver"].tolist() == [0, 1]
    assert found.columns["hook,cut,liver"].tolist() == [0, 0]
    assert found.columns["phase"].tolist() == ["start", "end"]
    images = [{"file_name": "7_25.jpg", "ds": [0, 2 / 3, 1]}, {"file_name": "7_150.jpg", "ds": [1 / 3, 0, 0]}]
    (tmp_path / "coco.json").write_text(json.dumps({"images": images}))
    found = labels_of(tmp_path, CocoFrames("coco.json", ["C1", "C2", "C3"]))["7"]
    assert found.frames.tolist() == [25, 150]
    assert [found.columns[name].tolist() for name in ("C1", "C2", "C3")] == [[0, 0], [1, 0], [1, 0]]


def test_faults_name_file_and_line(tmp_path):
    (tmp_path / "a.csv").write_text("frame,phase\n0,cut\n0,cut\n")
    with pytest.raises(CaseError, match=r"a\.csv: frame 0 is labelled a second time"):
        labels_of(tmp_path, FrameRows("{video}.csv", "frame"))
    with pytest.raises(UserError, match="no such file"):
        labels_of(tmp_path, FrameRows("{video}.tsv", "frame"))
