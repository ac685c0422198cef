"""A run says in which form its predictions are stored; a codec of anybody's serves a task."""

import json
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
from answering import Thresholds

from medimg_eval.case import Mask, Trial
from medimg_eval.codecs import Codec, prediction_file
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_form
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.system import whole
from medimg_eval.tasks import SegmentationTask
from tests.conftest import AFFINE, LABELS, SHAPE, ellipsoids
from tests.helpers.running import evaluate, rescore

SOFT = ["dice", "ece@15", "brier"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


class Raw(Codec):
    """One byte for each voxel."""

    form = "raw bytes"

    def write(self, folder, trial, value):
        path = prediction_file(folder, trial, ".raw")
        with whole(path) as partial_file:
            partial_file.write_bytes(value.labels.astype(np.uint8).tobytes())
        return path

    def read(self, stored):
        content = np.frombuffer(stored.read_bytes(), np.uint8)
        if content.size != np.prod(SHAPE):
            raise CaseError(f"{stored}: holds {content.size} voxels; run test again")
        return Mask(content.reshape(SHAPE), AFFINE)


class Listed(Codec):
    """A label map as a record: where its labels change, and to what."""

    form = "changes"
    heavy = False

    def write(self, folder, trial, value):
        flat = value.labels.ravel()
        starts = np.flatnonzero(np.diff(flat.astype(int), prepend=-1))
        return {"starts": starts.tolist(), "labels": flat[starts].tolist()}

    def read(self, stored):
        lengths = np.diff([*stored["starts"], np.prod(SHAPE)])
        return Mask(np.repeat(np.array(stored["labels"], np.uint8), lengths).reshape(SHAPE), AFFINE)


class RawTask(SegmentationTask):
    codec = Raw()


class ListedTask(SegmentationTask):
    codec = Listed()

    def score(self, case, prediction, metrics=None):
        known = self.codec.read(prediction) if isinstance(prediction, dict) else prediction
        return super().score(case, known, metrics)


@pytest.mark.parametrize(("kind", "form", "files"), [(RawTask, "raw bytes", 2), (ListedTask, "changes", 0)])
def test_a_codec_of_ones_own_is_all_that_a_task_names(kind, form, files, write_dataset, tmp_path):
    usual = ellipsoids(write_dataset(2), metrics=["dice"])
    task = kind(name="own", layout=usual.layout, labels=LABELS, metrics=["dice"])
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    folder = evaluate(task, ModelSpec("Thresholds", Thresholds, {}, load=Thresholds), settings)
    lines = [json.loads(line) for line in (folder / "predictions-0.jsonl").read_text().splitlines()]
    assert [line["form"] for line in lines] == [form, form]
    assert len(list(folder.glob("predictions/*.raw"))) == files
    first = pd.read_parquet(folder / "scores.parquet")
    assert first["value"].tolist() == [1, 1, 1, 1]
    rescore(folder, task, workers=0)
    assert pd.read_parquet(folder / "scores.parquet").equals(first)


@pytest.mark.parametrize("form", ["label map", ""])
def test_metrics_of_another_form_than_the_stored_one_are_refused(form, write_dataset, tmp_path):
    task = ellipsoids(write_dataset(1), metrics=SOFT)
    with Run(tmp_path / "run", "abc") as run:
        path = ellipsoids(write_dataset(1)).codec.write(
            run.folder / "predictions", "a", Mask(np.eye(3, dtype=int), AFFINE)
        )
        run.append_predictions({Trial("a"): path}, form=form)
        with pytest.raises(
            UserError,
            match=r"run: each prediction was stored as a label map, and ece@15, brier judge probabilities; run test",
        ):
            refuse_form(task, run)
        refuse_form(ellipsoids(write_dataset(1)), run)


def test_probabilities_serve_where_label_maps_are_judged(write_dataset, tmp_path):
    task = ellipsoids(write_dataset(1))
    with Run(tmp_path / "run", "abc") as run:
        (run.folder / "predictions").mkdir()
        (run.folder / "predictions" / "a.b2nd").touch()
        run.append_predictions({Trial("a"): run.folder / "predictions" / "a.b2nd"})
        refuse_form(task, run)
        assert run.forms() == {"probabilities"}
