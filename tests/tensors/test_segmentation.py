"""Metrics on tensors: the same numbers as NumPy's, and torchmetrics that gather them."""

import math

import gathering
import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection

from medimg_eval import metrics
from medimg_eval.errors import UsageError
from medimg_eval.metrics.segmentation.label_maps import LabelMapPair
from medimg_eval.tensors import SegmentationScore, SegmentationScores, segmentation_scores
from medimg_eval.tensors._maps import TensorMaps
from medimg_eval.tensors._nearest import by_pairs, by_tree

ASKED = ("dice", "iou", "hd", "hd95", "assd", "nsd@1", "nsd@2.4", "volume_error")
SHAPES = [((17, 23), (1.0, 1.0)), ((12, 9, 14), (0.8, 0.8, 5.0)), ((1, 7, 9), (3.0, 0.5, 1.0)), ((40, 6, 5), (1, 1, 1))]


def noise(seed, shape, labels):
    """A reference of noise in blocks, and a prediction that agrees with most of it."""
    rng = np.random.default_rng(seed)
    blocks = rng.choice([0, *labels], [-(-size // 3) for size in shape])
    reference = np.kron(blocks, np.ones([3] * len(shape), int))[tuple(map(slice, shape))]
    return reference, np.where(rng.random(shape) < 0.8, reference, rng.choice([0, *labels[:2]], shape))


def same(one, other):
    assert [score[:2] + score[3:] for score in one] == [score[:2] + score[3:] for score in other]
    np.testing.assert_allclose([score.value for score in one], [score.value for score in other], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("surface", ["voxel", "surfel"])
@pytest.mark.parametrize(("shape", "spacing"), SHAPES)
def test_scores_are_those_of_numpy(shape, spacing, surface):
    for seed, highest in enumerate((7, 3000, 2_000_000)):  # looked up in a table, and searched for
        labels = [1, 2, 5, highest]
        reference, prediction = noise(seed, shape, labels)
        options = {"labels": [*labels, 9], "metrics": ASKED, "surface": surface}
        wanted = metrics.segmentation_scores(reference, prediction, spacing, **options)
        same(segmentation_scores(torch.tensor(reference), torch.tensor(prediction), spacing, **options), wanted)


@pytest.mark.parametrize("surface", ["voxel", "surfel"])
def test_regions_that_overlap_and_ignored_voxels_are_judged_as_by_numpy(surface):
    reference, prediction = noise(3, (13, 12, 11), [1, 2, 3, 4])
    options = {"labels": {"whole": [1, 2, 3], "core": [1, 3], "rest": [2]}, "ignore": 4, "surface": surface}
    wanted = metrics.segmentation_scores(reference, prediction, (1, 2, 3), metrics=ASKED, **options)
    found = segmentation_scores(torch.tensor(reference), torch.tensor(prediction), (1, 2, 3), metrics=ASKED, **options)
    same(found, wanted)


@pytest.mark.parametrize("surface", ["voxel", "surfel"])
def test_points_far_from_each_other_are_measured_exactly(surface):
    reference, prediction = np.zeros((2, 60, 8, 7), np.uint8)
    reference[2:5, 1:4, 1:5], reference[50:58, 4:7, 2:3] = 1, 2
    prediction[40:47, 2:6, 3:6], prediction[45:58, 4:7, 2:3] = 1, 2
    options = {"labels": [1, 2], "metrics": ASKED, "surface": surface}
    wanted = metrics.segmentation_scores(reference, prediction, (1.5, 1, 1), **options)
    same(segmentation_scores(torch.tensor(reference), torch.tensor(prediction), (1.5, 1, 1), **options), wanted)


def test_all_pairs_find_the_targets_that_a_tree_finds(monkeypatch):
    from medimg_eval.tensors import _nearest

    monkeypatch.setattr(_nearest, "PAIRS", 500)  # several pieces
    points, targets = (torch.tensor(np.random.default_rng(seed).integers(0, 50, (90, 3))) for seed in (0, 1))
    spacing = (0.7, 1.1, 3.0)
    lengths = [
        ((points - targets[found]) * torch.tensor(spacing)).norm(dim=1)
        for found in (by_pairs(points, targets, spacing), by_tree(points, targets, spacing))
    ]
    assert torch.allclose(*lengths, rtol=1e-12)


@pytest.mark.parametrize("empty", ["worst", "monai", {"absent": "best", "distance": 374}])
def test_empty_masks_follow_the_policy(empty):
    reference, prediction = torch.zeros(2, 6, 5, 4, dtype=torch.int16)
    reference[:2, 1:3], prediction[3:, 1:3] = 1, 2
    options = {"labels": [1, 2, 3], "metrics": ASKED, "empty": empty}
    wanted = metrics.segmentation_scores(reference.numpy(), prediction.numpy(), (1, 1, 2), **options)
    same(segmentation_scores(reference, prediction, (1, 1, 2), **options), wanted)
    nothing = torch.zeros_like(reference)
    wanted = metrics.segmentation_scores(nothing.numpy(), nothing.numpy(), (1, 1, 2), **options)
    same(segmentation_scores(nothing, nothing, (1, 1, 2), **options), wanted)


def test_masks_and_boxes_are_those_of_numpy():
    reference, prediction = noise(5, (14, 9, 8), [1, 2, 3])
    reference[:, :2] = prediction[:, :2] = 0
    ours = LabelMapPair(reference, prediction, (1.0, 1.0, 2.0), [(1,), (3, 2), (8,)], "voxel")
    theirs = TensorMaps(
        torch.tensor(reference), torch.tensor(prediction), (1.0, 1.0, 2.0), [(1,), (3, 2), (8,)], "voxel"
    )
    for region in range(3):
        assert theirs.sizes(region) == ours.sizes(region)
        for one, other in zip(theirs.masks(region), ours.masks(region), strict=True):
            np.testing.assert_array_equal(one, other)
        if region < 2:
            assert theirs.box(region) == ours.box(region)


def test_masks_that_overlap_are_judged_as_by_numpy():
    rng = np.random.default_rng(0)
    reference, prediction = rng.random((2, 3, 8, 9, 7)) < 0.3
    options = {"labels": ["WT", "TC", "ET"], "metrics": ASKED}
    wanted = metrics.segmentation_scores(reference, prediction, (1, 1, 1), **options)
    same(segmentation_scores(torch.tensor(reference), torch.tensor(prediction), (1, 1, 1), **options), wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64])
def test_any_integers_in_any_memory_order_will_do(dtype):
    reference, prediction = noise(1, (10, 11, 12), [1, 2])
    turned = [torch.tensor(one).to(dtype).permute(2, 0, 1) for one in (reference, prediction)]
    wanted = metrics.segmentation_scores(
        reference.transpose(2, 0, 1), prediction.transpose(2, 0, 1), (1, 2, 3), labels=[1, 2]
    )
    same(segmentation_scores(*turned, (1, 2, 3), labels=[1, 2]), wanted)


@pytest.mark.parametrize(
    ("reference", "prediction", "spacing", "labels", "message"),
    [
        (torch.zeros(3, 3), torch.zeros(3, 3), (1, 1), [1], "integer label map"),
        (torch.zeros(3, 3, dtype=torch.int8), torch.zeros(3, 2, dtype=torch.int8), (1, 1), [1], "shape and device"),
        (
            torch.zeros(3, 3, dtype=torch.int8),
            torch.zeros(3, 3, dtype=torch.int8),
            (1, 1, 1),
            [1],
            "one spacing per axis",
        ),
        (torch.zeros(3, 3, dtype=torch.bool), torch.zeros(3, 3, dtype=torch.int8), (1, 1), [1], "boolean masks"),
        (torch.zeros(2, 3, 3).bool(), torch.zeros(2, 3, 3).bool(), (1, 1), ["a"], "name each of 2 masks"),
    ],
)
def test_what_is_no_pair_of_maps_is_refused(reference, prediction, spacing, labels, message):
    with pytest.raises(ValueError, match=message):
        segmentation_scores(reference, prediction, spacing, labels=labels)


def batch():
    """Three cases; label 2 is missed in the first and absent from the last."""
    target = torch.zeros(3, 6, 6, dtype=torch.long)
    target[:, 1:4, 1:4] = 1
    target[:2, 5, 2:5] = 2
    preds = torch.roll(target, 1, dims=2)
    preds[0][preds[0] == 2] = 0
    return preds, target


def expected(mean, metric, empty="worst"):
    rows = [
        metrics.segmentation_scores(target, preds, (1, 2), labels=[1, 2], metrics=[metric], empty=empty)
        for preds, target in zip(*(one.numpy() for one in batch()), strict=True)
    ]
    values = np.array([[score.value for score in row] for row in rows])
    if mean == "none":
        return np.nanmean(values, axis=0)
    return np.nanmean(np.nanmean(values, axis=1 if mean == "case" else 0))


@pytest.mark.parametrize("mean", ["case", "class", "none"])
def test_means_are_named_and_leave_out_what_is_not_there(mean):
    scores = SegmentationScores({1: "a", 2: "b"}, ("dice", "hd95"), spacing=(1, 2), mean=mean)
    preds, target = batch()
    scores.update(preds[:1], target[:1])
    scores.update(preds[1:], target[1:])
    for name, value in scores.compute().items():
        np.testing.assert_allclose(value, expected(mean, name), rtol=1e-12)
    scores.reset()
    scores.update(target, target)
    assert scores.compute()["dice"].tolist() == ([1, 1] if mean == "none" else 1)


def test_classes_may_be_channels():
    preds, target = batch()
    channels = torch.nn.functional.one_hot(preds, 3).movedim(-1, 1)
    for given in (channels, channels.bool(), channels * 3.0 - torch.rand(channels.shape)):
        score = SegmentationScore("dice", [1, 2], spacing=(1, 2))
        score.update(given, target)
        assert score.compute().item() == pytest.approx(expected("case", "dice"))
    score = SegmentationScore("dice", [1, 2], spacing=(1, 2))
    score.update(channels, torch.nn.functional.one_hot(target, 3).movedim(-1, 1))
    assert score.compute().item() == pytest.approx(expected("case", "dice"))


def test_boolean_channels_of_both_sides_are_masks_that_may_overlap():
    preds, target = batch()
    one, other = (torch.stack([found > 0, found == 1], dim=1) for found in (preds, target))
    score = SegmentationScore("dice", ["whole", "core"], spacing=(1, 2), mean="none")
    score.update(one, other)
    wanted = SegmentationScore("dice", {"whole": [1, 2], "core": [1]}, spacing=(1, 2), mean="none")
    wanted.update(preds, target)
    assert score.compute().tolist() == wanted.compute().tolist()


def test_a_step_gives_the_value_of_its_batch_and_keeps_all():
    preds, target = batch()
    score = SegmentationScore("dice", [1, 2], spacing=(1, 2))
    assert score(target[:2], target[:2]).item() == 1
    assert score(preds[:1], target[:1]).item() < 0.5
    assert score.compute().item() == pytest.approx((2 + score(preds[:1], target[:1]).item()) / 3)


def test_each_case_may_have_its_own_spacing():
    preds, target = batch()
    score = SegmentationScore("hd", [1], empty="monai")
    score.update(preds, target, torch.tensor([[1.0, 1.0], [1.0, 3.0], [1.0, 5.0]]))
    assert score.compute().item() == 3
    with pytest.raises(ValueError, match="each of 3 cases"):
        score.update(preds, target, [[1.0, 1.0]])
    with pytest.raises(ValueError, match="Expected `spacing`"):
        score.update(preds, target)


def test_a_collection_keeps_apart_metrics_that_look_alike_at_first():
    _, target = batch()
    both = MetricCollection(
        {
            name: SegmentationScore("assd", [1], spacing=(1, 2), surface=name, mean=mean)
            for name, mean in (("voxel", "case"), ("surfel", "class"))
        }
    )
    both.update(target, target)  # no distance at all by either
    both.update(target.roll((1, 2), (1, 2)), target)
    alone = SegmentationScore("assd", [1], spacing=(1, 2), surface="surfel")
    alone.update(target, target)
    alone.update(target.roll((1, 2), (1, 2)), target)
    found = both.compute()
    assert found["surfel"] == alone.compute()
    assert found["voxel"] != found["surfel"]


def test_directions_and_mistakes_are_known():
    assert SegmentationScore("dice", [1]).higher_is_better
    assert not SegmentationScore("hd95", [1]).higher_is_better
    with pytest.raises(UsageError, match="got 'clas'"):
        SegmentationScores([1], mean="clas")
    with pytest.raises(UsageError, match="dice"):
        SegmentationScores([1], ("dise",))
    with pytest.raises(UsageError, match="tolerance"):
        SegmentationScores([1], ("nsd",))
    score = SegmentationScore("dice", [1], spacing=(1, 1))
    with pytest.raises(ValueError, match="as many predictions"):
        score.update(*(one[:count] for one, count in zip(batch(), (2, 3), strict=True)))
    with pytest.raises(ValueError, match="channel per class"):
        score.update(batch()[0].float(), batch()[1])


def test_nothing_to_judge_is_nan():
    score = SegmentationScore("hd95", [4], spacing=(1, 1))
    score.update(*batch())
    assert math.isnan(score.compute().item())


@pytest.mark.slow
def test_processes_with_unequal_shares_or_none_get_what_one_process_gets(tmp_path):
    shards = [([0, 1, 2], [3, 4]), ([0, 1, 2, 3], [4]), ([0, 1, 2, 3, 4], []), ([], [0, 1, 2, 3, 4])]
    torch.multiprocessing.spawn(gathering.gather, (tmp_path / "store", shards, tmp_path), nprocs=2)
    alone = SegmentationScores([1, 2], ("dice", "hd95"), mean="none")
    for prediction, target, spacing in gathering.cases():
        alone.update(prediction[None], target[None], spacing)
    for rank in range(2):
        for shard, (value, kept) in zip(shards, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            for name, wanted in alone.compute().items():
                torch.testing.assert_close(value[name], wanted, rtol=1e-12, atol=0)
            assert kept == len(shard[rank])  # what was gathered was given back
