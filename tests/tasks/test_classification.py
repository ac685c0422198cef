"""The task of classes and its models: answers, failures, training, and a run from start to table."""

import json
import math
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from medimg_eval.case import Case, Findings, Image, Prompt
from medimg_eval.data.records import Given
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.baselines.class_frequency import ClassFrequency
from medimg_eval.models.classification.base import Moves, class_loss, stored_classes
from medimg_eval.models.classification.monai import ImageClassifier
from medimg_eval.models.precomputed.classes import PrecomputedClasses
from medimg_eval.phantoms.findings import ChestFindings
from medimg_eval.tasks import ClassificationTask

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:.*logs directory.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]

CLASSES = ["upright", "Lying down"]
NETWORK = {"name": "DenseNet", "init_features": 4, "growth_rate": 4, "block_config": [1, 1]}


class Stripes:
    """Pictures with stripes upright, lying down, or both; where they exclude each other, one of them."""

    def __init__(self, folder, exclusive=False, unknown=False):
        self.file, self.exclusive, self.unknown = folder / "truth.csv", exclusive, unknown
        self.file.write_text("made by the test\n")

    def cases(self, split):
        rng = np.random.default_rng(["fit", "validate", "test"].index(split))
        made = []
        for number in range({"fit": 48, "validate": 8, "test": 8}[split]):
            there = [number % 2 == 0, number % 2 == 1 if self.exclusive else number % 3 == 0]
            pixels = rng.normal(50, 10, (1, 16, 16))
            pixels[:, :, ::4] += 90 * there[0]
            pixels[:, ::4] += 90 * there[1]
            truth = {"upright": float(there[0]), "Lying down": float(there[1]), "not asked for": 1.0}
            if self.unknown and number == 1:
                truth["Lying down"] = math.nan
            image = Given(Image(np.clip(pixels, 0, 255).astype(np.uint8), np.eye(4)), ())
            made.append(Case(f"{split}{number}", (image,), Given(Findings(truth), (self.file,)), f"{split}{number}"))
        return made


def classes(folder, **settings):
    options = {"name": "stripes", "classes": CLASSES, **settings}
    layout = options.pop("layout", None) or Stripes(
        folder, bool(options.get("exclusive")), options.pop("unknown", False)
    )
    return ClassificationTask(layout=layout, **options)


def case(truth, images=()):
    return Case("c", tuple(Given(one, ()) for one in images), Given(Findings(truth), ()))


def picture(seed=0, shape=(1, 16, 16)):
    return Image(np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8), np.eye(4))


@pytest.fixture
def task(tmp_path):
    return classes(tmp_path)


# The task


def test_settings_that_cannot_be_meant_are_refused(tmp_path):
    for wrong, complaint in (
        ({"classes": ["a", "a"]}, "different names"),
        ({"classes": []}, "at least one class"),
        ({"classes": ["a"], "exclusive": True}, "at least two classes"),
        ({"classes": ["macro", "b"]}, "would be taken for an average"),
        ({"sets": {"some": ["uprigt"]}}, r"task\.sets\.some names 'uprigt'; did you mean 'upright'"),
        ({"metrics": ["dice"]}, "metric 'dice' does not judge classes"),
        ({"metrics": ["auroc@uprigt"]}, "'auroc@uprigt'; did you mean 'upright'"),
        ({"metrics": ["auroc@macro-some"]}, "got 'some'"),
        ({"metrics": ["auroc@micro", "auroc@micro"]}, "each metric once"),
        ({"metrics": ["top1_accuracy"]}, "needs `exclusive: true`"),
        ({"monitor": "probability"}, "is no score"),
        ({"monitor": "auroc@macro"}, "does not judge classes"),
    ):
        with pytest.raises(UsageError, match=complaint):
            classes(tmp_path, **wrong)
    made = classes(tmp_path, sets={"some": ["upright"]}, metrics="auroc@macro-some")
    assert made.metrics == ["auroc@macro-some"]
    assert made.case_metrics == ["probability", "probability_error"]
    assert made.signature() == "2 classes, each present or absent; some: upright"


