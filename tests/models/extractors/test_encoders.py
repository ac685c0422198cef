"""Encoders: one class is a metric's extractor and a model that embeds; tokens, weights, preprocessing."""

import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image as Pictures

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models import (
    Encoder,
    Pixels,
    TimmEncoder,
    TorchScriptEncoder,
    TorchvisionEncoder,
    TransformersEncoder,
)
from medimg_eval.question import Message

TINY_VIT = {"img_size": 32, "patch_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 2}


def image(value=0, size=(40, 48)):
    rows, columns = np.mgrid[: size[0], : size[1]]
    return Image(((rows * 5 + columns * 3 + value) % 256).astype(np.uint8)[None].repeat(3, 0), np.eye(4), units="pixel")


def picture(value=0):
    return Pictures.fromarray(np.moveaxis(image(value).array, 0, 2))


def vit(path, prefix=""):
    import timm

    torch.manual_seed(0)
    network = timm.create_model("vit_tiny_patch16_224", num_classes=0, reg_tokens=2, **TINY_VIT).eval()
    state = {f"{prefix}{key}": value for key, value in network.state_dict().items()}
    torch.save(state if not prefix else {**state, "text.weight": torch.zeros(1)}, path)
    return network


def test_prompts_have_the_mean_of_their_pictures(tmp_path):
    encoder = Pixels(2)
    one, two = (encoder.encode([picture(value)])[0] for value in (0, 90))
    found = encoder.embed([Prompt("a", (image(),)), Prompt("b", (image(), image(90)))])
    np.testing.assert_array_equal(found[0], one)
    np.testing.assert_allclose(found[1], (one + two) / 2, rtol=1e-6)
    assert encoder.embed([]).shape == (0, 4)
    with pytest.raises(UserError, match="reads no texts"):
        encoder.embed([Prompt("c", (), messages=(Message("user", ("words",)),))])


@pytest.mark.parametrize(
    ("pooled", "expected"),
    [
        ("pooled", lambda tokens: tokens[:, 0]),
        ("class", lambda tokens: tokens[:, 0]),
        ("mean", lambda tokens: tokens[:, 3:].mean(1)),  # a class token and two registers come first
        ("class+mean", lambda tokens: torch.cat([tokens[:, 0], tokens[:, 3:].mean(1)], 1)),
    ],
)
def test_tokens_of_timm(tmp_path, pooled, expected):
    network = vit(tmp_path / "w.pth")
    options = {**TINY_VIT, "reg_tokens": 2}
    made = TimmEncoder(
        "vit_tiny_patch16_224",
        str(tmp_path / "w.pth"),
        options,
        "cpu",
        pooled=pooled,
        preprocess={"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.25,) * 3, "crop_pct": 1.0},
    )
    found = made.encode([picture(), picture(90)])
    _, transform = made.loaded
    with torch.inference_mode():
        tokens = network.forward_features(torch.stack([transform(picture()), transform(picture(90))]))
    np.testing.assert_allclose(found, expected(tokens).numpy(), atol=1e-5)
    assert transform(picture()).shape == (3, 32, 32)


def test_weights_below_a_prefix_and_of_a_folder(tmp_path):
    network = vit(tmp_path / "all.pth", "visual.")
    made = {"backbone": "vit_tiny_patch16_224", "options": {**TINY_VIT, "reg_tokens": 2}, "device": "cpu"}
    found = TimmEncoder(weights=str(tmp_path / "all.pth"), prefix="visual.", **made).loaded[0]
    assert torch.equal(found.pos_embed, network.pos_embed)
    with pytest.raises(UserError, match=r"all.pth: holds weights of another network: .*, such as 'image.blocks"):
        TimmEncoder(weights=str(tmp_path / "all.pth"), prefix="image.", **made).loaded  # noqa: B018
    folder = tmp_path / "copy"
    folder.mkdir()
    vit(folder / "pytorch_model.bin")
    config = {"architecture": "vit_tiny_patch16_224", "model_args": made["options"], "num_classes": 0}
    (folder / "config.json").write_text(json.dumps({**config, "pretrained_cfg": {"mean": [0.1] * 3, "num_classes": 0}}))
    copied = TimmEncoder(None, str(folder), device="cpu")
    assert torch.equal(copied.loaded[0].pos_embed, network.pos_embed)
    assert "mean=tensor([0.1000" in str(copied.loaded[1])
    assert copied.revision.startswith("copy; timm's config.json")


def test_layers_are_named():
    from medimg_eval.models.extractors.networks import _find_layer

    assert _find_layer("torch.nn.SiLU") is torch.nn.SiLU
    assert _find_layer("os.system") == "os.system"
    with pytest.raises(UsageError, match="torch.nn.Nothing: is no layer"):
        _find_layer("torch.nn.Nothing")


def test_what_a_model_lacks_is_told_as_a_models(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        UserError, match=r"the model lacks its weights.*fetch them by `hf download a/b`.*model.weights=PATH"
    ):
        TransformersEncoder("a/b").check_ready()
    with pytest.raises(UserError, match=r"model.backbone: timm has no 'resnet5o'; did you mean"):
        TimmEncoder("resnet5o", str(tmp_path)).loaded  # noqa: B018
    with pytest.raises(UsageError, match="got 'token'"):
        TimmEncoder(pooled="token")


def test_a_network_without_tokens_is_told(tmp_path):
    import timm

    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "w.pth")
    made = TimmEncoder("test_resnet", str(tmp_path / "w.pth"), device="cpu", pooled="class")
    with pytest.raises(UserError, match="the model: test_resnet has no class tokens; set model.pooled=pooled"):
        made.encode([picture()])


def test_registers_of_transformers_are_no_patches(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14, num_register_tokens=3
    )
    model = transformers.Dinov2WithRegistersModel(config).eval()
    model.save_pretrained(tmp_path)
    processor = transformers.BitImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    processor.save_pretrained(tmp_path)
    with torch.inference_mode():
        shown = processor(images=[picture()], return_tensors="pt")["pixel_values"]
        tokens = model(pixel_values=shown).last_hidden_state
    found = TransformersEncoder(str(tmp_path), "class+mean", device="cpu").encode([picture()])
    expected = torch.cat([tokens[:, 0], tokens[:, 4:].mean(1)], 1)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_torchvision_gives_what_comes_before_its_last_layer(tmp_path):
    from torchvision import models

    torch.manual_seed(0)
    network = models.shufflenet_v2_x0_5(weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "w.pth")
    made = TorchvisionEncoder("shufflenet_v2_x0_5", str(tmp_path / "w.pth"), device="cpu")
    found = made.encode([picture()])
    network.fc = torch.nn.Identity()
    shown = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()(picture())[None]
    with torch.inference_mode():
        np.testing.assert_allclose(found, network(shown).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="torchvision has no 'shufflenet_v2_x0'; did you mean 'shufflenet_v2_x0_5'"):
        TorchvisionEncoder("shufflenet_v2_x0", str(tmp_path / "w.pth")).loaded  # noqa: B018


def test_a_torchscript_program_is_shown_the_middle(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.trace(torch.nn.AvgPool2d(2).eval(), torch.zeros(1, 3, 2, 2))
        flat = torch.jit.trace(torch.nn.Sequential(torch.nn.AvgPool2d(2), torch.nn.Flatten()), torch.zeros(1, 3, 2, 2))
        program.save(str(tmp_path / "four.pt"))
        flat.save(str(tmp_path / "flat.pt"))
    made = TorchScriptEncoder(str(tmp_path / "flat.pt"), size=2, mean=[0.5] * 3, spread=[0.5] * 3, device="cpu")
    red = Pictures.fromarray(np.full((20, 40, 3), (255, 0, 51), np.uint8))
    np.testing.assert_allclose(made.encode([red, red]), [[1, -1, -0.6]] * 2, atol=1e-6)
    with pytest.raises(UserError, match=r"the program gives \(1, 3, 1, 1\), expected \(picture, feature\)"):
        TorchScriptEncoder(str(tmp_path / "four.pt"), size=2, device="cpu").encode([red])
    (tmp_path / "no.pt").write_bytes(b"no program")
    with pytest.raises(UserError, match="no.pt: is no TorchScript program"):
        TorchScriptEncoder(str(tmp_path / "no.pt"), device="cpu").encode([red])


def test_half_precision_is_near_and_other_words_are_refused(tmp_path):
    vit(tmp_path / "w.pth")
    options = {**TINY_VIT, "reg_tokens": 2}
    made = [
        TimmEncoder("vit_tiny_patch16_224", str(tmp_path / "w.pth"), options, "cpu", precision=precision)
        for precision in ("float32", "bfloat16", "half")
    ]
    for one in made:
        one.preprocess = {"input_size": (3, 32, 32)}
    full, half = (one.encode([picture()]) for one in made[:2])
    assert not np.array_equal(full, half)
    np.testing.assert_allclose(full, half, atol=0.05)
    with pytest.raises(UsageError, match="got 'half'"):
        made[2].encode([picture()])


def test_your_own_needs_three_methods():
    class Mean(Encoder):
        preprocessing = "none"

        def load(self):
            return None

        def encode(self, pictures):
            return np.array([[np.asarray(one).mean()] for one in pictures], np.float32)

    assert Mean().embed([Prompt("a", (image(),))])[0].shape == (1,)
