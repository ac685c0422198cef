"""Temporal networks: the same answers frame by frame as of whole films, and learning on stored features."""

from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.case import FrameLabels, Image
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.video import Film, FilmPrompt, FrameFeatures
from medimg_eval.models import PrecomputedFrames, SmoothedFrames, TemporalModel

PHASES, PRESENCE = ("a", "b", "c"), ("hook",)


def prompt(tmp_path, features, online=True):
    path = tmp_path / f"{len(features)}.npy"
    np.save(path, features.astype(np.float32))
    film = Film(FrameFeatures(path), range(len(features)), 1.0, online=online)
    return FilmPrompt(
        "film", (), dict(enumerate([*PHASES, *PRESENCE])), film=film, phases=PHASES, presence=PRESENCE, online=online
    )


def lessons(tmp_path, count=3):
    rng = np.random.default_rng(0)
    for film in range(count):
        places = np.repeat([0, 1, 2], 8 + film)
        hook = (places == 1).astype(int)
        features = np.eye(3)[places] + 0.3 * rng.standard_normal((len(places), 3))
        target = FrameLabels(np.arange(len(places)), {"phase": np.array(PHASES, object)[places], "hook": hook})
        yield SimpleNamespace(prompt=prompt(tmp_path, features, online=False), target=target)


@pytest.mark.parametrize("network", ["tcn", "gru"])
def test_online_answers_are_those_of_the_whole_film(tmp_path, network):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    settings = {
        "network": network,
        "width": 8,
        "layers": 3 if network == "tcn" else 1,
        "epochs": 30,
        "learning_rate": 0.02,
    }
    model = TemporalModel(**settings)
    with pytest.raises(UserError, match="fit the model first"):
        model.check_ready()
    told = model.learn(lessons(tmp_path), lessons(tmp_path, 1), tmp_path / "run", "label_frames")
    assert told["films"] == 3
    again = TemporalModel(**settings, checkpoint=str(tmp_path / "run"))
    again.check_ready()
    features = np.eye(3)[np.repeat([0, 1, 2], 10)]
    whole = list(again.label_frames([prompt(tmp_path, features, online=False)])[0])
    online = list(again.label_frames([prompt(tmp_path, features)])[0])
    for one, other in zip(whole, online, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    said = [max(PHASES, key=row.__getitem__) for row in online]
    assert np.mean(np.array(said) == np.repeat(PHASES, 10)) > 0.8
    assert online[15]["hook"] > 0.5 > online[25]["hook"]


def test_a_network_that_sees_later_frames_serves_no_online_task(tmp_path):
    model = TemporalModel(causal=False, width=4, layers=2, epochs=1)
    model.learn(lessons(tmp_path, 1), None, tmp_path / "run", "label_frames")
    with pytest.raises(CaseError, match="sees later frames"):
        list(model.label_frames([prompt(tmp_path, np.zeros((4, 3)))])[0])
    with pytest.raises(UsageError, match=r"model\.network"):
        TemporalModel("lstm")
    with pytest.raises(UserError, match=r"was fitted with model\.network=tcn and model\.causal=false; leave both"):
        TemporalModel(width=4, layers=2, checkpoint=str(tmp_path / "run")).check_ready()


def test_scores_of_a_classifier_are_averaged_over_the_frames_before():
    class Growing:
        uses_torch = False
        said = 0.0

        def classify(self, prompts):
            assert isinstance(prompts[0].image, Image)
            self.said += 1
            return [{"a": self.said}]

    source = SimpleNamespace(frames=lambda places: (np.zeros((3, 2, 2)) for _ in places))
    asked = FilmPrompt("film", (), {1: "a"}, film=Film(source, range(4), 1.0, online=True), phases=("a",))
    assert [row["a"] for row in SmoothedFrames(Growing(), window=3).label_frames([asked])[0]] == [1, 1.5, 2, 3]


def test_labels_on_disk(tmp_path):
    (tmp_path / "film.csv").write_text("frame,phase,hook\n50,b,0.25\n0,a,1\n10,a,1\n")
    model = PrecomputedFrames(str(tmp_path), columns=["phase", "hook"], every=25)
    found = model.label_frames([SimpleNamespace(case_id="film", labels={1: "a", 2: "b", 3: "hook"})])[0]
    assert found.frames.tolist() == [0, 2]
    assert found.columns["phase"].tolist() == ["a", "b"]
    assert found.columns["hook"].tolist() == [1, 0.25]
    (tmp_path / "twice.csv").write_text("frame,phase\n0,a\n0,b\n")
    with pytest.raises(CaseError, match="frame 0 twice"):
        PrecomputedFrames(str(tmp_path)).label_frames([SimpleNamespace(case_id="twice", labels={})])