def test_answers_are_checked_class_by_class(task):
    one = case({"upright": 1, "Lying down": 0})
    said = task.accept(one, {"Lying down": np.float32(0.25), "upright": 1 + 1e-7})
    assert said == {"upright": 1.0, "Lying down": 0.25}
    assert list(said) == CLASSES
    assert task.accept(one, Findings(said)) == said
    assert task.accept(one, one.target.read(), what="reference") == {"upright": 1, "Lying down": 0}
    for answer, complaint in (
        ("upright", "is str, expected a probability for each class"),
        ({"upright": 1}, "no probability of 'Lying down'"),
        ({"upright": 1, "Lying down": 0, "Lying donw": 0}, "names a class 'Lying donw'; did you mean 'Lying down'"),
        ({"upright": math.nan, "Lying down": 0}, "holds nan for 'upright', expected a probability from 0 to 1"),
        ({"upright": 1.01, "Lying down": 0}, "holds 1.01 for 'upright'"),
        ({"upright": math.inf, "Lying down": 0}, "holds inf"),
        ({"upright": None, "Lying down": 0}, "holds something that is no number"),
    ):
        with pytest.raises(CaseError, match=complaint):
            task.accept(one, answer)


def test_classes_that_exclude_each_other_sum_to_1(tmp_path):
    one = classes(tmp_path, exclusive=True)
    assert one.accept(case({}), {"upright": 0.333, "Lying down": 0.666})
    with pytest.raises(CaseError, match=r"sums to 1\.4 over classes that exclude each other, expected 1; use softmax"):
        one.accept(case({}), {"upright": 0.7, "Lying down": 0.7})
    prompt = one.prompt(case({}), ())
    assert prompt.labels == {1: "upright", 2: "Lying down"}
    assert prompt.options == {"1": "upright", "2": "Lying down"}
    with pytest.raises(CaseError, match="'upright' and 'Lying down' are present; the task is `exclusive`"):
        one.score(case({"upright": 1, "Lying down": 1}), {"upright": 0.5, "Lying down": 0.5})


def test_rows_hold_the_truth_as_their_status(task):
    one = case({"upright": 1, "Lying down": math.nan})
    packed = task.accept(one, {"upright": 0.3, "Lying down": 0.9}).as_record() | {"judged": {}}
    found = {(row.metric, row.label): (row.value, row.status) for row in task.score(one, packed)}
    assert found == {
        ("probability", "upright"): (0.3, "present"),
        ("probability_error", "upright"): (pytest.approx(0.49), "wrong"),
    }
    other = task.score(case({"upright": 0.2, "Lying down": 0.9}), {"upright": 0.3, "Lying down": 0.9})
    assert [(row.label, row.status) for row in other] == [
        ("upright", "absent"),
        ("Lying down", "present"),
        ("upright", "right"),
        ("Lying down", "right"),
    ]


def test_a_failed_case_is_as_wrong_as_can_be(tmp_path):
    one = classes(tmp_path, metrics=["auroc@macro", "exact_match_ratio"])
    found = {
        (row.metric, row.label): (row.value, row.status) for row in one.worst(case({"upright": 1, "Lying down": 0}))
    }
    assert found == {
        ("probability", "upright"): (0.0, "present"),
        ("probability", "Lying down"): (1.0, "absent"),
        ("exact_match_ratio", "all"): (0.0, "failed"),
        ("probability_error", "upright"): (1.0, "failed"),
        ("probability_error", "Lying down"): (1.0, "failed"),
    }
    unread = one.worst(case({"upright": 1}))
    assert unread
    assert all(math.isnan(row.value) and row.status == "failed" for row in unread)


