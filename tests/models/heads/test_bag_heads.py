"""Heads on bags: packed bags, losses worked out by hand, and a tile that only attention finds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads import PackedBags, Targets, load_head, make_head
from medimg_eval.models.heads.bag_heads import WORK, Teacher, discrete_time_loss, limited_threads
from medimg_eval.models.heads.bag_networks import Dropout, pseudo_inverse
from medimg_eval.models.heads.bags import sampled

SMALL = {"rate": 1e-3, "batch": 4, "epochs": 2}
HEADS = {
    "mean": {"name": "pooled", "hidden": 8},
    "max": {"name": "pooled", "how": "max", "hidden": 8},
    "abmil": {"name": "abmil", "hidden": 8, "attention": 4, "gated": False},
    "gated": {"name": "abmil", "hidden": 8, "attention": 4, "members": 2},
    "clam_sb": {"name": "clam", "hidden": 8, "attention": 4, "instances": 2},
    "clam_mb": {"name": "clam", "hidden": 8, "attention": 4, "instances": 2, "branches": "multiple"},
    "dsmil": {"name": "dsmil", "attention": 4},
    "transmil": {"name": "transmil", "hidden": 8, "heads": 2, "landmarks": 4},
}
WITHOUT_WEIGHTS = ("mean", "max", "transmil")


def bags(count, tiles=60, width=32, seed=0):
    """In bags of odd number one tile, the witness, has + 3 in four dimensions."""
    random = np.random.default_rng(seed)
    made, witnesses = [], random.integers(0, tiles, count)
    for number in range(count):
        bag = random.standard_normal((tiles, width)).astype(np.float32)
        bag[witnesses[number], :4] += 3 * (number % 2)
        made.append(bag)
    return made, np.arange(count) % 2, witnesses


def two(codes):
    return Targets("exclusive", ("absent", "present"), np.eye(2)[codes])


def uneven(count=9, width=6, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal((1 + place, width)).astype(np.float32) for place in range(count)]


def test_attention_finds_the_tile_that_tells_a_bag_from_others():
    known, codes, _ = bags(400)
    asked, truth, witnesses = bags(100, seed=1)
    head = make_head(
        {"name": "abmil", "hidden": 64, "attention": 32, "dropout": 0.0, "rate": 3e-3, "batch": 8, "epochs": 10}
    ).fit(known, two(codes))
    shares, weights = head.explain(asked)
    assert roc_auc_score(truth, shares[:, 1]) > 0.97
    assert np.mean([weights[place].argmax() == witnesses[place] for place in range(1, 100, 2)]) > 0.9
    assert all(one.sum() == pytest.approx(1, abs=1e-5) for one in weights)


@pytest.mark.slow
def test_a_witness_is_found_by_attention_and_lost_in_a_mean():
    """200 bags of each kind: AUROC about 0.994 by attention, 0.727 by mean pooling, 0.699 of means (other draws)."""
    known, codes, _ = bags(400)
    asked, truth, witnesses = bags(400, seed=1)
    shared = {"hidden": 64, "dropout": 0.0, "rate": 1e-3, "batch": 16, "epochs": 40}
    head = make_head({"name": "abmil", "attention": 32, **shared}).fit(known, two(codes))
    shares, weights = head.explain(asked)
    assert roc_auc_score(truth, shares[:, 1]) == pytest.approx(0.994, abs=0.01)
    assert np.mean([weights[place].argmax() == witnesses[place] for place in range(1, 400, 2)]) > 0.97
    pooled = make_head({"name": "pooled", **shared}).fit(known, two(codes))
    assert roc_auc_score(truth, pooled.predict(asked)[:, 1]) == pytest.approx(0.727, abs=0.08)
    means = [np.stack([bag.mean(0) for bag in some]) for some in (known, asked)]
    linear = make_head({"name": "logistic", "C": 1}).fit(means[0], two(codes))
    assert roc_auc_score(truth, linear.predict(means[1])[:, 1]) == pytest.approx(0.699, abs=0.08)


@pytest.mark.parametrize("which", HEADS)
def test_bags_together_are_as_bags_alone_and_as_saved(which, tmp_path):
    known = uneven()
    head = make_head(SMALL | HEADS[which]).fit(known, two(np.arange(9) % 2))
    together, weights = head.explain(known)
    alone = [head.explain([bag]) for bag in known]
    np.testing.assert_allclose(together, np.concatenate([values for values, _ in alone]), atol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-9)
    if which in WITHOUT_WEIGHTS:
        assert weights == [None] * 9
    else:
        assert [len(one) for one in weights] == [len(bag) for bag in known]
        for one, (_, (other,)) in zip(weights, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    head.save(tmp_path)
    np.testing.assert_array_equal(load_head(tmp_path).predict(known), together)
    again = make_head(SMALL | HEADS[which]).fit(known, two(np.arange(9) % 2))
    np.testing.assert_array_equal(again.predict(known), together)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_the_order_of_tiles_does_not_matter_to_attention(lengths, random):
    known = uneven()
    head = make_head(SMALL | HEADS["gated"] | {"epochs": 1, "members": 1}).fit(known, two(np.arange(9) % 2))
    shown = [known[length] for length in lengths]
    turned = [bag[random.sample(range(len(bag)), len(bag))] for bag in shown]
    np.testing.assert_allclose(head.predict(turned), head.predict(shown), atol=1e-6)


@pytest.mark.parametrize("kind", ["classes", "numbers", "survival"])
def test_the_loss_follows_what_is_asked(kind):
    known, codes, _ = bags(60, tiles=10, width=8)
    values = {
        "classes": np.stack([codes, np.where(codes, np.nan, 1 - codes * 1.0)], 1),
        "numbers": np.stack([100 + 5.0 * codes], 1),
        "survival": np.stack([10 - 6.0 * codes + np.arange(60) % 3, np.arange(60) % 5 > 0], 1),
    }[kind]
    if kind == "classes":
        values[0, 1] = 0
    names = {"classes": ("a", "b"), "numbers": ("n",), "survival": ("time", "event")}[kind]
    head = make_head(
        {"name": "pooled", "how": "max", "hidden": 16, "rate": 1e-2, "epochs": 12, "batch": 8, "dropout": 0.0}
    )
    said = head.fit(known, Targets(kind, names, values.astype(float))).predict(known)
    assert said.shape == (60, 2 if kind == "classes" else 1)
    assert said[codes == 1, 0].mean() > said[codes == 0, 0].mean() + (2 if kind == "numbers" else 0.1)


def test_the_likelihood_of_discrete_times_is_the_one_worked_out_by_hand():
    logits = torch.tensor([[0.2, -0.5, 1.0, 0.3], [-1, 0, 0.5, 2]])
    for place, interval, event, wanted in ((0, 2, 1.0, 1.5855), (1, 1, 0.0, 1.0064)):
        loss = discrete_time_loss(logits[[place]], torch.tensor([interval]), torch.tensor([event]))
        assert float(loss) == pytest.approx(wanted, abs=1e-4)
    head = make_head("abmil")
    head.facts = {"kind": "survival"}
    assert head._answers(logits.double().numpy())[:, 0] == pytest.approx([-0.8378, -1.2510], abs=1e-4)


def test_intervals_of_time_are_quarters_of_the_times_of_events():
    values = np.array([[1.0, 1], [2, 1], [3, 1], [4, 1], [5, 1], [9, 0]])
    teacher = Teacher.of(Targets("survival", ("time", "event"), values), balanced=True)
    assert teacher.edges.tolist() == [0, 2, 3, 4, np.inf]
    assert teacher.truth[:, 0].tolist() == [0, 1, 2, 3, 3, 3]


def test_tiles_are_drawn_to_learn_and_all_are_shown_when_asked():
    bag = np.arange(20.0)[:, None]
    drawn = sampled(bag, 5, np.random.default_rng(0))[:, 0]
    assert len(set(drawn.tolist())) == 5
    assert (np.diff(drawn) > 0).all()
    assert sampled(bag, None, np.random.default_rng(0)) is bag
    head = make_head(SMALL | HEADS["abmil"] | {"tiles": 2}).fit(uneven(), two(np.arange(9) % 2))
    assert [len(one) for one in head.explain(uneven())[1]] == list(range(1, 10))


def test_bags_beyond_memory_go_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("medimg_eval.models.heads.bags.IN_MEMORY", 100)
    packed = PackedBags.of(iter(uneven()), tmp_path / "bags")
    assert all(isinstance(bag, np.memmap) for bag in packed)
    for one, other in zip(packed, uneven(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_small_bags_take_one_thread_and_large_ones_no_more_than_were_allowed():
    before = torch.get_num_threads()
    network = torch.nn.Linear(10, 10)  # 110 parameters
    try:
        torch.set_num_threads(2)
        with limited_threads(network, 1000):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        with limited_threads(network, WORK):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    layer, rows = Dropout(share), torch.ones(301, 333, requires_grad=True)
    shown = layer.train()(rows)
    assert shown.detach().unique().tolist() == [0, pytest.approx(1 / (1 - share))]
    assert float((shown == 0).float().mean()) == pytest.approx(share, abs=0.005)
    shown.sum().backward()
    torch.testing.assert_close(rows.grad, shown.detach())
    assert layer.eval()(rows) is rows
    assert Dropout(0.0).train()(rows) is rows


def test_a_pseudo_inverse_of_what_is_nearly_the_identity_is_its_inverse():
    matrix = torch.eye(5)[None] + 0.1 * torch.rand(1, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(pseudo_inverse(matrix) @ matrix, torch.eye(5), atol=1e-4)


def test_what_cannot_be_a_bag_is_named():
    with pytest.raises(UserError, match="bag 1: expected features"):
        PackedBags.of([np.ones((2, 3)), np.ones((0, 3))])
    with pytest.raises(UserError, match="bag 1: features have length 4, expected 3"):
        PackedBags.of([np.ones((2, 3)), np.ones((2, 4))])
    head = make_head(SMALL | HEADS["mean"]).fit(uneven(), two(np.arange(9) % 2))
    with pytest.raises(UserError, match="length 5, expected 6"):
        head.predict(uneven(width=5))
    with pytest.raises(UsageError, match="from 1"):
        make_head({"name": "abmil", "epochs": 0})
