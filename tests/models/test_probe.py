"""A probe is fitted and tested like any model: by commands, on features in tables and files, and on pictures."""

import csv
import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import medimg_eval as me
from medimg_eval.case import Case, Findings, Image, Prompt, Survival
from medimg_eval.codecs import attention_of
from medimg_eval.data.layouts import FeatureVectors, Slides
from medimg_eval.data.targets import ClassColumns, ClassName
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models import Embedder, FusionProbe, MergedClassifier, Probe, TemporalModel
from medimg_eval.models.probe import Lesson
from medimg_eval.tasks import ClassificationTask

QUIET = {"debug": True, "num_workers": 0, "logger": {}}
CLASSES = ["malignant", "benign"]


def written(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def wisconsin(tmp_path_factory):
    """Nuclei of 569 images, whose 30 features are columns; every third case is test."""
    root = tmp_path_factory.mktemp("wisconsin")
    held = load_breast_cancer()
    rows = [
        {
            "id": f"c{place}",
            "patient": f"p{place}",
            "class": held.target_names[code],
            "split": "test" if place % 3 == 0 else "fit" if place % 3 == 1 else "validate",
            "row": place,
            **dict(zip(held.feature_names, values.tolist(), strict=True)),
        }
        for place, (values, code) in enumerate(zip(held.data, held.target, strict=True))
    ]
    written(root / "table.csv", rows)
    np.save(root / "features.npy", held.data)
    return root


def task(root, features=("mean *", "* error", "worst *"), **options):
    layout = FeatureVectors(
        root=root,
        table="table.csv",
        features=features,
        split="split",
        patient="patient",
        target=ClassName("class", CLASSES),
        **options,
    )
    parts = {"fit": "fit", "validate": "validate", "test": "test"}
    return ClassificationTask(
        name="wisconsin", layout=layout, classes=CLASSES, exclusive=True, splits=parts, metrics=["auroc@macro"]
    )


@pytest.mark.parametrize("model", ["probe", "knn_probe"])
def test_a_probe_on_a_table_is_fitted_and_tested_by_its_preset(model, wisconsin, tmp_path):
    made = task(wisconsin, "features.npy", row="row")
    run = me.fit(made, model, run=tmp_path / "fit", **QUIET)
    chosen = json.loads((run / "search.json").read_text())
    assert chosen["chosen_on"] == "cases to validate on"
    assert len(chosen["trials"]) >= 4
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"head.json", "head.safetensors"}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["best_score"] < 0.1
    tested = me.test(made, model, overrides=[f"model.checkpoint={run}"], runs=tmp_path, **QUIET)
    assert tested.summary.set_index("metric").loc["auroc@macro", "value"] > 0.97


def lessons(count, image, target, **options):
    labels = options.pop("labels")
    return [Lesson(Prompt(f"c{n}", (image(n),), labels, **options), target(n), f"p{n}") for n in range(count)]


def vector(values):
    return Image(np.asarray(values, np.float32)[None, None], np.eye(4), units="pixel", attributes={"holds": "features"})


def noisy(n, width=6):
    values = np.random.default_rng(n).standard_normal(width)
    values[0] += 2 * (n % 2)
    return values


def test_survival_and_numbers_are_learned_by_the_same_model(tmp_path):
    labels = {1: "risk", 2: "S(2)", 3: "S(50)"}
    learned = lessons(
        60, lambda n: vector(noisy(n)), lambda n: Survival(10.0 - 6 * (n % 2) + n % 3, n % 5 > 0), labels=labels
    )
    probe = Probe(head="cox", grid={"alpha": [0.01, 0.1]}, folds=3)
    told = probe.learn(learned, None, tmp_path, "estimate_risk")
    assert told["cases"] == 60
    assert told["converged"]
    low, high = probe.estimate_risk([lesson.prompt for lesson in learned[:2]])
    assert high["risk"] > low["risk"]
    assert low["S(2)"] == 1
    assert high["S(50)"] < low["S(50)"] < 1
    assert json.loads((tmp_path / "search.json").read_text())["chosen_on"] == "3 folds"

    numbers = {1: "gene"}
    learned = lessons(40, lambda n: vector(noisy(n)), lambda n: Findings({"gene": 5.0 + noisy(n)[0]}), labels=numbers)
    probe = Probe(head={"name": "ridge", "alpha": 1e-6})
    probe.learn(learned, None, tmp_path, "regress")
    assert probe.regress([learned[3].prompt])[0]["gene"] == pytest.approx(5 + noisy(3)[0], abs=1e-4)
    with pytest.raises(UserError, match="was fitted to regress, and the task asks it to classify"):
        probe.classify([learned[0].prompt])


@pytest.mark.parametrize("head", ["logistic", {"name": "abmil", "hidden": 4, "attention": 4, "epochs": 1}])
def test_heads_of_folds_are_averaged(tmp_path, head):
    labels = {1: "odd"}
    learned = lessons(40, lambda n: vector(noisy(n)), lambda n: Findings({"odd": float(n % 2)}), labels=labels)
    for fold in range(2):
        Probe(head=head).learn(learned[20 * fold : 20 * fold + 20], None, tmp_path / f"fold-{fold}", "classify")
    prompts = [lesson.prompt for lesson in learned[:3]]
    first, second = (Probe(head=head, checkpoint=str(tmp_path / f"fold-{fold}")).classify(prompts) for fold in range(2))
    both = Probe(head=head, checkpoint=str(tmp_path)).classify(prompts)
    for one, other, mean in zip(first, second, both, strict=True):
        assert one["odd"] != other["odd"]
        assert mean["odd"] == pytest.approx((one["odd"] + other["odd"]) / 2)
        if attention_of(mean) is not None:
            np.testing.assert_allclose(attention_of(mean), (attention_of(one) + attention_of(other)) / 2)


