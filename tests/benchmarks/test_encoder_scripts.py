"""Systems of encoders and risk beside their authors' programs: networks of bags, losses, lists and printed scores."""

import logging
from statistics import mean

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sklearn_metrics

from medimg_eval.case import Findings
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import picture, task
from tests.metrics.classification.test_single_choice import rows_of, value

pytestmark = pytest.mark.slow


def test_gpfms_attention_network_gives_the_same_logits():
    torch = pytest.importorskip("torch")
    from medimg_eval.models.heads.bag_networks import AttentionNetwork
    from medimg_eval.models.heads.bags import Batch

    class Base(torch.nn.Module):
        def __init__(self, task):
            super().__init__()
            self.task_adapter = lambda logits: (logits, None, None)

    path = require_clone("birkhoffkiki/GPFM") / "mil_models/att_mil.py"
    given = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "BaseMILModel": Base}
    torch.manual_seed(0)
    theirs = load_functions(path, "DAttention", **given)["DAttention"](12, 3, dropout=True, act="relu").eval()
    ours = AttentionNetwork(12, 3, hidden=512, attention=128, gated=False, dropout=0.25).eval()
    parts = {"project.0": "feature.0", "attend": "attention.0", "weigh": "attention.2", "classify": "classifier.0"}
    held = theirs.state_dict()
    ours.load_state_dict({f"{a}.{kind}": held[f"{b}.{kind}"] for a, b in parts.items() for kind in ("weight", "bias")})
    bag = torch.randn(9, 12)
    with torch.no_grad():
        told, answer = theirs(bag), ours(Batch([bag.numpy()], torch.device("cpu")))
    np.testing.assert_allclose(answer.logits, told["wsi_logits"], atol=1e-6)
    np.testing.assert_allclose(answer.attention, told["attention"].softmax(-1)[0], atol=1e-6)


def test_gpfms_loss_of_discrete_times_is_ours():
    torch = pytest.importorskip("torch")
    from medimg_eval.models.heads.bag_heads import discrete_time_loss

    path = require_clone("birkhoffkiki/GPFM") / "utils/survival_utils.py"
    theirs = load_functions(path, "nll_loss", torch=torch)["nll_loss"]
    torch.manual_seed(0)
    logits, interval = torch.randn(40, 4), torch.randint(0, 4, (40,))
    censored = torch.randint(0, 2, (40,))
    told = theirs(logits.sigmoid(), None, interval, censored, alpha=0.0)
    assert float(discrete_time_loss(logits, interval, 1.0 - censored)) == pytest.approx(float(told), abs=1e-5)


def test_swinchexs_released_lists_and_printed_auc_are_ours(tmp_path):
    torch = pytest.importorskip("torch")
    clone = require_clone("rohban-lab/SwinCheX")
    released = {split: pd.read_csv(clone / f"configs/NIH/{split}.csv") for split in ("train", "validation", "test")}
    assert {split: len(table) for split, table in released.items()} == {
        "train": 69_438,
        "validation": 17_086,
        "test": 25_596,
    }
    patients = {split: set(table["Image Index"].str[:8]) for split, table in released.items()}
    assert not patients["test"] & (patients["train"] | patients["validation"])
    (tmp_path / "configs/NIH").mkdir(parents=True)
    for split, table in released.items():  # the first images of each list, as stand-ins
        table.head(300).to_csv(tmp_path / f"configs/NIH/{split}.csv", index=False)
        for name in table["Image Index"].head(300):
            picture(tmp_path / f"images_001/images/{name}", np.zeros((4, 4), np.uint8))
    read = load_functions(
        clone / "models/custom_image_folder.py",
        "MyDatasetFolder", "default_loader",
        VisionDataset=object, torch=torch, pd=pd, np=np, os=__import__("os"), Any=object, IMG_EXTENSIONS=(),
    )["MyDatasetFolder"].make_custom_dataset  # fmt: skip
    swinchex = task("swinchex_nih", tmp_path)
    samples = read("", tmp_path / "configs/NIH/test.csv")
    theirs = {path: Findings(dict(zip(swinchex.classes, map(float, found), strict=True))) for path, found in samples}
    assert {case.id: case.target.read() for case in swinchex.cases("test")} == theirs

    # Its main.py: AUC of each finding by the second of two softmax outputs, and their plain mean.
    random = np.random.default_rng(0)
    truth = released["test"].iloc[:2000, 1:].to_numpy() > 0
    logits = random.normal(size=(14, 2000, 2)) + truth.T[..., None] * [0.0, 0.8]
    shares = torch.from_numpy(logits).softmax(-1).numpy()[..., 1].T
    printed = mean(sklearn_metrics.roc_auc_score(truth[:, at], shares[:, at]) for at in range(14))
    assert value("auroc@macro", rows_of(truth, shares, exclusive=False)) == pytest.approx(printed, abs=1e-12)


def test_benchxs_printed_scores_are_ours():
    torch = pytest.importorskip("torch")
    path = require_clone("yangzhou12/BenchX") / "unifier/blocks/scorers/scores.py"
    names = ("roc_auc_score", "precision_recall_curve", "accuracy_score", "precision_score", "recall_score", "f1_score")
    score = load_functions(
        path, "compute_scores", np=np, torch=torch, F=torch.nn.functional, os=__import__("os"), logging=logging,
        **{name: getattr(sklearn_metrics, name) for name in names},
    )["compute_scores"]  # fmt: skip
    random = np.random.default_rng(1)
    truth = random.random((400, 14)) < 0.2
    logits = random.normal(size=truth.shape) + 1.2 * truth - 1
    shares = 1 / (1 + np.exp(-logits))
    asked = ["multilabel_auroc", "multilabel_accuracy"]
    told = score(asked, truth.astype(float), logits, "test", 0, None, 0, None, dump=False)
    assert value("auroc@macro", rows_of(truth, shares, exclusive=False)) == pytest.approx(
        told["multilabel_auroc"], abs=1e-12
    )
    # Its F1 of NIH and VinDr is at the threshold of the best micro F1 of the very test set; ours is at 0.5.
    precision, recall, thresholds = sklearn_metrics.precision_recall_curve(truth.ravel(), shares.ravel())
    best = thresholds[np.argmax(2 * precision[:-1] * recall[:-1] / (precision[:-1] + recall[:-1]))]
    moved = np.where(shares > best, 0.9, 0.1)
    assert round(100 * value("f1_score@macro", rows_of(truth, moved, exclusive=False)), 2) == told["macro_f1"]

    one_of_two = np.eye(2)[random.integers(0, 2, 200)]
    logits = random.normal(size=(200, 2)) + one_of_two
    told = score(["multiclass_f1"], one_of_two, logits, "test", 0, None, 0, None, dump=False)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert round(100 * value("f1_score@g1", rows_of(one_of_two.argmax(1), shares)), 2) == told["multiclass_f1"]
