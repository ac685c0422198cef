"""Ensembles: the mean of several checkpoints, the majority of several models."""

import numpy as np
import pytest
import torch
from torch import nn

from medimg_eval.case import Image, Mask, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Segmenter
from medimg_eval.models.segmentation.ensemble import Vote
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.models.segmentation.postprocess import FillHoles
from tests.conftest import AFFINE, LABELS

IMAGE = Image(np.zeros((1, 2, 2, 1), np.float32), AFFINE)


class Says(Segmenter):
    """Gives the answer it was made with."""

    def __init__(self, *answer, grid=None):
        self.answer, self.grid = np.array(answer).reshape(2, 2, 1), grid

    def segment(self, prompts):
        return [self.answer if self.grid is None else Mask(self.answer, self.grid) for _ in prompts]


def vote(*models, **settings):
    return Vote(models, **settings).segment([Prompt("case", (IMAGE,), LABELS)])[0]


def test_the_majority_wins_and_of_equals_the_first_model():
    answer = vote(Says(1, 1, 0, 2), Says(2, 1, 0, 2), Says(2, 0, 1, 1))
    np.testing.assert_array_equal(answer.ravel(), [2, 1, 0, 2])
    np.testing.assert_array_equal(vote(Says(1, 2, 0, 0), Says(2, 0, 0, 1)).ravel(), [1, 2, 0, 0])


def test_majority_equals_counting_votes():
    rng = np.random.default_rng(0)
    maps = [Says(*rng.integers(0, 3, 4)) for _ in range(5)]
    answer = vote(*maps).ravel()
    for voxel, label in enumerate(answer):
        votes = np.bincount([model.answer.ravel()[voxel] for model in maps], minlength=3)
        assert votes[label] == votes.max()


def test_masks_that_bring_a_grid_are_joined_when_the_grids_agree():
    answer = vote(Says(1, 1, 0, 0, grid=AFFINE), Says(1, 0, 0, 0))
    assert isinstance(answer, Mask)
    np.testing.assert_array_equal(answer.labels.ravel(), [1, 1, 0, 0])
    with pytest.raises(CaseError, match="case 'case': the models' masks differ: another affine"):
        vote(Says(1, 1, 0, 0, grid=AFFINE), Says(1, 0, 0, 0, grid=np.eye(4)))


def test_a_vote_prepares_checks_and_postprocesses():
    with pytest.raises(UserError, match="two models or more, got 1"):
        Vote([Says(0, 0, 0, 0)])
    network = MonaiSegmenter(network={"name": "UNet", "channels": [4, 8], "strides": [2]}, roi_size=(2, 2, 2))
    model = Vote([network, Says(1, 1, 1, 1)], postprocess=[FillHoles()])
    with pytest.raises(UserError, match="has no weights"):
        model.check_ready()
    model.prepare(LABELS, lambda: IMAGE)
    assert len(list(model.parameters())) == len(list(network.parameters())) > 0
    assert model.reads_images


def test_a_vote_of_files_reads_no_images():
    class File(Says):
        reads_images = False

    assert not Vote([File(0, 0, 0, 0), File(0, 0, 0, 0)]).reads_images


def test_probabilities_of_several_checkpoints_are_averaged(tmp_path):
    networks = [nn.Conv3d(1, 3, 1) for _ in range(3)]
    for index, network in enumerate(networks):
        torch.save(network.state_dict(), tmp_path / f"{index}.pt")
    paths = [str(tmp_path / f"{index}.pt") for index in range(3)]
    model = MonaiSegmenter(network=nn.Conv3d(1, 3, 1), checkpoint=paths, roi_size=(4, 4, 4), sw_batch_size=2)
    pixels = np.random.default_rng(0).normal(0, 3, (1, 7, 6, 5)).astype(np.float32)
    image = Image(pixels, AFFINE)
    with torch.inference_mode():
        (answer,) = model.segment([Prompt("case", (image,), LABELS)])
        mean = sum(network(torch.from_numpy(pixels)[None]).softmax(1) for network in networks)
    first, second = mean[0].topk(2, dim=0).values
    sure = (first - second > 1e-5).numpy()  # among equals rounding decides
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(answer[sure], mean.argmax(1)[0].numpy()[sure])
    model.prepare(LABELS, lambda: image)
    assert len(model.one_pass().run(torch.zeros(1, 1, 4, 4, 4))) == 3
    with pytest.raises(UserError, match="expected one network"):
        model.training_samples(image, Mask(np.zeros((7, 6, 5), int), AFFINE), LABELS, seed=0)