class Brightness(Embedder):
    """Embeds a picture by its mean, and by how much it varies."""

    def embed(self, prompts):
        return [np.array([prompt.images[0].array.mean(), prompt.images[0].array.std()]) for prompt in prompts]


def picture(n):
    pixels = np.random.default_rng(n).integers(0, 120, (1, 8, 8)) + 40 * (n % 2)
    return Image(pixels.astype(np.uint8), np.eye(4), units="pixel")


def test_pictures_are_embedded_and_a_head_of_another_encoder_is_refused(tmp_path):
    options = {"1": "dark", "2": "bright"}
    learned = lessons(
        40,
        picture,
        lambda n: Findings({"dark": 1.0 - n % 2, "bright": n % 2}),
        labels={1: "dark", 2: "bright"},
        options=options,
    )
    Probe(Brightness(), "prototypes").learn(learned, None, tmp_path, "classify")
    probe = Probe(Brightness(), "prototypes", checkpoint=str(tmp_path))
    said = probe.classify([lesson.prompt for lesson in learned[:6]])
    assert [one["bright"] > 0.5 for one in said] == [False, True] * 3
    prompts = [learned[0].prompt]
    with pytest.raises(UserError, match="was fitted on features of Brightness, not of files"):
        Probe(None, "prototypes", checkpoint=str(tmp_path)).classify(prompts)
    with pytest.raises(UserError, match="holds a head Prototypes, the config names LogisticRegression"):
        Probe(Brightness(), checkpoint=str(tmp_path)).classify(prompts)
    with pytest.raises(CaseError, match="shows pictures, and the probe has no encoder"):
        Probe().learn(learned, None, tmp_path, "classify")
    with pytest.raises(UserError, match="fit the probe first"):
        Probe().check_ready()
    with pytest.raises(UsageError, match="no setting 'k'"):
        Probe(grid={"k": [1]})


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Probe("uni"), "encoder"),
        (lambda: FusionProbe(encoder={"slide": "uni"}), "encoder.slide"),
        (lambda: MergedClassifier(general="uni", tuned="uni"), "general"),
        (lambda: TemporalModel(frame_encoder="uni"), "frame_encoder"),
    ],
)
def test_a_name_in_the_place_of_a_model_is_refused_with_the_words_that_name_it(make, key):
    with pytest.raises(UsageError, match=rf"model.{key} is invalid: .* say \+model@model.{key}=uni"):
        make()


def slides(root, count=72):
    """Each slide has five to nine tiles, whose features are a file."""
    rows = []
    for n in range(count):
        random = np.random.default_rng(n)
        bag = random.standard_normal((5 + n % 5, 4)).astype(np.float32)
        bag[n % 5, 0] += 6 * (n % 2)
        np.save(root / f"s{n}.npy", bag)
        part = ["fit", "test", "validate"][n % 3]
        rows.append({"slide_id": f"s{n}", "case_id": f"p{n}", "split": part, "tumour": n % 2, "healthy": 1 - n % 2})
    written(root / "slides.csv", rows)
    target = ClassColumns(["healthy", "tumour"])
    layout = Slides(root=root, table="slides.csv", features="{slide_id}.npy", split="split", target=target)
    return ClassificationTask(
        name="slides",
        layout=layout,
        classes=["healthy", "tumour"],
        exclusive=True,
        splits={"fit": "fit", "validate": "validate", "test": "test"},
        metrics=["auroc@macro"],
    )


def test_a_head_on_bags_is_tested_on_all_tiles_and_its_attention_is_kept(tmp_path):
    made = slides(tmp_path)
    head = {"name": "abmil", "hidden": 16, "attention": 8, "epochs": 30, "rate": 1e-2, "batch": 4, "dropout": 0.0}
    run = me.fit(made, Probe(head=head), run=tmp_path / "fit", **QUIET)
    tested = me.test(made, Probe(head=head, checkpoint=str(run)), runs=tmp_path, **QUIET)
    kept = {trial.case: attention_of(record) for trial, record in tested.predictions.items()}
    assert len(kept) == 24
    for name, attention in kept.items():
        assert len(attention) == 5 + int(name[1:]) % 5
        assert attention.sum() == pytest.approx(1, abs=2e-3)
    found = [attention.argmax() == int(name[1:]) % 5 for name, attention in kept.items() if int(name[1:]) % 2]
    assert np.mean(found) >= 0.75


def test_what_a_table_of_features_may_not_hold_is_named(tmp_path):
    rows = [{"id": "a", "split": "fit", "patient": "p", "class": "benign", "mean x": "1"}]
    written(tmp_path / "table.csv", [*rows, rows[0] | {"id": "b", "mean x": ""}])
    first, second = task(tmp_path, ["mean *"]).cases("fit")
    assert first.images[0].read().array.tolist() == [[[1.0]]]
    with pytest.raises(CaseError, match="line 3.*'mean x'"):
        second.images[0].read()
    with pytest.raises(UsageError, match="names a column 'std"):
        task(tmp_path, ["std *"]).cases("fit")
    np.save(tmp_path / "features.npy", np.ones((1, 2)))
    _, second = task(tmp_path, "features.npy").cases("fit")
    with pytest.raises(CaseError, match="has 1 rows, and row 1 is asked for"):
        second.images[0].read()
    written(tmp_path / "table.csv", [*rows, rows[0]])
    with pytest.raises(UserError, match="expected one row for each case"):
        task(tmp_path, ["mean *"]).cases("fit")
    assert isinstance(first, Case)