@pytest.mark.parametrize(
    ("truth", "complaint"),
    [
        ({"upright": 1}, "has no class 'Lying down'"),
        ({"upright": 2, "Lying down": 0}, "has 2 for 'upright', expected 0 to 1"),
    ],
)
def test_a_truth_that_does_not_fit_is_told(task, truth, complaint):
    with pytest.raises(CaseError, match=complaint):
        task.score(case(truth), {"upright": 0.5, "Lying down": 0.5})


# Models


def test_the_loss_counts_what_is_known():
    logits = torch.tensor([[0.0, 2.0], [1.0, -1.0]])
    known = torch.tensor([[1.0, math.nan], [0.0, 1.0]])
    by_hand = [math.log(2), math.log(1 + math.e), math.log(1 + math.e)]
    assert float(class_loss(logits, known, exclusive=False)) == pytest.approx(sum(by_hand) / 3)
    assert float(class_loss(logits, torch.full((2, 2), math.nan), exclusive=False)) == 0
    one = torch.tensor([[0.0, 1.0], [math.nan, math.nan]])
    assert float(class_loss(logits, one, exclusive=True)) == pytest.approx(math.log(1 + math.exp(-2)))
    logits.requires_grad_()
    class_loss(logits, known, exclusive=False).backward()
    assert float(logits.grad[0, 1]) == 0


def test_pictures_are_moved_by_what_is_asked_for():
    image = torch.zeros(1, 20, 30)
    image[0, 5, 20] = 1
    still = Moves(degrees=0, shift=0)
    assert torch.allclose(still(image, np.random.default_rng(0)), image, atol=1e-4)
    mirrored = {
        tuple(np.unravel_index(int(Moves(True, 0, 0)(image, np.random.default_rng(seed)).argmax()), (20, 30)))
        for seed in range(8)
    }
    assert mirrored == {(5, 20), (5, 9)}
    turned = Moves(degrees=30, shift=0)(image, np.random.default_rng(3))
    row, column = np.unravel_index(int(turned.argmax()), (20, 30))
    before = math.hypot(5 - 9.5, 20 - 14.5)
    assert math.hypot(row - 9.5, column - 14.5) == pytest.approx(before, abs=1.2)  # turned, in pixels, not sheared
    assert (row, column) != (5, 20)
    volume = Moves(True, 20, 0.1)(torch.rand(2, 6, 7, 8), np.random.default_rng(2))
    assert volume.shape == (2, 6, 7, 8)
    for wrong in ({"degrees": 200}, {"shift": 1}, {"angle": 3}):
        with pytest.raises(UsageError, match=r"model\.augment"):
            Moves.of(wrong)


