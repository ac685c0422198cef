"""What a reconstruction is worth to a segmentation: stored reconstructions in the place of a task's own images."""

from __future__ import annotations

import json
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest

from medimg_eval.data.layouts import Reconstructed
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.baselines.gaussian_mixture import GaussianMixture
from medimg_eval.models.reconstruction.linear import SenseCombine, ZeroFilled
from medimg_eval.phantoms.multicoil import MulticoilPhantom, MulticoilTissue
from medimg_eval.results import load_runs
from medimg_eval.tasks import SegmentationTask
from medimg_eval.tasks.reconstruction import ReconstructionTask
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

LABELS = {1: "grey matter", 2: "white matter"}


def tissue_of(layout):
    return SegmentationTask(name="tissue", layout=layout, labels=LABELS, metrics=["dice"], splits={"test": "test"})


class Broken(ZeroFilled):
    """Not of the scans that are eight times faster."""

    def reconstruct(self, prompts):
        if prompts[0].case_id.endswith("r8"):
            raise ValueError("no")
        return super().reconstruct(prompts)


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    """Four scans of one patient, and runs that reconstructed them."""
    root = str(tmp_path_factory.mktemp("phantoms") / "multicoil")
    runs = tmp_path_factory.mktemp("runs")
    task = ReconstructionTask(
        name="multicoil",
        layout=MulticoilPhantom(count=1, slices=1, root=root),
        metrics=["nmse"],
        monitor="nmse",
        splits={"test": "test"},
    )
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False, logger=False
    )
    settings = Settings(runs=runs, run=None, trainer=trainer, config={}, score_workers=0)
    folders = {
        made.__name__: evaluate(task, ModelSpec(made.__name__, made, {}, made), settings)
        for made in (ZeroFilled, SenseCombine, Broken)
    }
    return root, folders


def layout_of(root):
    return MulticoilTissue(count=1, slices=1, root=root)


def dice(layout):
    task = tissue_of(layout)
    model = GaussianMixture(share=0.3)
    found = {}
    for case in task.cases("test"):
        prompt = task.prompt(case, task.read_images(case))
        found[case.id] = np.mean([one.value for one in task.score(case, task.ask(model, [prompt])[0])])
    return found


def test_tissue_is_bent_as_the_patient_is(phantoms):
    case = layout_of(phantoms[0]).cases("test")[0]
    image, mask = case.images[0].read(), case.target.read()
    assert image.array.shape[1:] == mask.labels.shape == (1, 224, 192)
    assert case.target.geometry().difference(case.images[0].geometry()) is None
    means = [float(image.array[0][mask.labels == label].mean()) for label in (0, 1, 2)]
    assert means[0] < 0.7 * means[1] < 0.7 * means[2]
    others = layout_of(phantoms[0]).cases("test")[1:]
    assert all(np.array_equal(other.target.read().labels, mask.labels) for other in others)  # one patient


def test_all_samples_are_worth_more_than_sense_and_that_more_than_zero_filling(phantoms):
    root, folders = phantoms
    full = dice(layout_of(root))
    sense, zero = (
        dice(Reconstructed(run=str(folders[name]), layout=layout_of(root))) for name in ("SenseCombine", "ZeroFilled")
    )
    for case in full:
        assert full[case] > sense[case] > zero[case]
    assert min(full.values()) > 0.85


def test_cases_keep_truth_patient_and_attributes_and_name_the_model(phantoms):
    root, folders = phantoms
    cases = Reconstructed(run=str(folders["ZeroFilled"]), layout=layout_of(root)).cases("test")
    for own, case in zip(layout_of(root).cases("test"), cases, strict=True):
        assert (case.id, case.patient, case.target) == (own.id, own.patient, own.target)
        assert case.attributes == {**own.attributes, "image": "ZeroFilled"}
        image = case.images[0].read()
        stored = np.load(folders["ZeroFilled"] / "predictions" / f"{case.id}.npy")
        np.testing.assert_array_equal(image.array[0], stored)
        assert image.geometry.difference(own.images[0].geometry()) is None
        assert case.images[0].files[0].parent.parent == folders["ZeroFilled"]


def test_a_scan_that_was_not_reconstructed_fails_downstream_and_counts(phantoms):
    root, folders = phantoms
    cases = Reconstructed(run=str(folders["Broken"]), layout=layout_of(root)).cases("test")
    assert len(cases) == 4
    lost = [case for case in cases if case.id.endswith("r8")]
    with pytest.raises(CaseError, match=r"Broken-\w+: has no reconstruction of '.*r8'; run its test again"):
        lost[0].images[0].read()
    assert [one.value for one in tissue_of(None).worst(lost[0])] == [0, 0]
    (run,) = load_runs([folders["Broken"]])
    assert run.failed_cases == 2


