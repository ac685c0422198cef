"""Every shape that the metrics of MONAI and torchmetrics take gives their values, or is refused in a sentence."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from monai.data import MetaTensor, decollate_batch, list_data_collate
from monai.metrics import (
    DiceHelper,
    DiceMetric,
    HausdorffDistanceMetric,
    MeanIoU,
    SurfaceDiceMetric,
    SurfaceDistanceMetric,
)
from torchmetrics.functional.segmentation import dice_score, mean_iou

from medimg_eval.tensors import SegmentationScore, SegmentationScores

# MONAI passes an argument that MONAI deprecates, and says when a class is not there.
pytestmark = pytest.mark.filterwarnings("ignore:monai.metrics.utils get_mask_edges:FutureWarning")

CLASSES = 3
SPACING = {2: (0.8, 3.0), 3: (0.8, 1.5, 3.0)}
OURS = ("dice", "iou", "hd", "hd95", "assd", "nsd@1.337")


def labels_of(axes, seed=0, highest=2):
    """Two cases of blocks of labels, and a prediction that agrees with most of it."""
    shape = (9, 10, 8)[:axes]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, highest + 1, (2, *[-(-size // 4) for size in shape]))
    target = np.kron(blocks, np.ones([1] + [4] * axes, int))[:, *map(slice, shape)]
    preds = np.where(rng.random(target.shape) < 0.85, target, rng.integers(0, highest + 1, target.shape))
    return torch.tensor(preds), torch.tensor(target)


def one_hot(labels):
    return torch.nn.functional.one_hot(labels, CLASSES).movedim(-1, 1)


def logits(labels):
    """Scores of classes, of which that of the label is the largest."""
    noise = torch.rand((len(labels), CLASSES, *labels.shape[1:]), generator=torch.Generator().manual_seed(0))
    return noise + 1.5 * one_hot(labels) - 1


def affine_of(axes):
    """An oblique affine, of 4 x 4 whatever the image, with the spacing of the cases."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    return torch.tensor(np.block([[turn * [*SPACING[axes], 7.0][:3], np.ones((3, 1))], [0, 0, 0, 1]]))


def collated(labels):
    """What MONAI's loader makes of cases."""
    return list_data_collate([MetaTensor(one, affine=affine_of(labels.ndim - 1)) for one in one_hot(labels).float()])


AS = {
    "labels": lambda labels: labels,
    "labels of 8 bits": lambda labels: labels.to(torch.uint8),
    "labels with a channel": lambda labels: labels[:, None],
    "float labels with a channel": lambda labels: labels[:, None].float(),
    "one-hot": one_hot,
    "boolean one-hot": lambda labels: one_hot(labels).bool(),
    "float one-hot": lambda labels: one_hot(labels).float(),
    "one-hot without background": lambda labels: one_hot(labels)[:, 1:],
    "boolean one-hot without background": lambda labels: one_hot(labels)[:, 1:].bool(),
    "float one-hot without background": lambda labels: one_hot(labels)[:, 1:].half(),
    "logits": logits,
    "probabilities": lambda labels: logits(labels).softmax(1),
    "a list of cases": lambda labels: list(one_hot(labels).float()),
    "MetaTensors": lambda labels: MetaTensor(labels[:, None].float(), affine=affine_of(labels.ndim - 1)),
    "a list of MetaTensors": lambda labels: decollate_batch(collated(labels)),
    "a batch of MetaTensors": collated,
}
PREDICTED_ONLY = ("logits", "probabilities")


@cache
def monai_means(axes):
    """What MONAI's metrics give for one-hot batches, float32."""
    preds, target = labels_of(axes)
    options = {"include_background": False, "get_not_nans": False}
    metrics = {
        "dice": DiceMetric(**options),
        "iou": MeanIoU(**options),
        "hd": HausdorffDistanceMetric(**options),
        "hd95": HausdorffDistanceMetric(percentile=95, **options),
        "assd": SurfaceDistanceMetric(symmetric=True, **options),
        "nsd@1.337": SurfaceDiceMetric([1.337] * 2, **options),
    }
    for name, metric in metrics.items():
        metric(one_hot(preds), one_hot(target), **({} if name in ("dice", "iou") else {"spacing": SPACING[axes]}))
    return {name: metric.aggregate().item() for name, metric in metrics.items()}


def values(scores):
    return {name: value.item() for name, value in scores.compute().items()}


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize(
    ("given", "wanted"), [pair for pair in itertools.product(AS, AS) if pair[1] not in PREDICTED_ONLY]
)
def test_every_convention_has_the_values_of_monai(given, wanted, axes):
    preds, target = labels_of(axes)
    scores = SegmentationScores([1, 2], OURS, surface="voxel", empty="monai", spacing=SPACING[axes])
    scores.update(AS[given](preds), AS[wanted](target))
    assert values(scores) == pytest.approx(monai_means(axes), rel=1e-5)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("given", [name for name in AS if "MetaTensors" in name])
