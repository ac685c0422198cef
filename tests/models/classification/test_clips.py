"""Clips by video networks: tiny random ones of transformers and torchvision, what they are shown, and fitting."""

import numpy as np
import pytest

from medimg_eval.case import Findings, Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
LABELS = {1: "grasp", 2: "release"}


def clip(value=0, frames=20, rows=24, columns=40):
    array = np.full((3, frames, rows, columns), value, np.uint8)
    array[:, :, :, 0] = 255  # outside of the middle square
    return Image(array, np.eye(4), units="pixel")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A VideoMAE of two layers, with four frames of 16 by 16, and classes of its own."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("videomae")
    config = transformers.VideoMAEConfig(
        image_size=16, patch_size=8, num_frames=4, tubelet_size=2, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=8, id2label={0: "release", 1: "grasp"},
        label2id={"release": 0, "grasp": 1},
    )  # fmt: skip
    transformers.VideoMAEForVideoClassification(config).save_pretrained(folder)
    return folder


def prompt(image):
    return Prompt("c", (image,), LABELS, options={str(n): name for n, name in LABELS.items()})


def test_an_encoder_is_asked_for_its_own_classes_and_shown_its_own_frames(encoder):
    from medimg_eval.models import ClipClassifier

    model = ClipClassifier(encoder=str(encoder))
    model.check_ready()
    model.prepare(LABELS, clip)
    assert model.classes == ["release", "grasp"]
    shown = model.tensor(clip(128))
    assert shown.shape == (3, 4, 16, 16)
    expected = [(128 / 255 - mean) / deviation for mean, deviation in zip(*model._colours, strict=True)]
    assert shown.mean((1, 2, 3)).tolist() == pytest.approx(expected, abs=1e-5)  # the white column is cut off
    (answer,) = model.classify([prompt(clip(60))])
    with torch.no_grad():
        logits = model.network.inner(pixel_values=model.tensor(clip(60))[None].movedim(1, 2)).logits[0]
    wanted = dict(zip(("release", "grasp"), logits.softmax(0).tolist(), strict=True))
    assert answer == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(UserError, match=r"has no class 'transport'.*new_head=true and fit"):
        ClipClassifier(encoder=str(encoder)).prepare({1: "transport"}, clip)


def test_frames_are_at_even_distances(encoder):
    from medimg_eval.models import ClipClassifier

    model = ClipClassifier(encoder=str(encoder))
    model.prepare(LABELS, clip)
    numbered = np.broadcast_to(np.arange(10, dtype=np.uint8)[None, :, None, None], (3, 10, 16, 16))
    mean, deviation = model._colours
    shown = model.tensor(Image(np.array(numbered), np.eye(4)))[0, :, 0, 0] * deviation[0] + mean[0]
    assert (shown * 255).round().tolist() == [0, 3, 6, 9]
    with pytest.raises(CaseError, match="expected a clip"):
        model.tensor(Image(np.zeros((3, 8, 8), np.uint8), np.eye(4)))


def test_a_new_head_learns_the_classes_of_a_task(encoder):
    from medimg_eval.models import ClipClassifier

    model = ClipClassifier(encoder=str(encoder), new_head=True)
    with pytest.raises(UserError, match="fit the model first"):
        model.check_ready()
    model.prepare({1: "a", 2: "b", 3: "c"}, clip)
    truth = Findings({"a": 1.0, "b": 0.0, "c": 0.0})
    asked = Prompt("c", (clip(9),), {1: "a", 2: "b", 3: "c"}, options={"1": "a", "2": "b", "3": "c"})
    (sample,) = model.training_samples(asked, truth, asked.labels, seed=0)
    batch = {name: value[None] for name, value in sample.items()}
    before = model.training_loss(batch)
    before.backward()
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.sub_(0.1 * weight.grad)
    assert model.training_loss(batch) < before


def test_v_jepa_2_is_asked_for_its_own_classes(tmp_path):
    from medimg_eval.models import ClipClassifier

    transformers = pytest.importorskip("transformers")
    names = {0: "release", 1: "grasp"}
    config = transformers.VJEPA2Config(
        patch_size=8, crop_size=16, frames_per_clip=4, tubelet_size=2, hidden_size=12, num_attention_heads=2,
        num_hidden_layers=1, mlp_ratio=2, pred_hidden_size=12, pred_num_attention_heads=2, pred_num_hidden_layers=1,
        pred_num_mask_tokens=1, num_pooler_layers=1, id2label=names, label2id={"release": 0, "grasp": 1},
    )  # fmt: skip
    network = transformers.VJEPA2ForVideoClassification(config).eval()
    network.save_pretrained(tmp_path)
    model = ClipClassifier(encoder=str(tmp_path))
    model.prepare(LABELS, clip)
    assert model.classes == ["release", "grasp"]
    shown = model.tensor(clip(60))
    assert shown.shape == (3, 4, 16, 16)
    (answer,) = model.classify([prompt(clip(60))])
    with torch.no_grad():
        logits = network(pixel_values_videos=shown[None].movedim(1, 2)).logits[0]
    assert answer == pytest.approx(dict(zip(model.classes, logits.softmax(0).tolist(), strict=True)), abs=1e-5)


def test_networks_of_torchvision():
    pytest.importorskip("torchvision")
    from medimg_eval.models import ClipClassifier

    model = ClipClassifier("r3d_18", frames=4, size=32)
    model.prepare(LABELS, clip)
    (answer,) = model.classify([prompt(clip(60))])
    assert sum(answer.values()) == pytest.approx(1)
    with pytest.raises(UsageError, match="no video network 'r3d_81'; did you mean 'r3d_18'"):
        ClipClassifier("r3d_81").prepare(LABELS, clip)


def test_settings_that_cannot_be_meant(tmp_path):
    from medimg_eval.models import ClipClassifier

    with pytest.raises(UserError, match=r"model\.encoder is invalid: expected a folder"):
        ClipClassifier(encoder=str(tmp_path / "none")).prepare(LABELS, clip)
