"""Extractors with a meaning: classifiers, a network that tells patients apart, BioViL-T, and tables of features."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pictures

from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures.reading import as_picture
from medimg_eval.models.base import Model
from medimg_eval.models.extractors.base import FeatureTable, Pixels
from medimg_eval.models.extractors.classifiers import FindingClassifier, ModelClassifier, ViewClassifier
from medimg_eval.models.extractors.networks import BioViLT, PatientSiamese
from tests.helpers.observing import observed, rows
from tests.models.extractors.test_base import image


def test_classifiers_give_probabilities_of_their_classes(tmp_path):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    options = {"channels": [4, 8, 8, 8], "stem_width": 4}
    torch.manual_seed(0)
    network = timm.create_model("resnet10t", num_classes=3, **options).eval()
    torch.save({"state_dict": {f"network.{key}": value for key, value in network.state_dict().items()}}, tmp_path / "w")
    shared = {"backbone": "resnet10t", "weights": str(tmp_path / "w"), "options": options, "device": "cpu"}
    names = ("Edema", "Fracture", "Pneumonia")
    findings = FindingClassifier(findings=names, thresholds={"Edema": 0.2}, **shared)
    views = ViewClassifier(choices=["AP", "PA", "LATERAL"], **shared)
    pictures = [image(0), image(90)]
    settings = timm.data.resolve_model_data_config(network)
    shown = [timm.data.create_transform(**settings)(as_picture(one)) for one in pictures]
    with torch.inference_mode():
        logits = network(torch.stack(shown))
    np.testing.assert_allclose(findings.embed_images(pictures), logits.sigmoid().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(views.embed_images(pictures), logits.softmax(1).numpy(), rtol=1e-4, atol=1e-5)
    assert (findings.names, findings.thresholds) == (names, (0.2, 0.5, 0.5))
    assert (views.names, views.chooses, views.thresholds) == (("AP", "PA", "LATERAL"), "view", ())
    other = FindingClassifier(findings=[*names, "Mass"], **shared)
    with pytest.raises(UserError, match=r"has shape \(3,"):
        other.embed_images(pictures)


class Bright(Model):
    """Classifies by brightness; heeds whether classes exclude each other."""

    def classify(self, prompts):
        assert {len(prompt.images) for prompt in prompts} == {1}
        exclusive = [bool(prompt.options) for prompt in prompts]
        shares = [float(prompt.images[0].array.mean()) / 255 for prompt in prompts]
        return [
            {"Edema": share, "Mass": 1 - share if one else 0.25} for share, one in zip(shares, exclusive, strict=True)
        ]


def test_any_model_that_classifies_can_look_at_pictures():
    grey = image(0)
    share = grey.array.mean() / 255
    made = ModelClassifier(Bright(), findings=["Mass", "Edema"], thresholds={"Mass": 0.1})
    np.testing.assert_allclose(made.embed_images([grey]), [[0.25, share]], rtol=1e-6)
    assert (made.names, made.thresholds) == (("Mass", "Edema"), (0.1, 0.5))
    np.testing.assert_allclose(made.embed([as_picture(grey)]), [[0.25, share]], rtol=1e-6)
    views = ModelClassifier(Bright(), choices=["Edema", "Mass"], chooses="kind")
    np.testing.assert_allclose(views.embed_images([grey]), [[share, 1 - share]], rtol=1e-6)
    assert made.embed_images([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: FindingClassifier(findings=[]), "findings: expected at least 1 different names"),
        (lambda: FindingClassifier(findings=["a", "A"]), "different names"),
        (lambda: FindingClassifier(findings=["a"], thresholds={"b": 0.1}), "thresholds names 'b'"),
        (lambda: FindingClassifier(findings=["a"], thresholds=2), "from 0 to 1, got 2 for 'a'"),
        (lambda: ViewClassifier(choices=["AP"]), "choices: expected at least 2"),
        (lambda: ModelClassifier(Pixels(4), findings=["a"]), "Pixels does not classify"),
        (lambda: ModelClassifier(Bright()), "expected either findings or choices"),
    ],
)
def test_classifiers_that_cannot_be_meant_are_refused(made, words):
    with pytest.raises(UsageError, match=words):
        made()


def test_a_siamese_network_scores_pairs_of_patients(tmp_path):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    branch, last = timm.create_model("resnet10t", num_classes=6).eval(), torch.nn.Linear(6, 1)
    parts = {f"model.{key}": value for key, value in branch.state_dict().items()}
    torch.save(parts | {f"fc_end.{key}": value for key, value in last.state_dict().items()}, tmp_path / "w.pth")
    made = PatientSiamese(str(tmp_path / "w.pth"), backbone="resnet10t", features=6, edge=32, device="cpu")
    found = made.embed_images([image(0, (40, 60)), image(90, (40, 60))])
    pixels = [np.asarray(as_picture(image(at, (40, 60))).resize((32, 32), 2), np.float32) / 255 for at in (0, 90)]
    shown = (np.stack(pixels) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    with torch.inference_mode():
        branches = branch(torch.from_numpy(shown.astype(np.float32).transpose(0, 3, 1, 2))).sigmoid()
        score = last((branches[0] - branches[1]).abs()).item()
    np.testing.assert_allclose(found, branches.numpy(), rtol=1e-4, atol=1e-5)
    scores = made.compare(found[:, None], found[None])
    assert scores.shape == (2, 2)
    assert scores[0, 1] == pytest.approx(score, rel=1e-4, abs=1e-5)
    assert scores[0, 0] == pytest.approx(last.bias.item(), rel=1e-5)
    with pytest.raises(UserError, match="tells no patients apart"):
        Pixels(4).compare(found, found)


@pytest.fixture(scope="module")
def biovil(tmp_path_factory):
    """BioViL-T with random weights under its authors' names, and what its parts are, called otherwise."""
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("biovil")
    torch.manual_seed(0)
    resnet = timm.create_model("resnet50", num_classes=3).eval()
    stored = {f"encoder.encoder.{key}": value for key, value in resnet.state_dict().items()}
    stored |= {
        "encoder.backbone_to_vit.weight": torch.randn(256, 2048, 1, 1) * 0.02,
        "encoder.missing_previous_emb": torch.randn(1, 256, 1, 1) * 0.02,
        "encoder.vit_pooler.type_embed": torch.zeros(2, 1, 256),
        "projector.model.0.weight": torch.randn(128, 512, 1, 1) * 0.05,
        "projector.model.1.weight": torch.rand(128) + 0.5,
        "projector.model.1.bias": torch.randn(128),
        "projector.model.1.running_mean": torch.randn(128) * 0.1,
        "projector.model.1.running_var": torch.rand(128) + 0.5,
        "projector.model.1.num_batches_tracked": torch.tensor(3),
        "projector.model.3.weight": torch.randn(128, 128, 1, 1) * 0.1,
        "projector.model.3.bias": torch.randn(128) * 0.1,
    }
    torch.save(stored, folder / "biovil_t_image_model_proj_size_128.pt")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "edema", "no", "pleural", "effusion"]
    (folder / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.save_pretrained(folder)
    bert = transformers.BertForMaskedLM(config).eval()
    head = {
        "dense_to_hidden.weight": torch.randn(128, 12),
        "dense_to_hidden.bias": torch.randn(128),
        "LayerNorm.weight": torch.rand(128),
        "LayerNorm.bias": torch.randn(128),
        "dense_to_output.weight": torch.randn(128, 128) * 0.1,
        "dense_to_output.bias": torch.randn(128),
    }
    both = bert.state_dict() | {f"cls_projection_head.{key}": value for key, value in head.items()}
    torch.save(both, folder / "pytorch_model.bin")
    return folder, resnet, stored, bert, head


def test_biovil_t_puts_pictures_in_the_place_of_texts(biovil):
    import torch
    from torch.nn import functional

    folder, resnet, stored, bert, head = biovil
    made = BioViLT(str(folder), device="cpu", preferred_batch=2)
    made.check_ready()
    picture = Pictures.fromarray(np.random.default_rng(0).integers(0, 256, (600, 700), dtype=np.uint8)).convert("RGB")
    found = made.embed([picture])
    scaled = np.asarray(picture.convert("L").resize((597, 512), 2), np.float32)[32:480, 74:522] / 255
    with torch.inference_mode():
        seen = torch.from_numpy(scaled)[None, None].repeat(1, 3, 1, 1)
        static = functional.conv2d(resnet.forward_features(seen), stored["encoder.backbone_to_vit.weight"])
        both = torch.cat([static, stored["encoder.missing_previous_emb"].repeat(1, 1, 14, 14)], dim=1)
        part = {key.removeprefix("projector.model."): value for key, value in stored.items()}
        hidden = functional.conv2d(both, part["0.weight"])
        spread = (part["1.running_var"] + 1e-5).sqrt()
        hidden = (hidden - part["1.running_mean"][:, None, None]) / spread[:, None, None]
        hidden = (hidden * part["1.weight"][:, None, None] + part["1.bias"][:, None, None]).relu()
        places = functional.conv2d(hidden, part["3.weight"], part["3.bias"])
        expected = functional.normalize(places.mean((2, 3)), dim=1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    texts = made.embed_texts(["no edema", "pleural effusion", "edema"])
    with torch.inference_mode():
        ids = torch.tensor([[2, 7, 8, 3]])
        first = bert.bert(ids).last_hidden_state[:, 0]
        hidden = functional.gelu(first @ head["dense_to_hidden.weight"].T + head["dense_to_hidden.bias"])
        hidden = functional.layer_norm(hidden, (128,), head["LayerNorm.weight"], head["LayerNorm.bias"], 1e-12)
        projected = hidden @ head["dense_to_output.weight"].T + head["dense_to_output.bias"]
        expected = functional.normalize(projected, dim=1).numpy()
    np.testing.assert_allclose(texts[1:2], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)
    assert made.embed_texts([]).shape == (0, 128)


def test_features_of_a_table_are_looked_up_by_the_end_of_a_path(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("file,mask,a,b\n001/000.png,x,1,2\n002/000.png,y,3,\n/deep/002/001.png,y,5,6\n")
    made = FeatureTable(str(table), leave_out=["mask"])
    made.name = "radiomics"
    assert list(made.names) == ["a", "b"]
    np.testing.assert_array_equal(made.look_up([tmp_path / "run" / "001" / "000.png"]), [1, 2])
    np.testing.assert_array_equal(made.look_up([tmp_path / "deep/002/001.png"]), [5, 6])
    assert np.isnan(made.look_up([tmp_path / "002" / "000.png"])[1])
    with pytest.raises(CaseError, match=r"002/001.png: .*t.csv has no row of it in column 'file'"):
        made.look_up([tmp_path / "002" / "001.png"])
    with pytest.raises(UserError, match="looks features up by file"):
        made.embed_images([image()])
    references = {name: tmp_path / name / "000.png" for name in ("001", "003", "002")}
    for file in references.values():  # of equal content, and with features of their own
        file.parent.mkdir()
        file.touch()
    found = observed(made, "x", references, optional=True)
    assert [one.status for one in found.values()] == ["known", "failed", "known"]
    np.testing.assert_array_equal(rows(found), [[1, 2], [3, np.nan]])
    with pytest.raises(UserError, match="003: .*has no row of it"):
        observed(made, "x", references)


@pytest.mark.parametrize(
    ("content", "settings", "words"),
    [
        ("name,a\nx,1\n", {}, "has no column 'file'"),
        ("file,a\nx,one\n", {}, "column 'a' holds no numbers; name such columns in extractors.radiomics.leave_out"),
        ("file,a\nx,1\nx,2\n", {}, "holds 'x' twice"),
        ("file,a\nx,1\n", {"leave_out": ["a"]}, "has no column of features"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(tmp_path, content, settings, words):
    (tmp_path / "t.csv").write_text(content)
    made = FeatureTable(str(tmp_path / "t.csv"), **settings)
    made.name = "radiomics"
    with pytest.raises(UserError, match=words):
        made.look_up([tmp_path / "x"])