def test_spacing_is_taken_from_metatensors(given, axes):
    preds, target = labels_of(axes)
    scores = SegmentationScores([1, 2], OURS, surface="voxel", empty="monai")
    scores.update(AS[given](preds), AS[given](target))
    assert values(scores) == pytest.approx(monai_means(axes), rel=1e-5)
    scores.reset()
    scores.update(preds, AS[given](target)) if axes == 2 else scores.update(one_hot(preds), AS[given](target))
    assert values(scores) == pytest.approx(monai_means(axes), rel=1e-5)


def test_metatensors_that_contradict_each_other_are_refused_unless_the_spacing_is_said():
    preds, target = (one_hot(side).float() for side in labels_of(3))
    one, other = MetaTensor(preds), MetaTensor(target, affine=affine_of(3))
    with pytest.raises(ValueError, match=r"one spacing, got \(1.0, 1.0, 1.0\) and .*spacing=\.\.\."):
        SegmentationScore("hd", [1]).update(one, other)
    SegmentationScore("dice", [1]).update(one, other)
    score = SegmentationScore("hd", [1], empty="monai")
    score.update(one, other, SPACING[3])
    wanted = SegmentationScore("hd", [1], empty="monai", spacing=SPACING[3])
    wanted.update(preds, target)
    assert score.compute() == wanted.compute()


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("given", [name for name in AS if name != "labels of 8 bits"])
def test_dice_needs_no_spacing(given, axes):
    preds, target = labels_of(axes)
    scores = SegmentationScores([1, 2], ("dice", "iou"), empty="monai")
    scores.update(AS[given](preds), target[:, None])
    assert values(scores) == pytest.approx({name: monai_means(axes)[name] for name in ("dice", "iou")}, rel=1e-6)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("given", ["labels", "labels with a channel", "one-hot"])
def test_values_are_those_of_torchmetrics_in_its_three_formats(given, axes):
    preds, target = labels_of(axes)
    options = {"num_classes": CLASSES, "include_background": False, "input_format": "index"}
    # Its Hausdorff distance takes the same formats, but is 8.06 for a rectangle that was moved by (1, 2).
    theirs = {
        "dice": dice_score(preds, target, average="none", **options).mean().item(),
        "iou": mean_iou(preds, target, per_class=True, **options).mean().item(),
    }
    scores = SegmentationScores([1, 2], ("dice", "iou"), spacing=(1,) * axes)
    for wanted in ("labels", "one-hot"):  # index, one-hot and mixed
        scores.reset()
        scores.update(AS[given](preds), AS[wanted](target))
        assert values(scores) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("wanted", [AS["labels"], AS["labels with a channel"], lambda labels: labels[:, None].float()])
def test_a_head_of_one_channel_is_taken_after_a_threshold_and_refused_before(wanted, axes):
    preds, target = labels_of(axes, highest=1)
    head = (torch.rand(preds.shape, generator=torch.Generator().manual_seed(0)) - 1.5 + 2 * preds)[:, None]
    theirs = DiceHelper(threshold=True, activate=True, get_not_nans=False, reduction="mean")(head, target[:, None])
    score = SegmentationScore("dice", [1], empty="monai", spacing=SPACING[axes])
    for given in (head > 0, head[:, 0] > 0, (head > 0).float(), head.sigmoid() > 0.5, (head > 0).to(torch.uint8)):
        score.reset()
        score.update(given, wanted(target))
        assert score.compute().item() == pytest.approx(theirs.item(), rel=1e-6)
    for given in (head, head.sigmoid(), head[:, 0]):
        with pytest.raises(ValueError, match=r"got `preds` of shape \(case, .*`preds > 0.5` of probabilities"):
            score.update(given, wanted(target))


def test_labels_as_floats_and_pictures_of_masks_are_refused_and_numpy_arrays_are_taken():
    preds, target = labels_of(3)
    score = SegmentationScore("dice", [1, 2], empty="monai")
    with pytest.raises(ValueError, match="`target` .* with values other than 0 and 1; give a label map of integers"):
        score.update(preds.float(), target.float())
    with pytest.raises(ValueError, match="`preds` .* with 0 and 255 alone; give 0 and 1"):
        SegmentationScore("dice", [1]).update(255 * (preds[:, None] > 0).long(), 255 * (target[:, None] > 0).long())
    score.update(preds.numpy(), target.numpy())
    assert score.compute().item() == pytest.approx(monai_means(3)["dice"], rel=1e-6)


