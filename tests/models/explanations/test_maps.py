"""Maps of networks: worked by hand, beside pytorch-grad-cam, over pictures that were scaled and cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.explanations import Explanation, box_of_input, explain_pictures

GRAD_CAM = Explanation()


class TwoChannels(nn.Module):
    """Channels x and 2 - x, cut at 0, averaged and weighed: all that Grad-CAM needs, in closed form."""

    def __init__(self, inplace=False):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1)
        self.cut, self.pool, self.head = nn.ReLU(inplace), nn.AdaptiveAvgPool2d(1), nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.convolution.weight[:] = torch.tensor([1.0, -1.0])[:, None, None, None]
            self.convolution.bias[:] = torch.tensor([0.0, 2.0])
            self.head.weight[:] = torch.tensor([[4.0, -1.0], [0.0, 8.0]])

    def forward(self, shown):
        return self.head(self.pool(self.cut(self.convolution(shown))).flatten(1))


PICTURE = torch.tensor([[[[1.0, 2.0], [0.0, 4.0]]]])


@pytest.mark.parametrize("inplace", [False, True])
def test_grad_cam_of_a_network_by_hand(inplace):
    # Features after the cut: [[1, 2], [0, 4]] and [[1, 0], [2, 0]]. A score is the sum over channels of weight times
    # mean, so that its gradient is weight / 4 in every place: 1 and -1/4 of the first class, 0 and 2 of the second.
    # First map: cut([1 - 1/4, 2, 0 - 2/4, 4]); second: [2, 0, 4, 0].
    found = explain_pictures(TwoChannels(inplace).eval(), PICTURE, GRAD_CAM, [0, 1])
    assert found.maps.tolist() == [[[[0.75, 2.0], [0.0, 4.0]], [[2.0, 0.0], [4.0, 0.0]]]]
    # Means are 7/4 and 3/4.
    assert found.scores.tolist() == [[4 * 7 / 4 - 3 / 4, 8 * 3 / 4]]


def test_a_layer_that_is_named_is_weighed_and_what_runs_changes_nothing():
    network = TwoChannels().train()
    # Before the cut: features 2 - x of the last place are -2, where the gradient is 0: means of slopes are 1/4 of 3/4.
    found = explain_pictures(network, PICTURE, Explanation(layer="convolution"), [1])
    slopes = np.array([0, np.mean([2.0, 0.0, 2.0, 0.0])])  # of channel 2 the cut is passed where 2 - x is above 0
    features = np.array([[[1, 2], [0, 4]], [[1, 0], [2, -2]]])
    assert found.maps[0, 0].tolist() == np.maximum(np.tensordot(slopes, features, 1), 0).tolist()
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    with torch.inference_mode():  # as a run asks
        again = explain_pictures(network, PICTURE.clone(), GRAD_CAM, [0])
    assert again.maps[0, 0].tolist() == [[0.75, 2.0], [0.0, 4.0]]
    network.requires_grad_(requires_grad=False)  # as frozen encoders are
    assert explain_pictures(network, PICTURE, GRAD_CAM, [0]).maps.tolist() == again.maps.tolist()


def test_pictures_of_a_batch_do_not_matter_to_each_other():
    network, both = TwoChannels().eval(), torch.cat([PICTURE, PICTURE.flip(3)])
    found = explain_pictures(network, both, GRAD_CAM, [0]).maps
    assert np.array_equal(found[0], explain_pictures(network, PICTURE, GRAD_CAM, [0]).maps[0])
    assert np.array_equal(found[1], found[0][:, :, ::-1])


class Attending(nn.Module):
    """A transformer of one class token and 2 x 2 patches whose attention is given."""

    num_prefix_tokens = 1

    class Layer(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.register_buffer("weights", weights)
            self.attn_drop, self.fused_attn = nn.Identity(), True

        def forward(self, shown):
            assert not self.fused_attn
            return self.attn_drop(self.weights.expand(len(shown), 2, 5, 5))

    class Block(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.attn = Attending.Layer(weights)

    def __init__(self, *layers):
        super().__init__()
        self.blocks = nn.ModuleList(map(self.Block, layers))

    def forward(self, shown):
        for block in self.blocks:
            block.attn(shown)
        return shown.flatten(1)[:, :2]


def attention(seed):
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(5), (2, 5)).astype(np.float32))


def test_attention_of_the_last_layer_and_rollout_are_as_defined():
    first, last = attention(0), attention(1)
    network = Attending(first, last)
    shown = torch.zeros(1, 1, 2, 2)
    found = explain_pictures(network, shown, Explanation("last_attention"), [0, 1]).maps
    assert found.shape == (1, 1, 2, 2)
    assert found[0, 0].ravel() == pytest.approx(last.mean(0)[0, 1:].numpy(), rel=1e-6)
    mixed = [0.5 * one.mean(0).numpy() + 0.5 * np.eye(5) for one in (first, last)]
    rolled = explain_pictures(network, shown, Explanation("attention_rollout"), []).maps
    assert rolled[0, 0].ravel() == pytest.approx((mixed[1] @ mixed[0])[0, 1:], rel=1e-6)
    assert all(block.attn.fused_attn for block in network.blocks)
    # One layer by hand: half of what the class token attends to, the other half stays with itself.
    alone = explain_pictures(Attending(first), shown, Explanation("attention_rollout"), []).maps
    assert alone.sum() == pytest.approx(0.5 * float(first.mean(0)[0, 1:].sum()), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("vit_tiny_patch16_224", "grad_cam", (2, 2)),
        ("vit_tiny_patch16_224", "attention_rollout", (2, 2)),
        ("swin_tiny_patch4_window7_224", "grad_cam", (2, 2)),
        ("resnet10t", "grad_cam", (2, 2)),
    ],
)
def test_networks_of_timm_give_maps_without_a_layer_named(name, kind, shape):
    timm = pytest.importorskip("timm")
    depths = {"depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)}
    small = {
        "vit_tiny_patch16_224": {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 2},
        "swin_tiny_patch4_window7_224": {"img_size": 64, "embed_dim": 12, "window_size": 2, **depths},
        "resnet10t": {"channels": [4, 4, 8, 8], "stem_width": 4},
    }[name]
    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False, num_classes=3, **small).eval()
    shown = torch.randn(1, 3, *(32, 32) if "vit" in name else (64, 64))
    found = explain_pictures(network, shown, Explanation(kind), [0, 2])
    assert found.maps.shape == (1, 2 if kind == "grad_cam" else 1, *shape)
    assert found.maps.min() >= 0
    assert found.maps.max() > 0
    with torch.no_grad():
        assert found.scores[0] == pytest.approx(network(shown)[0].double().numpy(), rel=1e-3, abs=1e-5)


def test_grad_cam_is_that_of_pytorch_grad_cam():
    theirs = pytest.importorskip("pytorch_grad_cam")
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    ).eval()  # fmt: skip
    with torch.no_grad():
        network[6].weight *= 1000  # theirs adds 1e-7 to the largest before it divides
    shown = torch.randn(3, 3, 12, 12)
    for layer in ("1", "3"):
        found = explain_pictures(network, shown, Explanation(layer=layer), range(4)).maps
        with theirs.GradCAM(model=network, target_layers=[network[int(layer)]]) as cam:
            for place in range(4):
                scaled = cam(input_tensor=shown, targets=[ClassifierOutputTarget(place)] * 3)
                ours = found[:, place] - found[:, place].min((1, 2), keepdims=True)
                ours = ours / (1e-7 + ours.max((1, 2), keepdims=True))
                assert np.abs(scaled - ours).max() < 1e-4


def test_the_input_lies_where_scaling_and_cutting_leave_it():
    from torchvision import transforms

    def cut(*steps):
        return transforms.Compose([*steps, transforms.ToTensor()])

    whole = cut(transforms.Resize((8, 8)))
    assert box_of_input(whole, (40, 20)) == pytest.approx((0, 0, 40, 20), abs=0.02)
    # The shorter edge of 20 becomes 10: of the middle 8 x 8 of 20 x 10, rows 6 to 14 are 12 to 28 of the picture.
    middle = cut(transforms.Resize(10), transforms.CenterCrop(8))
    assert box_of_input(middle, (40, 20)) == pytest.approx((12, 2, 28, 18), abs=0.02)
    # Padding puts places beyond the picture.
    padded = cut(transforms.Resize(8), transforms.CenterCrop(16))
    assert box_of_input(padded, (16, 16)) == pytest.approx((-8, -8, 24, 24), abs=0.02)
    assert box_of_input(cut(), (5, 7)) == pytest.approx((0, 0, 5, 7), abs=1e-4)
    with pytest.raises(UserError, match="does more than to scale"):
        box_of_input(cut(transforms.RandomHorizontalFlip(1.0)), (16, 16))
    with pytest.raises(UserError, match="whose steps are known"):
        box_of_input(len, (16, 16))


@settings(deadline=None, max_examples=20)
@given(st.integers(24, 90), st.integers(24, 90), st.integers(12, 30))
def test_places_are_those_of_a_mark_that_is_scaled_and_cut_alike(rows, columns, edge):
    from PIL import Image
    from torchvision import transforms

    steps = transforms.Compose([transforms.Resize(edge), transforms.CenterCrop(edge), transforms.ToTensor()])
    top, left, bottom, right = box_of_input(steps, (rows, columns))
    pixels = np.zeros((rows, columns), np.uint8)
    middle = rows // 2, columns // 2
    pixels[middle[0] - 2 : middle[0] + 2, middle[1] - 2 : middle[1] + 2] = 255
    shown = steps(Image.fromarray(pixels))[0].numpy()
    weights = shown / shown.sum()
    centre = [(weights.sum(1 - axis) * (np.arange(edge) + 0.5)).sum() / edge for axis in (0, 1)]
    assert top + centre[0] * (bottom - top) == pytest.approx(middle[0], abs=0.6)
    assert left + centre[1] * (right - left) == pytest.approx(middle[1], abs=0.6)


def test_what_cannot_be_mapped_is_refused_with_what_mends_it():
    network = TwoChannels().eval()
    for given_settings, message in (
        ("gradcam", "did you mean|grad_cam"),
        ({"kinds": "grad_cam"}, "expected kind, layer and of"),
        ({"kind": "attention_rollout", "layer": "cut"}, "is of grad_cam alone"),
    ):
        with pytest.raises(UsageError, match=message):
            Explanation.from_config(given_settings)
    assert Explanation.from_config(None) is None
    assert Explanation.from_config("last_attention") == Explanation("last_attention")
    with pytest.raises(UserError, match=r"no module 'cuts'.*cut"):
        explain_pictures(network, PICTURE, Explanation(layer="cuts"), [0])
    with pytest.raises(UserError, match="no grid of features"):
        explain_pictures(network, PICTURE, Explanation(layer="head"), [0])
    with pytest.raises(UserError, match="vision transformers of timm"):
        explain_pictures(network, PICTURE, Explanation("last_attention"), [0])
    with pytest.raises(UserError, match="no module of the network gives a grid"):
        explain_pictures(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), PICTURE, GRAD_CAM, [0])
    asked, scores = ["a", "b"], [0.2, 0.7]
    assert Explanation().classes_of(asked, scores) == asked
    assert Explanation(of="predicted").classes_of(asked, scores) == ["b"]
    assert Explanation(of=["a"]).classes_of(asked, scores) == ["a"]
    with pytest.raises(UsageError, match=r"model.explain.of names"):
        Explanation(of=["c"]).classes_of(asked, scores)