class Means(torch.nn.Module):
    """Logits of a class each for the left and the right half."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, shown):
        return self.weight * torch.stack([shown[..., :8].mean((1, 2, 3)), shown[..., 8:].mean((1, 2, 3))], 1)


def prepared(task, **settings):
    model = ImageClassifier(network=Means(), size=[16, 16], **settings)
    prepare_model(task, model, task.cases("fit"))
    return model


def test_probabilities_are_sigmoids_or_a_softmax_and_several_images_count_together(tmp_path, task):
    model = prepared(task)
    prompt = task.prompt(case({}), (picture(1), picture(2)))
    (logits,) = model.logits([prompt])
    assert logits.shape == (2, 2)
    (both,) = model.classify([prompt])
    np.testing.assert_allclose(list(both.values()), (1 / (1 + np.exp(-logits))).mean(0))
    assert list(both) == CLASSES
    exclusive = classes(tmp_path, exclusive=True)
    (one,) = model.classify([exclusive.prompt(case({}), (picture(1),))])
    np.testing.assert_allclose(list(one.values()), np.exp(logits[0]) / np.exp(logits[0]).sum())
    largest = prepared(task, several="largest")
    np.testing.assert_allclose(list(largest.classify([prompt])[0].values()), (1 / (1 + np.exp(-logits))).max(0))
    with pytest.raises(CaseError, match=r"do not sum to 1; set model\.several=mean"):
        largest.classify([exclusive.prompt(case({}), prompt.images)])
    assert list(model.classify([task.prompt(case({}), ())])[0].values()) == [0.5, 0.5]


def test_classes_are_found_by_their_names_whatever_their_order(task):
    model = prepared(task, classes=["LYING-DOWN", "Upright", "another"])
    assert model.classes[0] == "LYING-DOWN"
    prompt = task.prompt(case({}), (picture(),))
    model.network.forward = lambda shown: torch.tensor([[1.0, -1.0, 9.0]]).expand(len(shown), 3)
    assert model.classify([prompt])[0] == pytest.approx({"upright": 0.26894, "Lying down": 0.73106}, abs=1e-4)
    lost = Prompt("c", (picture(),), {1: "uprigh"})
    with pytest.raises(CaseError, match="the model has no class 'uprigh'; did you mean 'Upright'"):
        model.classify([lost])


def test_of_classes_that_exclude_each_other_those_that_are_asked_for_sum_to_1(tmp_path):
    exclusive = classes(tmp_path, exclusive=True)
    model = prepared(exclusive, classes=["another", *CLASSES])
    model.network.forward = lambda shown: torch.tensor([[9.0, -1.0, 1.0]]).expand(len(shown), 3)
    (answer,) = model.classify([exclusive.prompt(case({}), (picture(),))])
    assert exclusive.accept(case({}), answer) == pytest.approx({"upright": 0.1192, "Lying down": 0.8808}, abs=1e-4)
    assert list(model.classify([exclusive.prompt(case({}), ())])[0].values()) == [0.5, 0.5]


def test_names_of_classes_are_read_from_checkpoints_of_any_form(tmp_path):
    file = tmp_path / "a.pt"
    for zipped in (True, False):
        torch.save({"weight": torch.ones(1)}, file, _use_new_zipfile_serialization=zipped)
        assert stored_classes(file) == []
    torch.save({"names": torch.tensor([91, 98], dtype=torch.uint8)}, file)
    with pytest.raises(UserError, match=r"a\.pt: its names of classes cannot be read; fit again"):
        stored_classes(file)
    file.write_text("hello")
    with pytest.raises(UserError, match=r"a\.pt: cannot be loaded as weights"):
        stored_classes(file)


def test_what_a_classifier_cannot_be_shown_is_told(task):
    model = prepared(task)
    for image, complaint in (
        (picture(shape=(3, 16, 16)), "has 3 channels, the network was made for 1"),
        (picture(shape=(1, 4, 16, 16)), r"has not 2 axes, as model\.size says"),
    ):
        with pytest.raises(CaseError, match=complaint):
            model.classify([task.prompt(case({}), (image,))])
    for settings, complaint in (
        ({"size": [16]}, r"model\.size"),
        ({"several": "median"}, r"got 'median'"),
        ({"batch": 0}, r"model\.batch"),
        ({"classes": ["a", "A"]}, "names 'A' twice"),
    ):
        with pytest.raises(UsageError, match=complaint):
            ImageClassifier(**{"network": NETWORK, "size": [16, 16], **settings})
    with pytest.raises(UserError, match="has no weights"):
        ImageClassifier(network=NETWORK, size=[16, 16]).check_ready()
    with pytest.raises(UserError, match=r"call prepare\(\)"):
        ImageClassifier(network=NETWORK, size=[16, 16]).classify([task.prompt(case({}), (picture(),))])


@pytest.fixture
def train(tmp_path):
    def run(task, model, epochs=6, lr=0.03, folder="fit"):
        pl.seed_everything(0, verbose=False)
        settings = Settings(
            runs=tmp_path / "runs",
            run=tmp_path / folder,
            trainer=partial(
                pl.Trainer,
                accelerator="cpu",
                devices=1,
                enable_progress_bar=False,
                max_epochs=epochs,
                log_every_n_steps=1,
            ),
            config={"trainer": {"max_epochs": epochs}, "task": {}},
            batch_size=4,
        )
        loggers = lambda where: [CSVLogger(where, name="logs", version="csv")]  # noqa: E731
        return fit(task, ModelSpec("Net", type(model), {}, load=lambda: model), Recipe(lr=lr), settings, loggers)

    return run


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_fitted_classifier_is_right_and_its_folder_is_a_checkpoint(train, tmp_path, exclusive):
    task = classes(tmp_path, exclusive=exclusive, unknown=True)
    made = ImageClassifier(network=NETWORK, size=[16, 16], augment={"degrees": 3, "shift": 0.02})
    folder = train(task, made)
    assert json.loads((folder / "manifest.json").read_text())["best_score"] < 0.1
    assert stored_classes(folder) == CLASSES
    model = ImageClassifier(network=NETWORK, size=[16, 16], checkpoint=str(folder))
    model.check_ready()
    prepare_model(classes(tmp_path, classes=CLASSES[::-1]), model, task.cases("test"))
    assert model.classes == CLASSES  # those of the checkpoint, whatever the order of the task
    cases = task.cases("test")
    answers = model.classify([task.prompt(one, task.read_images(one)) for one in cases])
    right = [
        (answer[name] > 0.5) == (one.target.read().values[name] == 1)
        for one, answer in zip(cases, answers, strict=True)
        for name in CLASSES
    ]
    assert np.mean(right) >= 0.8
    assert "val/probability_error" in (folder / "logs/csv/metrics.csv").read_text()


def test_timm_is_fitted_and_found_again(train, task):
    pytest.importorskip("timm")
    from medimg_eval.models.classification.timm import TimmClassifier

    small = {"preprocess": {"input_size": [3, 32, 32]}, "augment": {"flip": False}}
    folder = train(task, TimmClassifier("test_efficientnet", **small), epochs=1, lr=0.003)
    model = TimmClassifier("test_efficientnet", str(folder), **small)
    model.check_ready()
    assert model.classes == CLASSES
    cases = task.cases("test")
    prompts = [task.prompt(one, task.read_images(one)) for one in cases]
    prepare_model(task, model, cases)
    errors = [
        row.value for one, said in zip(cases, model.classify(prompts), strict=True) for row in task.score(one, said)
    ]
    assert all(0 <= value <= 1 for value in errors)
    again = TimmClassifier("test_efficientnet", weights=str(folder), classes=["one", "two", "three"], **small)
    again.load()  # the tower without its head
    assert again.network.num_classes == 3
    stem = next(iter(model.network.state_dict()))
    assert torch.equal(again.network.state_dict()[stem], model.network.state_dict()[stem])
    with pytest.raises(UserError, match="or train it first with `fit`"):
        TimmClassifier("test_efficientnet").check_ready()
    with pytest.raises(UsageError, match=r"model\.new_head is for models on the hub"):
        TimmClassifier("test_efficientnet", new_head=True)
    with pytest.raises(UsageError, match=r"model\.weights is set beside a model that brings its own"):
        TimmClassifier("hf-hub:a/b", weights="x.pt")


def test_a_head_on_open_clips_tower_is_fitted_and_zero_shot_needs_none(train, task, tmp_path):
    library = pytest.importorskip("open_clip")
    from medimg_eval.models.classification.open_clip import OpenClipClassifier
    from medimg_eval.models.vision_language.open_clip import OpenClip

    sizes = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    described = {"model_cfg": sizes, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    clip = tmp_path / "clip"
    clip.mkdir()
    (clip / "open_clip_config.json").write_text(json.dumps(described))
    known = tmp_path / "tiny-clip-classes.json"
    known.write_text(json.dumps(sizes))
    library.add_model_config(known)
    torch.manual_seed(0)
    torch.save(library.create_model("tiny-clip-classes").state_dict(), clip / "open_clip_pytorch_model.bin")

    with pytest.raises(UserError, match="has no head"):
        OpenClipClassifier(weights=str(clip)).check_ready()
    made = OpenClipClassifier(weights=str(clip))
    folder = train(task, made, epochs=3)
    assert not any(one.requires_grad for one in made.network.tower.parameters())
    model = OpenClipClassifier(weights=str(clip), checkpoint=str(folder))
    model.check_ready()
    prepare_model(task, model, task.cases("test"))
    assert model.classes == CLASSES
    assert float(model.network.head.weight.detach().abs().sum()) > 0
    prompt = task.prompt(case({}), (picture(),))
    found = task.accept(case({}), model.classify([prompt])[0])
    assert found != pytest.approx(dict.fromkeys(CLASSES, 0.5))

    zero_shot = OpenClip(checkpoint=str(clip), templates=["{option}"])
    exclusive = classes(tmp_path, exclusive=True).prompt(case({}), (picture(),))
    similar = np.array(list(zero_shot.choose([exclusive])[0].values()))
    weights = np.exp(float(zero_shot.clip.logit_scale.detach().exp()) * similar)
    (said,) = zero_shot.classify([exclusive])
    assert list(said) == CLASSES
    np.testing.assert_allclose(list(said.values()), weights / weights.sum(), rtol=1e-4)
    (each,) = zero_shot.classify([prompt])
    against = OpenClip(checkpoint=str(clip), templates=["{option}"])
    pair = Prompt("c", prompt.images, options={"A": "upright", "B": "no upright"})
    gap = against.choose([pair])[0]
    scale = float(against.clip.logit_scale.detach().exp())
    assert each["upright"] == pytest.approx(1 / (1 + math.exp(-scale * (gap["A"] - gap["B"]))), rel=1e-4)
    assert list(zero_shot.classify([task.prompt(case({}), ())])[0].values()) == [0.5, 0.5]
    with pytest.raises(UsageError, match=r"model\.absent"):
        OpenClip(checkpoint=str(clip), absent=["none"])


def test_volumes_are_scaled_and_shown_whole(tmp_path):
    task = classes(tmp_path)
    model = ImageClassifier(network=NETWORK, size=[8, 12, 10])
    model.prepare(task.labels, lambda: picture(shape=(2, 16, 6, 10)))
    shown = model.tensor(picture(1, (2, 16, 6, 10)))
    assert shown.shape == (2, 8, 12, 10)
    np.testing.assert_allclose(shown.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(shown.std((1, 2, 3), correction=0), 1, atol=1e-4)
    assert torch.isfinite(model.tensor(Image(np.zeros((2, 4, 4, 4), np.uint8), np.eye(4)))).all()
    assert model.one_pass().shape == (1, 2, 8, 12, 10)
    assert model.network(torch.zeros(model.one_pass().shape)).shape == (1, 2)


def test_the_frequency_of_classes_is_an_answer(tmp_path):
    task = classes(tmp_path, unknown=True)
    model = ClassFrequency()
    prepare_model(task, model, task.cases("test"))
    (said,) = model.classify([task.prompt(case({}), ())])
    assert said == {"upright": 0.5, "Lying down": pytest.approx(16 / 47)}
    exclusive = classes(tmp_path, exclusive=True)
    prepare_model(exclusive, model, exclusive.cases("test"))
    assert exclusive.accept(case({}), model.classify([exclusive.prompt(case({}), ())])[0])
    with pytest.raises(CaseError, match="knows class 'nobody'"):
        model.classify([Prompt("c", (), {1: "nobody"})])
    with pytest.raises(UserError, match="none of the cases says"):
        ClassFrequency().study([])


def test_probabilities_of_another_program_are_read_from_its_table(tmp_path, task):
    table = tmp_path / "said.csv"
    table.write_text("case,upright,p_lying\na,0.25,1.0\nb,-1.5,0\nc,,0\n")
    columns = {"upright": "upright", "Lying down": "p_lying"}
    model = PrecomputedClasses(str(table), columns)
    prompt = lambda name: Prompt(name, (), task.labels)  # noqa: E731
    assert model.classify([prompt("a")]) == [{"upright": 0.25, "Lying down": 1.0}]
    with pytest.raises(CaseError, match="case 'c' has no number for 'upright'"):
        model.classify([prompt("c")])
    with pytest.raises(CaseError, match="has no row of case 'd'"):
        model.classify([prompt("d")])
    (found,) = PrecomputedClasses(str(table), columns, logits=True).classify([prompt("b")])
    assert found == pytest.approx({"upright": 1 / (1 + math.exp(1.5)), "Lying down": 0.5})
    options = {"1": "upright", "2": "Lying down"}
    (either,) = PrecomputedClasses(str(table), columns, logits=True).classify(
        [Prompt("b", (), task.labels, options=options)]
    )
    assert sum(either.values()) == pytest.approx(1)


# From start to table


def test_the_interval_of_an_auroc_is_that_of_patients_drawn_again(tmp_path):
    from medimg_eval.metrics import parse
    from medimg_eval.results.runs.external import load_scores
    from medimg_eval.results.runs.subsets import Part
    from medimg_eval.results.statistics.summaries import rows_of, summarise

    rng = np.random.default_rng(0)
    lines = ["case,patient,model,metric,label,value,status"]
    for number in range(60):
        for name in "ab":
            there = rng.random() < 0.4
            said = 0.3 * there + 0.7 * rng.random()
            status = "present" if there else "absent"
            lines.append(f"c{number:02d},p{number // 2:02d},m,probability,{name},{said:.1f},{status}")
    (tmp_path / "given.csv").write_text("\n".join(lines) + "\n")
    (run,) = load_scores(tmp_path / "given.csv")
    part = Part.whole(run)
    found = summarise("auroc@macro", part, resamples=1000, level=0.95, seed=0)
    whole = rows_of(part, ("probability",))
    patients = [np.flatnonzero(whole.case // 2 == number) for number in range(30)]
    judge, drawn = parse("auroc@macro")[0].function, np.random.default_rng(1)
    values = [
        judge(whole.where(np.concatenate([patients[one] for one in drawn.integers(0, 30, 30)])), "macro")
        for _ in range(1000)
    ]
    assert found.mean == judge(whole, "macro")
    assert found.n_clusters == 30
    np.testing.assert_allclose((found.low, found.high), np.quantile(values, [0.025, 0.975]), atol=0.015)


def test_the_phantoms_findings_are_those_that_were_drawn(tmp_path):
    cases = ChestFindings(root=str(tmp_path), count=6).cases("fit")
    assert cases
    values = cases[0].target.read().values
    assert len(values) == 8
    assert set(values.values()) <= {0.0, 1.0}
    assert cases[0].question is None
    assert cases[0].target.geometry().shape == cases[0].images[0].read().array.shape[1:]
    patients = [
        {one.patient for one in ChestFindings(root=str(tmp_path), count=6).cases(split)} for split in ("fit", "test")
    ]
    assert not patients[0] & patients[1]


def test_a_run_from_training_to_its_table(program, tmp_path):
    small = ["task=phantom_findings", "task.layout.count=12", "~task.expected", f"task.layout.root={tmp_path}"]
    tiny = [
        "model=image_classifier",
        "model.size=[24,24]",
        "model.network.block_config=[1,1]",
        "trainer.accelerator=cpu",
    ]
    options = ["batch_size=4", "trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "run=fitted"]
    fitted = program("fit", *small, *tiny, *options)
    assert fitted.returncode == 0, fitted.stderr
    tested = program("test", *small, *tiny, "model.checkpoint=fitted", "runs=tested", "baselines=true")
    assert tested.returncode == 0, tested.stderr
    (often,) = [json.loads(file.read_text()) for file in tmp_path.glob("tested/*/Class_frequency-*/manifest.json")]
    assert often["baseline"] is True
    printed = program("table", "runs=tested", "metrics=[auroc@macro,f1_score@micro]", "by=label").stdout
    assert "pneumothorax" in printed
    assert "undefined, and in no average:" in printed
    assert "(never present)" in printed