def test_a_region_may_be_judged_by_a_boolean_mask():
    preds, target = labels_of(3)
    score = SegmentationScore("dice", {"whole": [1, 2]})
    score.update(preds[:, None] > 0, target[:, None])
    assert score.compute().item() == pytest.approx(
        DiceMetric()((preds > 0)[:, None], (target > 0)[:, None]).mean().item()
    )


def test_masks_that_overlap_meet_a_label_map_without_what_is_ignored():
    preds, target = labels_of(2, highest=3)
    masks = torch.stack([(preds == 1) | (preds == 2), preds == 1], dim=1)
    found = SegmentationScore("dice", {"whole": [1, 2], "core": [1]}, ignore=3, mean="none")
    found.update(masks, target)
    plain = SegmentationScore("dice", {"whole": [1, 2], "core": [1]}, ignore=3, mean="none", spacing=(1, 1))
    plain.update(preds, target)
    assert found.compute().tolist() == plain.compute().tolist()
    with pytest.raises(ValueError, match="no `ignore` with a target of boolean masks, which hold no label 3"):
        found.update(preds, masks)


def test_labels_without_a_channel_in_3d_need_no_spacing_unless_they_might_be_channels():
    preds, target = labels_of(3)
    score = SegmentationScore("dice", [1, 2], empty="monai")
    score.update(preds, target)
    assert score.compute().item() == pytest.approx(monai_means(3)["dice"], rel=1e-6)
    score.update(torch.zeros_like(preds), torch.zeros_like(target))  # nothing by either reading
    flat = [one_hot(side) for side in labels_of(2)]
    with pytest.raises(ValueError, match=r"\(3, 9, 10\) may be labels in 3-D or channels in 2-D; .*spacing=\(1, 1\)"):
        score.update(*flat)
    score = SegmentationScore("dice", [1, 2], empty="monai", spacing=(1, 1))
    score.update(*flat)
    assert score.compute().item() == pytest.approx(monai_means(2)["dice"], rel=1e-6)


REFUSED = {
    "fewer channels than classes": (logits, lambda labels: labels, [1, 2, 3, 4], "0 is background .5 or more.*argmax"),
    "regions or classes": (
        one_hot,
        one_hot,
        {"a": [1], "b": [2], "c": [1, 2]},
        "which may be either; give a label map",
    ),
    "a sigmoid for each label": (
        lambda labels: logits(labels)[:, 1:],
        one_hot,
        [1, 2],
        "without one for background.*threshold",
    ),
    "integers in channels": (lambda labels: 2 * one_hot(labels), one_hot, [1, 2], "values other than 0 and 1"),
    "classes that overlap": (
        lambda labels: one_hot(labels) | (one_hot(labels)[:, [1]] > 0),
        one_hot,
        [1],
        "that overlap",
    ),
    "masks that leave voxels": (lambda labels: one_hot(labels)[:, 1:], lambda labels: labels, [1], "without a class"),
    "a mask for two labels": (
        lambda labels: labels > 0,
        lambda labels: labels,
        [1, 2],
        "a mask for each of .'1', '2'.",
    ),
    "negative floats": (lambda labels: labels[:, None] - 1.0, one_hot, [1], "whole labels in the only channel"),
    "other sizes": (
        lambda labels: labels[:, 1:],
        one_hot,
        [1],
        r"same sizes.*\(case, 8, 10, 8\) and \(case, 3, 9, 10, 8\)",
    ),
    "too many axes": (lambda labels: labels[:, None, None], one_hot, [1], "3 spatial axes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_wrongly_is_refused_in_a_sentence(name):
    given, wanted, labels, message = REFUSED[name]
    preds, target = labels_of(3)
    with pytest.raises(ValueError, match=message) as told:
        SegmentationScore("dice", labels, spacing=(1, 1, 1)).update(given(preds), wanted(target))
    assert "\n" not in str(told.value)


def test_a_head_that_has_learned_nothing_predicts_nothing():
    _, target = labels_of(3)
    score = SegmentationScore("dice", [1, 2], spacing=(1, 1, 1))
    score.update(torch.zeros(2, CLASSES, *target.shape[1:]), target)
    assert score.compute() == 0


def test_metrics_in_mm_ask_for_the_spacing_and_name_themselves():
    preds, target = labels_of(3)
    with pytest.raises(ValueError, match=r"Expected `spacing`.*got none; hd95 needs it: spacing=\(1, 1, 1\)"):
        SegmentationScores([1], ("dice", "hd95")).update(one_hot(preds), target)
    assert not math.isnan(SegmentationScore("dice", [1])(one_hot(preds), target))
