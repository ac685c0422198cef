"""Classifiers of timm as choosers, on its smallest networks with random weights."""

import json

import numpy as np
import pytest
import torch

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures.reading import as_picture
from medimg_eval.models.classification.timm import TimmClassifier
from medimg_eval.question import Message

timm = pytest.importorskip("timm")

CLASSES = ["Normal", "pleural effusion", "Pneumonia"]
SMALL = {"input_size": [3, 32, 32], "mean": [0.5] * 3, "std": [0.25] * 3}
OPTIONS = {"A": "pneumonia", "B": "Pleural-Effusion"}


def network():
    torch.manual_seed(0)
    return timm.create_model("test_efficientnet", num_classes=3).eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("timm") / "weights.pt"
    torch.save({"state_dict": {f"model.{key}": value for key, value in network().state_dict().items()}}, path)
    return path


@pytest.fixture(scope="module")
def classifier(weights):
    model = TimmClassifier("test_efficientnet", str(weights), CLASSES, SMALL)
    model.check_ready()
    assert model.one_pass() is None
    model.prepare({}, picture)
    return model


def picture(seed=0, channels=3):
    pixels = np.random.default_rng(seed).integers(0, 256, (channels, 40, 36))
    return Image(pixels.astype(np.uint8), np.eye(4))


def prompt(*images, options=OPTIONS):
    return Prompt("c", images, messages=(Message("user", (*range(len(images)), "What is it?")),), options=options)


def by_hand(image):
    """Probabilities by the library alone."""
    own = network()
    settings = {**timm.data.resolve_model_data_config(own), **SMALL}
    shown = timm.data.create_transform(**settings, is_training=False)(as_picture(image))[None]
    with torch.inference_mode():
        return own(shown).double().softmax(1).numpy()[0]


def test_an_option_counts_the_log_probability_of_the_class_it_names(classifier):
    (found,) = classifier.choose([prompt(picture())])
    expected = by_hand(picture())
    assert list(found) == ["A", "B"]
    np.testing.assert_allclose(list(found.values()), np.log(expected[[2, 1]]), atol=1e-5)
    run, shape = classifier.one_pass()
    assert shape == (1, 3, 32, 32)
    assert run(torch.zeros(shape)).shape == (1, 3)


def test_probabilities_of_several_images_are_averaged(classifier):
    one, both = classifier.classify([prompt(picture(1, 1)), prompt(picture(1, 1), picture(2))])
    assert list(one) == CLASSES
    assert sum(both.values()) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(list(one.values()), by_hand(picture(1, 1)), atol=1e-5)
    expected = (by_hand(picture(1, 1)) + by_hand(picture(2))) / 2
    np.testing.assert_allclose(list(both.values()), expected, atol=1e-5)
    assert classifier.classify([]) == classifier.choose([]) == []


def test_answers_do_not_depend_on_the_batch(classifier):
    prompts = [prompt(*(picture(seed + step) for step in range(1 + seed % 2))) for seed in range(5)]
    whole = classifier.choose(prompts)
    classifier.batch = 2
    for one, other in zip(whole, [classifier.choose([each])[0] for each in prompts], strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-4)
    classifier.batch = 64


def test_an_option_that_is_no_class_is_named(classifier):
    complaint = "case 'c': option 'pneumonitis' is no class of the model; did you mean 'Pneumonia'"
    with pytest.raises(CaseError, match=complaint):
        classifier.choose([prompt(picture(), options={"A": "normal", "B": "pneumonitis"})])


def test_without_an_image_there_is_no_preference(classifier):
    shown, blind = classifier.choose([prompt(picture()), prompt()])
    assert list(blind.values()) == pytest.approx([np.log(1 / 3)] * 2, abs=1e-5)
    assert len(set(blind.values())) == 1
    assert shown == pytest.approx(classifier.choose([prompt(picture())])[0], abs=1e-5)


def test_a_folder_brings_its_weights_and_the_names_of_its_classes(classifier, tmp_path):
    from safetensors.torch import save_file

    described = {"architecture": "test_efficientnet", "num_classes": 3, "label_names": CLASSES, "pretrained_cfg": SMALL}
    (tmp_path / "config.json").write_text(json.dumps(described))
    save_file(network().state_dict(), tmp_path / "model.safetensors")
    model = TimmClassifier(checkpoint=str(tmp_path))
    model.check_ready()
    assert model.classes == []
    (found,) = model.choose([prompt(picture())])
    assert model.classes == CLASSES
    assert model.one_pass().shape == (1, 3, 32, 32)
    expected = TimmClassifier("test_efficientnet", str(tmp_path / "model.safetensors"), CLASSES, SMALL)
    other = classifier.choose([prompt(picture())])[0]
    assert list(expected.choose([prompt(picture())])[0].values()) == pytest.approx(list(other.values()), abs=1e-5)
    assert set(found) == {"A", "B"}
    with pytest.raises(UserError, match="has 3 classes, model.classes names 2"):
        TimmClassifier(checkpoint=str(tmp_path), classes=CLASSES[:2]).prepare({}, picture)
    del described["label_names"]
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="names no classes; set model.classes to its 3 names"):
        TimmClassifier(checkpoint=str(tmp_path)).prepare({}, picture)


def test_what_is_missing_is_said_before_anything_is_loaded(weights):
    for settings, complaint in (
        ({"backbone": "resnet50"}, "has no weights: set model.checkpoint"),
        ({"backbone": "resnet50", "checkpoint": str(weights)}, "set model.classes to the names"),
    ):
        with pytest.raises(UserError, match=complaint):
            TimmClassifier(**settings).check_ready()
    TimmClassifier("hf-hub:owner/name").check_ready()
    for settings, complaint in (
        ({}, r"expected model\.backbone"),
        ({"backbone": "hf-hub:a/b", "checkpoint": "x.pt"}, "brings its own weights"),
        ({"backbone": "resnet50", "classes": ["CT", "ct"]}, "names 'ct' twice"),
    ):
        with pytest.raises(UsageError, match=complaint):
            TimmClassifier(**settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"backbone": "resnet5O", "classes": CLASSES}, "timm has no 'resnet5O'; did you mean 'resnet5"),
        ({"backbone": "test_efficientnet", "classes": CLASSES, "preprocess": {"sice": 3}}, "model.preprocess"),
        ({"backbone": "test_efficientnet", "checkpoint": "{weights}", "classes": ["a", "b"]}, "has shape"),
        (
            {"backbone": "test_resnet", "checkpoint": "none.safetensors", "classes": CLASSES},
            "no such checkpoint",
        ),
        ({"checkpoint": "{weights}"}, "cannot be loaded as a model of timm"),
    ],
)
def test_models_that_cannot_be_loaded_are_named(settings, complaint, weights):
    if "checkpoint" in settings:
        settings = {**settings, "checkpoint": settings["checkpoint"].replace("{weights}", str(weights))}
    with pytest.raises(UserError) as caught:
        TimmClassifier(**settings).prepare({}, picture)
    assert complaint in str(caught.value)
