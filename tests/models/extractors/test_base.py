"""Feature extractors: weights that are missing are named at once, and networks of every kind give vectors."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image as Pictures

import medimg_eval
from medimg_eval.case import Image
from medimg_eval.errors import UsageError, UserError
from medimg_eval.instantiate import build
from medimg_eval.models.extractors.base import FeatureExtractor, Pixels
from medimg_eval.models.extractors.networks import Inception, OpenClipEncoder, TimmEncoder, TransformersEncoder
from medimg_eval.store import observation_store
from tests.helpers.observing import observed, rows

CONFIGS = Path(medimg_eval.__file__).parent / "configs" / "extractor"


def image(value=0, size=(20, 24), dtype=np.uint8):
    rows, columns = np.mgrid[: size[0], : size[1]]
    return Image(((rows * 5 + columns * 3 + value) % 256).astype(dtype)[None], np.eye(4), units="pixel")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_says_what_it_is_and_names_what_it_lacks_within_a_second(path):
    text = path.read_text()
    assert text.startswith("# description: ")
    made = build(yaml.safe_load(text))
    assert isinstance(made, FeatureExtractor)
    made.name = path.stem
    begun = time.perf_counter()
    if not made.needs:
        made.check_ready()
        return
    with pytest.raises(UserError) as caught:
        made.check_ready()
    assert time.perf_counter() - begun < 1
    for part in (f"extractor {path.stem!r}", f"extractors.{path.stem}.weights=PATH", "licence: ", "had from "):
        assert part in str(caught.value)


def test_pixels_are_means_of_areas_of_grey():
    checks = np.kron(np.array([[0, 255], [102, 51]], np.uint8), np.ones((5, 5), np.uint8))
    found = Pixels(2).embed_images([Image(checks[None], np.eye(4), units="pixel")])
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx(np.array([[0, 1, 0.4, 0.2]]), abs=1e-6)
    with pytest.raises(UsageError, match="expected a whole number from 1 on, got 0"):
        Pixels(0)
    with pytest.raises(UserError, match="reads no texts"):
        Pixels(2).embed_texts(["a"])


class Counting(Pixels):
    """Counts the pictures that it is shown."""

    seen = 0

    def embed(self, pictures):
        self.seen += len(pictures)
        return super().embed(pictures)


def test_a_picture_is_embedded_once_whatever_it_is_called(tmp_path):
    files = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for number, file in enumerate(files):
        Pictures.fromarray(image(number // 2 * 9).array[0]).save(file)
    references = {file.name: file for file in files}
    pixels = Counting(4)
    first = rows(found := observed(pixels, "pixels-x", references))
    assert (pixels.seen, len(first)) == (2, 3)  # a and b hold the same
    assert (first[0] == first[1]).all()
    assert not (first[0] == first[2]).all()
    again = rows(observed(pixels, "pixels-x", dict(reversed(references.items()))))
    assert pixels.seen == 2
    assert (again == first[::-1]).all()
    observed(pixels, "pixels-y", references)
    assert pixels.seen == 4
    assert [one.meta for one in found.values()] == [{"shape": "20 x 24 uint8", "constant": False}] * 3


def test_a_picture_without_a_file_is_known_by_its_content():
    class Held:
        files = ()

        def read(self):
            return image(3)

    pixels = Counting(4)
    for _ in range(2):
        observed(pixels, "pixels-x", {"x": Held(), "y": Held()})
        assert pixels.seen == 1


def test_a_damaged_cache_is_said_in_a_sentence(tmp_path):
    store = observation_store("features", "x")
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.write_bytes(b"no database" * 99)
    with pytest.raises(UserError, match=r"x.sqlite: what is kept there cannot be .*; delete the file"):
        store.get(["a"])


def test_inception_gives_what_comes_before_its_last_layer(tmp_path):
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    network = models.inception_v3(weights=None, init_weights=False, aux_logits=True).eval()
    torch.save(network.state_dict(), tmp_path / "w.pth")
    made = Inception(str(tmp_path / "w.pth"), device="cpu")
    made.name = "inception"
    found = made.embed_images([image(0, (40, 60)), image(50, (40, 60))])
    assert (found.shape, found.dtype) == ((2, 2048), np.float32)
    shown = np.asarray(
        Pictures.fromarray(image(50, (40, 60)).array[0]).convert("RGB").resize((299, 299), 2), np.float32
    )
    network.fc = torch.nn.Identity()
    with torch.inference_mode():
        expected = network(torch.from_numpy(shown.transpose(2, 0, 1) / 127.5 - 1)[None]).numpy()
    np.testing.assert_allclose(found[1:], expected, rtol=1e-4, atol=1e-4)
    assert made.revision == "w.pth; stretched to 299 x 299 by PIL's bilinear filter, pool3"
    other = Inception(str(tmp_path / "other.pth"))
    torch.save({"fc.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match="holds weights of another network"):
        other.embed_images([image()])


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    """A tiny DINOv2, of RAD-DINO's architecture."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(folder)
    transformers.BitImageProcessor(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_mean=[0.5] * 3, image_std=[0.25] * 3
    ).save_pretrained(folder)
    return folder


