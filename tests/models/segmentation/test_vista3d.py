"""VISTA3D by its class prompts, on a tiny network of the same kind."""

import json

import numpy as np
import pytest
import torch
from monai.networks.nets import SegResNetDS2
from monai.networks.nets.vista3d import VISTA3D, ClassMappingClassify, PointMappingSAM

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import UserError
from medimg_eval.models.segmentation.monai import VistaSegmenter
from medimg_eval.trust import trusting

LABELS = {1: "spleen", 2: "liver"}
NETWORK = """$__import__("tests.models.segmentation.test_vista3d", fromlist=["tiny"]).tiny()"""


def tiny():
    """VISTA3D with eight features; its weights are what the seed makes them."""
    torch.manual_seed(0)
    encoder = SegResNetDS2(
        in_channels=1, blocks_down=(1, 1), norm="instance", out_channels=8, init_filters=8, dsdepth=1
    )
    return VISTA3D(
        image_encoder=encoder,
        class_head=ClassMappingClassify(n_classes=16, feature_size=8, use_mlp=True),
        point_head=PointMappingSAM(feature_size=8, n_classes=16, last_supported=8),
    ).eval()


@pytest.fixture
def bundle(tmp_path):
    """A bundle of it, whose metadata call 1 the liver and 3 the spleen."""
    for folder in ("configs", "models"):
        (tmp_path / folder).mkdir()
    (tmp_path / "configs" / "inference.json").write_text(json.dumps({"network_def": NETWORK}))
    channels = {"0": "background", "1": "Liver", "3": "spleen"}
    described = {"network_data_format": {"outputs": {"pred": {"channel_def": channels}}}}
    (tmp_path / "configs" / "metadata.json").write_text(json.dumps(described))
    torch.save(tiny().state_dict(), tmp_path / "models" / "model.pt")
    with trusting():
        yield tmp_path


def image():
    return Image(np.random.default_rng(0).normal(size=(1, 16, 16, 16)).astype(np.float32), np.eye(4))


def test_each_voxel_gets_the_label_of_the_largest_positive_logit(bundle):
    model = VistaSegmenter(bundle=str(bundle), roi_size=[16, 16, 16]).eval()
    model.prepare(LABELS, image)
    with torch.inference_mode():
        (found,) = model.segment([Prompt("c", (image(),), LABELS)])
        network, shown = tiny(), torch.from_numpy(image().array)[None]
        spleen, liver = (network(input_images=shown, class_vector=torch.tensor([[k]]))[0, 0].numpy() for k in (3, 1))
    expected = np.where(np.maximum(spleen, liver) < 0, 0, np.where(spleen >= liver, 1, 2))
    largest = np.maximum(spleen, liver)
    sure = (np.abs(largest) > 1e-4) & ((largest < 0) | (np.abs(spleen - liver) > 1e-4))  # else rounding decides
    assert sure.mean() > 0.98
    np.testing.assert_array_equal(found[sure], expected[sure])
    assert set(np.unique(expected)) == {0, 1, 2}
    model.check_ready()
    assert model.one_pass().shape == (1, 1, 16, 16, 16)


def test_numbers_can_be_given_and_a_label_without_one_is_named(bundle):
    model = VistaSegmenter(bundle=str(bundle), prompts={"spleen": 3, "liver": 1}, roi_size=[16, 16, 16])
    model.prepare(LABELS, image)
    assert model.network.prompts == [3, 1]
    with pytest.raises(UserError, match="names no class 'kidney'"):
        model.prepare({1: "kidney"}, image)
