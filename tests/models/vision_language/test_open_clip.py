"""CLIP models of open_clip, on a tiny one with random weights and the tokenizer that the library brings."""

import json

import numpy as np
import pytest
import torch

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures.reading import as_picture
from medimg_eval.models.base import Chooser
from medimg_eval.models.vision_language.open_clip import OpenClip
from medimg_eval.question import Message

library = pytest.importorskip("open_clip")

CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
OPTIONS = {"A": "liver", "B": "spleen", "C": "a left kidney"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as a model on the hub has it; its architecture is also known by name, as `tiny-clip`."""
    path = tmp_path_factory.mktemp("clip")
    known = path / "tiny-clip.json"
    known.write_text(json.dumps(CONFIG))
    library.add_model_config(known)
    described = {"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (path / "open_clip_config.json").write_text(json.dumps(described))
    torch.manual_seed(0)
    torch.save(library.create_model("tiny-clip").state_dict(), path / "open_clip_pytorch_model.bin")
    return path


@pytest.fixture(scope="module")
def clip(folder):
    model = OpenClip(checkpoint=str(folder))
    model.check_ready()
    model.prepare({}, picture)
    return model


def picture(seed=0, channels=3):
    pixels = np.random.default_rng(seed).integers(0, 256, (channels, 20, 24))
    return Image(pixels.astype(np.uint8), np.eye(4))


def prompt(*images, options=OPTIONS, text="Which organ is shown?\nA. liver\nB. spleen\nC. a left kidney"):
    parts = (*range(len(images)), text)
    question = text.partition("\n")[0]
    return Prompt("c", images, messages=(Message("user", parts),), options=options, question=question)


def by_hand(folder, image, texts):
    """Embeddings by the library alone, of one image and of texts."""
    model, preprocess = library.create_model_from_pretrained(f"local-dir:{folder}")
    tokens = library.get_tokenizer(f"local-dir:{folder}")(texts)
    shown = preprocess(as_picture(image))[None]
    with torch.inference_mode():
        seen, read = model.encode_image(shown, normalize=True), model.encode_text(tokens, normalize=True)
    return seen.numpy()[0], read.numpy()


def test_an_options_number_is_the_cosine_of_image_and_text(clip, folder):
    clip.templates = ("{option}",)
    (found,) = clip.choose([prompt(picture())])
    image, texts = by_hand(folder, picture(), list(OPTIONS.values()))
    assert list(found) == list(OPTIONS)
    np.testing.assert_allclose(list(found.values()), texts @ image, atol=1e-5)
    assert len({round(number, 4) for number in found.values()}) == 3


def test_templates_are_ensembled_as_the_librarys_zero_shot_classifier_does(clip, folder):
    clip.templates = ("{option}", "a photo of {option}.", "CT of the {option}")
    (found,) = clip.choose([prompt(picture(1))])
    model, _ = library.create_model_from_pretrained(f"local-dir:{folder}")
    written = [template.replace("{option}", "{}") for template in clip.templates]
    tokenizer = library.get_tokenizer(f"local-dir:{folder}")
    weights = library.build_zero_shot_classifier(model, tokenizer, list(OPTIONS.values()), written)
    image, _ = by_hand(folder, picture(1), ["x"])
    np.testing.assert_allclose(list(found.values()), image @ weights.numpy(), atol=1e-5)


def test_the_question_can_stand_in_a_template_without_its_options(clip, folder):
    clip.templates = ("{question} {option}",)
    (found,) = clip.choose([prompt(picture())])
    image, texts = by_hand(folder, picture(), [f"Which organ is shown? {option}" for option in OPTIONS.values()])
    np.testing.assert_allclose(list(found.values()), texts @ image, atol=1e-5)
    (braces,) = clip.choose([prompt(picture(), text="Which {option}?", options={"A": "{question}", "B": "x"})])
    _, texts = by_hand(folder, picture(), ["Which {option}? {question}", "Which {option}? x"])
    np.testing.assert_allclose(list(braces.values()), texts @ image, atol=1e-5)


def test_several_images_are_averaged_or_the_most_similar_counts(clip):
    clip.templates = ("{option}",)
    one, two = (np.array([*clip.choose([prompt(picture(seed))])[0].values()]) for seed in (1, 2))
    both = [prompt(picture(1), picture(2))]
    mean = clip.embed_images([picture(1), picture(2)]).mean(0)
    expected = clip.embed_texts(list(OPTIONS.values())) @ (mean / np.linalg.norm(mean))
    np.testing.assert_allclose([*clip.choose(both)[0].values()], expected, atol=1e-5)
    clip.several = "largest"
    np.testing.assert_allclose([*clip.choose(both)[0].values()], np.maximum(one, two), atol=1e-5)
    clip.several = "mean"


def test_images_of_exemplars_do_not_count(clip):
    alone = clip.choose([prompt(picture(2))])
    turns = (
        Message("user", (0, "Which organ?")),
        Message("assistant", ("liver",)),
        Message("user", (1, prompt().messages[0].text)),
    )
    assert clip.choose([Prompt("c", (picture(1), picture(2)), messages=turns, options=OPTIONS)]) == alone


def test_each_distinct_text_is_computed_once(clip, monkeypatch):
    seen = []
    tokenize = clip._tokenize
    monkeypatch.setattr(clip, "_tokenize", lambda texts: seen.extend(texts) or tokenize(texts))
    monkeypatch.setattr(clip, "_texts", {})
    clip.templates = ("{option}", "a photo of {option}")
    clip.choose([prompt(picture(seed)) for seed in range(3)])
    clip.choose([prompt(picture(4), options={"X": "liver", "Y": "air"})])
    assert len(seen) == len(set(seen)) == 2 * 4
    monkeypatch.setattr("medimg_eval.models.vision_language.open_clip.KEPT", 3)
    first = clip.choose([prompt(picture(4), options={"X": "bone", "Y": "air"})])
    assert len(clip._texts) == 3
    assert clip.choose([prompt(picture(4), options={"X": "bone", "Y": "air"})])[0] == pytest.approx(first[0], abs=1e-5)


def test_answers_do_not_depend_on_the_batch(clip):
    prompts = [prompt(*(picture(seed + step) for step in range(1 + seed % 2))) for seed in range(5)]
    whole = clip.choose(prompts)
    clip.batch = 2
    apart = [clip.choose([one])[0] for one in prompts]
    clip.batch = 64
    for one, other in zip(whole, apart, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-5)
    assert clip.choose([]) == []


def test_embeddings_of_images_and_texts_have_length_one(clip, folder):
    worded = Prompt("t", (), messages=(Message("user", ("a liver",)),))
    found = clip.embed([prompt(picture()), worded, prompt(picture(1), picture(2))])
    image, texts = by_hand(folder, picture(), ["a liver"])
    np.testing.assert_allclose(found[0], image, atol=1e-5)
    np.testing.assert_allclose(found[1], texts[0], atol=1e-5)
    assert [vector.shape for vector in found] == [(16,)] * 3
    np.testing.assert_allclose([np.linalg.norm(vector) for vector in found], 1, atol=1e-5)
    assert clip.embed([]) == []


def test_without_an_image_there_is_no_preference(clip):
    clip.templates = ("{option}",)
    first, blind, last = clip.choose([prompt(picture()), prompt(), prompt(picture(1))])
    assert blind == dict.fromkeys(OPTIONS, 0.0)
    assert first == pytest.approx(clip.choose([prompt(picture())])[0], abs=1e-5)
    assert last == pytest.approx(clip.choose([prompt(picture(1))])[0], abs=1e-5)
    assert clip.choose([prompt()]) == [blind]


def test_a_volume_is_no_picture(clip):
    with pytest.raises(CaseError, match="is no picture"):
        clip.choose([prompt(Image(np.zeros((1, 4, 4, 4), np.uint8), np.eye(4)))])


def test_weights_of_a_file_are_those_of_a_folder(clip, folder):
    model = OpenClip("tiny-clip", checkpoint=str(folder / "open_clip_pytorch_model.bin")).eval()
    model.check_ready()
    assert model.one_pass() is None
    np.testing.assert_allclose(model.embed_texts(["a liver"]), clip.embed_texts(["a liver"]), atol=1e-5)
    run, shape = model.one_pass()
    assert shape == (1, 3, 16, 16)
    assert run(torch.zeros(shape)).shape == (1, 16)
    assert isinstance(model, Chooser)
    assert not model.clip.training


def test_a_model_without_weights_is_not_ready(caplog):
    model = OpenClip("tiny-clip")
    with pytest.raises(UserError, match="model tiny-clip has no weights: set model.pretrained"):
        model.check_ready()
    OpenClip("hf-hub:owner/name").check_ready()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "expected a model on the hub alone"),
        ({"pretrained": "openai"}, "expected a model on the hub alone"),
        ({"model_name": "hf-hub:a/b", "pretrained": "openai"}, "expected a model on the hub alone"),
        ({"model_name": "hf-hub:a/b", "checkpoint": "x.pt"}, "expected a model on the hub alone"),
        ({"model_name": "RN50", "pretrained": "openai", "checkpoint": "x.pt"}, "expected a model on the hub alone"),
        ({"model_name": "RN50", "templates": ["a photo"]}, "expected texts with {option}"),
        ({"model_name": "RN50", "templates": ["{option} {organ}"]}, "expected texts with {option}"),
        ({"model_name": "RN50", "templates": []}, "expected texts with {option}"),
        ({"model_name": "RN50", "several": "mesn"}, "did you mean 'mean'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_anything_is_loaded(settings, complaint):
    with pytest.raises(UsageError) as caught:
        OpenClip(**settings)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"model_name": "ViT-B-33"}, "open_clip has no 'ViT-B-33'; did you mean 'ViT-B-32'?"),
        ({"model_name": "ViT-B/32", "pretrained": "laion2b"}, "has no weights 'laion2b' for ViT-B-32"),
        ({"model_name": "tiny-clip", "checkpoint": "{root}/none.pt"}, "none.pt: no such file or folder"),
        ({"checkpoint": "{root}/open_clip_pytorch_model.bin"}, "is no folder with an open_clip_config.json"),
        (
            {"model_name": "ViT-S-32", "checkpoint": "{root}/open_clip_pytorch_model.bin"},
            "cannot be loaded by open_clip",
        ),
    ],
)
def test_models_that_cannot_be_loaded_are_named(settings, complaint, folder):
    model = OpenClip(**{key: value.replace("{root}", str(folder)) for key, value in settings.items()})
    with pytest.raises(UserError) as caught:
        model.prepare({}, picture)
    assert complaint in str(caught.value)


def test_a_folder_or_hub_model_without_weights_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG}))
    with pytest.raises(UserError, match="cannot be loaded by open_clip"):
        OpenClip(checkpoint=str(tmp_path)).prepare({}, picture)

    def offline(*args, **kwargs):
        raise OSError("no connection")

    monkeypatch.setattr("open_clip.factory.download_pretrained_from_hf", offline)
    with pytest.raises(UserError, match="hf-hub:owner/name: cannot be loaded by open_clip .*no connection"):
        OpenClip("hf-hub:owner/name").prepare({}, picture)


def test_merged_weights_read_texts_anew(folder, tmp_path):
    from medimg_eval.models import MergedClassifier

    torch.manual_seed(5)
    torch.save(library.create_model("tiny-clip").state_dict(), tmp_path / "tuned.bin")
    files = (folder / "open_clip_pytorch_model.bin", tmp_path / "tuned.bin")
    models = [OpenClip("tiny-clip", checkpoint=str(path)) for path in files]
    labels = dict(enumerate(OPTIONS.values(), 1))
    asked = [Prompt("c", (picture(),), labels, options={str(key): name for key, name in labels.items()})]
    merged = MergedClassifier(*models, rule="fixed")
    merged.prepare(labels, picture)
    alone = [model.classify(asked)[0] for model in models]
    for share, expected in ((0.5, None), (1, alone[0]), (0, alone[1])):
        merged.share = share
        (answer,) = merged.classify(asked)
        assert expected is None or answer == pytest.approx(expected, abs=1e-5)
    assert alone[0] != pytest.approx(alone[1], abs=1e-5)