def test_transformers_encoders_give_the_vector_that_is_named(dino):
    found = {}
    for pooled in ("pooled", "first", "mean"):
        made = TransformersEncoder(str(dino), pooled=pooled, device="cpu")
        found[pooled] = made.embed_images([image(0), image(90)])
        assert found[pooled].shape == (2, 12)
    np.testing.assert_allclose(found["pooled"], found["first"], atol=1e-5)  # as DINOv2 pools
    assert np.abs(found["pooled"] - found["mean"]).max() > 1e-3
    stretched = TransformersEncoder(str(dino), stretched=299, device="cpu")
    assert np.abs(stretched.embed_images([image(0)]) - found["pooled"][:1]).max() > 1e-4
    assert "stretched to 299 x 299, then as its preprocessor_config.json says" in stretched.revision
    with pytest.raises(UsageError, match="did you mean 'mean'"):
        TransformersEncoder(str(dino), pooled="means")


def test_a_folder_that_lacks_a_file_is_told_by_its_name(dino, tmp_path):
    made = TransformersEncoder(str(tmp_path))
    made.name = "mine"
    with pytest.raises(UserError, match=r"holds no config.json.*set extractors.mine.weights=PATH"):
        made.check_ready()
    for name in ("config.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    made.check_ready()
    with pytest.raises(UserError, match="holds no image encoder that transformers can load"):
        made.embed_images([image()])


def test_timm_encoders_take_a_file_of_weights(tmp_path):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    options = {"channels": [4, 8, 8, 8], "stem_width": 4}
    network = timm.create_model("resnet10t", num_classes=7, **options)
    torch.save(network.state_dict(), tmp_path / "w.pth")
    from safetensors.torch import save_file

    save_file(network.state_dict(), tmp_path / "w.safetensors")
    vectors = []
    for name in ("w.pth", "w.safetensors"):
        made = TimmEncoder("resnet10t", str(tmp_path / name), options, device="cpu")
        vectors.append(made.embed_images([image(0), image(90)]))
    assert vectors[0].shape == (2, 8)
    np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)
    made = TimmEncoder("resnet10tt", str(tmp_path / "w.pth"))
    with pytest.raises(UserError, match="timm has no 'resnet10tt'"):
        made.embed_images([image()])


def test_open_clip_encoders_read_pictures_and_texts(tmp_path, monkeypatch):
    (tmp_path / "open_clip_config.json").write_text("{}")
    (tmp_path / "open_clip_pytorch_model.bin").write_bytes(b"")
    made = OpenClipEncoder(str(tmp_path))
    made.check_ready()
    assert made.reads_texts

    class Loaded:
        def embed_images(self, images):
            return np.stack([np.array([one.array.shape[0], one.array.mean()], np.float32) for one in images])

        def embed_texts(self, texts):
            return np.stack([np.array([len(text), 1], np.float32) for text in texts])

    made.loaded = Loaded()
    assert made.embed_images([Image(np.full((1, 2, 2), 7, np.uint8), np.eye(4))]).tolist() == [[3, 7]]
    assert made.embed_texts(["ab"]).tolist() == [[2, 1]]