def test_complex_reconstructions_and_one_of_several_echoes_are_shown_by_magnitude(phantoms, tmp_path):
    root, folders = phantoms
    cases = layout_of(root).cases("test")
    run = written(tmp_path / "run", {case.id: np.ones((2, 1, 224, 192), np.complex64) * 3j for case in cases})
    np.save(run / "predictions" / "0.npy", np.stack([np.ones((1, 224, 192)), np.full((1, 224, 192), 2)]) * (1 + 0j))
    for echo in (1, 2):
        shown = Reconstructed(run=str(run), layout=layout_of(root), echo=echo).cases("test")[0].images[0].read()
        assert shown.array.dtype == np.float32
        assert set(np.unique(shown.array)) == {echo}
    with pytest.raises(CaseError, match=r"holds complex128 \(2, 1, 224, 192\), expected an image of \(1, 224, 192\)"):
        Reconstructed(run=str(run), layout=layout_of(root), echo=3).cases("test")[0].images[0].read()
    assert folders


def written(folder, images, **manifest):
    """A run folder with these reconstructions."""
    (folder / "predictions").mkdir(parents=True)
    said = {"status": "finished", "command": "test", "model": "given", **manifest}
    (folder / "manifest.json").write_text(json.dumps(said))
    lines = []
    for number, (case, image) in enumerate(images.items()):
        np.save(folder / "predictions" / f"{number}.npy", image)
        lines.append(json.dumps({"case": case, "file": f"predictions/{number}.npy"}))
    (folder / "predictions-0.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_cases_may_be_called_otherwise_in_the_run(phantoms, tmp_path):
    root = phantoms[0]
    run = written(tmp_path / "run", {"multicoil-000/6/4": np.ones((1, 224, 192), np.float32)})
    layout = Reconstructed(run=str(run), layout=layout_of(root), case="{patient}/{coils}/{acceleration}")
    assert layout.cases("test")[0].images[0].read().array.max() == 1
    with pytest.raises(UserError, match=r"has reconstructed 'multicoil-000/6/4', \.\.\., and none of the 4 cases"):
        Reconstructed(run=str(run), layout=layout_of(root)).cases("test")
    with pytest.raises(UsageError, match="has nothing for '{coil}'"):
        Reconstructed(run=str(run), layout=layout_of(root), case="{coil}").cases("test")
    with pytest.raises(UsageError, match="a field such as"):
        Reconstructed(run=str(run), layout=layout_of(root), case="a")
    with pytest.raises(UsageError, match="echo=0"):
        Reconstructed(run=str(run), layout=layout_of(root), echo=0)


def test_a_run_that_cannot_serve_is_refused(phantoms, tmp_path):
    root = phantoms[0]
    going = written(tmp_path / "going", {"a": np.ones(3)}, status="running")
    with pytest.raises(UserError, match="is not finished but 'running'"):
        Reconstructed(run=str(going), layout=layout_of(root)).cases("test")
    with pytest.raises(UserError, match=r"set task\.layout\.run to the folder"):
        Reconstructed(run="", layout=layout_of(root)).cases("test")
    with pytest.raises(UserError, match=r"manifest\.json: cannot be read"):
        Reconstructed(run=str(tmp_path / "none"), layout=layout_of(root)).cases("test")
    other = written(tmp_path / "other", {})
    (other / "predictions-0.jsonl").write_text('{"case": "a", "file": "predictions/a.nii.gz"}\n')
    with pytest.raises(UserError, match=r"a\.nii\.gz: is no reconstruction"):
        Reconstructed(run=str(other), layout=layout_of(root)).cases("test")
    cut = written(tmp_path / "cut", {"multicoil-000-c6-r4": np.ones(3)})
    (cut / "predictions/0.npy").write_bytes(b"none")
    with pytest.raises(CaseError, match=r"0\.npy: cannot be read as a stored image"):
        Reconstructed(run=str(cut), layout=layout_of(root)).cases("test")[0].images[0].read()


# The mixture of Gaussians that is asked


def test_a_mixture_knows_no_unit_and_leaves_noise_about_the_head_out():
    from medimg_eval.case import Image, Prompt

    rng = np.random.default_rng(0)
    right = np.zeros((32, 32), int)
    right[4:28, 4:28] = 1
    right[10:22, 10:22] = 2
    shown = np.array([0.02, 0.6, 1.0])[right] + rng.normal(0, 0.02, right.shape)
    shown[4:28, 4:6] = 0.35 + rng.normal(0, 0.02, (24, 2))  # the darkest of what is looked at
    wanted = np.where(shown > 0.45, right, 0)
    for unit in (1, 1e-5, 1e5):
        prompt = Prompt("a", (Image(np.abs(shown)[None] * unit, np.eye(4)),), labels=LABELS)
        (found,) = GaussianMixture(share=0.2).segment([prompt])
        assert (found == wanted).mean() > 0.98
    with pytest.raises(UserError, match=r"model\.share from 0 to below 1, got 1"):
        GaussianMixture(share=1)
