"""Two classifiers merged at test time."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import nn

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models import MergedClassifier
from medimg_eval.models.classification import Classifier

LABELS = {1: "a", 2: "b", 3: "c"}


class Linear(Classifier):
    """Softmax of a linear layer on the means of a picture's channels, and a count that is no weight."""

    def __init__(self, seed, width=3):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width)).eval()
        self.network[1].num_batches_tracked += seed

    def check_ready(self):
        pass

    def prepare(self, labels, example):
        pass

    def classify(self, prompts):
        seen = torch.tensor(np.stack([p.image.array.mean((1, 2)) for p in prompts]), dtype=torch.float32)
        said = self.network(seen).softmax(-1).detach().double().numpy()
        return [dict(zip(LABELS.values(), row.tolist(), strict=True)) for row in said]


def prompts(count=6):
    rng = np.random.default_rng(0)
    pictures = [Image(rng.normal(size=(2, 4, 4)) * 5, np.eye(4)) for _ in range(count)]
    return [
        Prompt(f"c{at}", (one,), LABELS, options={str(k): v for k, v in LABELS.items()})
        for at, one in enumerate(pictures)
    ]


def merged(**settings):
    made = MergedClassifier(Linear(1), Linear(2), **settings)
    made.prepare(LABELS, None)
    return made


def values(answers):
    return np.array([list(answer.values()) for answer in answers])


def by_hand(prompt, share):
    """The answer of weights that are averaged here."""
    one, other, made = Linear(1), Linear(2), Linear(3)
    with torch.no_grad():
        for weight, left, right in zip(*(m.network.parameters() for m in (made, one, other)), strict=True):
            weight.copy_(share * left + (1 - share) * right)
    return values(made.classify([prompt]))[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_fixed_share_averages_weights(share):
    asked = prompts()
    found = values(merged(rule="fixed", share=share).classify(asked))
    assert found == pytest.approx(np.stack([by_hand(prompt, share) for prompt in asked]), abs=1e-6)
    if share in (0, 1):
        assert found == pytest.approx(values(Linear(1 if share else 2).classify(asked)), abs=1e-6)


def test_t3_takes_the_share_from_what_both_say():
    asked = prompts()
    model = merged(rule="t3", low=0.2, high=0.9, gamma=3.0)
    found = values(model.classify(asked))
    one, other = (values(Linear(seed).classify(asked)) for seed in (1, 2))
    distance = np.array([jensenshannon(p, q) ** 2 for p, q in zip(one, other, strict=True)])  # in nats
    shares = 0.2 + 0.7 / (1 + np.exp(-3.0 * distance))
    assert [model.shares[prompt.case_id] for prompt in asked] == pytest.approx(shares)
    assert found == pytest.approx(np.stack([by_hand(p, s) for p, s in zip(asked, shares, strict=True)]), abs=1e-6)


def test_company_changes_an_answer_of_a_batch_and_of_no_other_rule():
    asked = prompts()
    for rule, same in (("t3", True), ("t3_batch", False), ("fixed", True), ("ensemble", True)):
        together = values(merged(rule=rule, gamma=5.0).classify(asked))
        alone = np.concatenate([values(merged(rule=rule, gamma=5.0).classify([prompt])) for prompt in asked])
        assert bool(np.abs(together - alone).max() < 1e-6) == same, rule


def test_the_published_gamma_hardly_moves_the_share():
    model = merged()
    model.classify(prompts(40))
    assert all(0.5 <= share <= 1 / (1 + math.exp(-0.5 * math.log(2))) for share in model.shares.values())


def test_an_ensemble_averages_probabilities():
    asked = prompts()
    one, other = (values(Linear(seed).classify(asked)) for seed in (1, 2))
    assert values(merged(rule="ensemble", share=0.25).classify(asked)) == pytest.approx(0.25 * one + 0.75 * other)


def test_counters_are_those_of_the_general_model_and_both_models_stay():
    model = merged(rule="fixed", share=0.5)
    before = values(Linear(2).classify(prompts()))
    model.classify(prompts())
    assert int(model._with_share(0.5).network[1].num_batches_tracked) == 1
    assert values(model.tuned.classify(prompts())) == pytest.approx(before)


def test_others_are_refused():
    other = MergedClassifier(Linear(1), Linear(2, width=4))
    with pytest.raises(UserError, match="differ in 6 weights, the first being 0.bias"):
        other.prepare(LABELS, None)
    with pytest.raises(UsageError, match="rule"):
        merged(rule="t4")
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        merged(share=1.5)
