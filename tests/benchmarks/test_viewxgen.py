"""ViewXGen: every view of a study is asked for with its report and the other views, or with the report alone."""

import csv
import os
import pickle
import random
from collections import defaultdict
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest

from medimg_eval.data.layouts.synthesis.prompts import FINDINGS
from medimg_eval.errors import MissingDataError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.base import Synthesizer
from medimg_eval.models.extractors.base import Pixels
from medimg_eval.results import load_runs
from medimg_eval.results.runs.subsets import set_rows
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import picture, task
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

STUDIES = {
    # study: (patient, stated number of images, views)
    "50000001": ("10000001", 1, ["AP"]),
    "50000002": ("10000001", 2, ["LL", "PA"]),
    "50000003": ("10000002", 3, ["AP", "LATERAL", "PA"]),
    "50000004": ("10000003", 4, ["AP", "AP", "PA", "LATERAL"]),
    "50000005": ("10000003", 2, ["PA"]),
}
KEPT = {"50000001", "50000002", "50000003"}
"""Studies of at most three images, all of which the list has."""


def write(root, studies=STUDIES):
    """The authors' list without a line of names, images as MIMIC-CXR-JPG lays them out, and reports."""
    lines = []
    for study, (patient, count, views) in studies.items():
        for number, view in enumerate(views):
            dicom = f"{study}-{number}"
            lines.append([dicom, patient, study, view, count])
            pixels = np.full((8, 8), 20 * number + int(study[-1]), np.uint8)
            picture(root / f"files/p{patient[:2]}/p{patient}/s{study}/{dicom}.jpg", pixels)
        (root / "reports").mkdir(exist_ok=True)
        (root / f"reports/s{study}.txt").write_text(f"Heart  is normal in {study}.")
    for name in ("train", "validate", "test"):
        path = root / f"metadata/mimiccxr_{name}_sub_final.csv"
        path.parent.mkdir(exist_ok=True)
        kept = lines if name == "test" else [[f"{name}-1", f"{name}9", f"{name}5", "AP", 1]]
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows(kept)
    for name in ("train", "validate"):
        picture(root / f"files/p{name[:2]}/p{name}9/s{name}5/{name}-1.jpg", np.zeros((8, 8), np.uint8))
        (root / f"reports/s{name}5.txt").write_text("Clear.")
    return root


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "data")


def test_each_image_of_a_whole_study_is_asked_for_with_the_others(data):
    made = task("viewxgen", data)
    cases = made.cases("test")
    assert [case.attributes["study"] for case in cases] == ["50000001"] + ["50000002"] * 2 + ["50000003"] * 3
    told = {case.id: (case.attributes["view"], case.attributes["given"]) for case in cases}
    assert told["50000001-0"] == ("AP", "none")
    assert told["50000002-0"] == ("LATERAL", "PA")
    assert told["50000003-1"] == ("LATERAL", "AP+PA")
    by_id = {case.id: case for case in cases}
    prompt = made.prompt(by_id["50000003-1"], made.read_images(by_id["50000003-1"]))
    assert prompt.text == "LATERAL view. heart is normal in 50000003."
    assert [int(np.median(image.array)) for image in prompt.images] == pytest.approx([3, 43], abs=2)
    real = {case.id: case for case in made.cases("reference")}
    assert real.keys() == by_id.keys()
    assert int(np.median(real["50000003-1"].images[0].read().array)) == pytest.approx(23, abs=2)
    assert {case.patient for case in cases} == {"10000001", "10000002"}


def test_without_other_views_the_report_alone_is_shown(data):
    made = task("viewxgen", data, layout={"given": False})
    assert all(not case.images and case.attributes["given"] == "none" for case in made.cases("test"))


def test_findings_of_mimic_s_table_become_attributes(data):
    (data / "labels.csv").write_text("subject_id,study_id,Edema,Pneumonia\n10000002,50000003,1.0,\n1,2,-1.0,0.0\n")
    text = (data / "labels.csv").read_text().splitlines()
    head = [*text[0].split(","), *(name for name in FINDINGS if name not in text[0].split(","))]
    rows = [line + "," * (len(head) - 4) for line in text[1:]]
    (data / "labels.csv").write_text("\n".join([",".join(head), *rows]) + "\n")
    cases = task("viewxgen", data, layout={"labels": "labels.csv"}).cases("test")
    assert [case.attributes.get("Edema") for case in cases] == [None] * 3 + ["1"] * 3
    assert "Pneumonia" not in cases[-1].attributes


def test_what_is_wrong_is_named(data):
    lines = (data / "metadata/mimiccxr_test_sub_final.csv").read_text()
    (data / "metadata/mimiccxr_test_sub_final.csv").write_text(lines.replace("LL", "OBLIQUE"))
    with pytest.raises(UserError, match="line 2.*ViewPosition is 'OBLIQUE', expected one of AP, PA, LATERAL, LL"):
        task("viewxgen", data).cases("reference")
    (data / "metadata/mimiccxr_test_sub_final.csv").write_text(lines)
    (data / "reports/s50000002.txt").unlink()
    with pytest.raises(MissingDataError, match="there is no report of study '50000002'"):
        task("viewxgen", data).cases("reference")


class Copies(Synthesizer):
    """Repeats the first image that it is shown, and paints black where none is."""

    def synthesize(self, prompts, seeds):
        black = np.zeros((1, 8, 8), np.uint8)
        made = [prompt.images[0].array.astype(np.uint8) if prompt.images else black for prompt in prompts]
        return [[one] * len(some) for one, some in zip(made, seeds, strict=True)]


def test_the_gain_of_the_other_views_is_the_difference_of_two_arms(data, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False)
    known = {"pixels": ModelSpec("pixels", Pixels, {"size": 4}, lambda: Pixels(4))}
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0, extractors=known)
    worth = {}
    for given in (True, False):
        made = task("viewxgen", data, metrics=["frechet_distance@pixels"], least=2, layout={"given": given})
        folder = evaluate(made, ModelSpec("Copies", Copies, {}, Copies), replace(settings, run=tmp_path / str(given)))
        (run,) = load_runs([folder])
        worth[given] = {row.where: row.value.value for row in set_rows(run)}
    assert worth[True][()] < worth[False][()]
    assert {where for where in worth[True] if where} >= {(("view", "PA"),), (("given", "none"),)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_authors_loader_takes_the_same_studies_of_their_own_list(tmp_path):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone: the class of their data, on their released list."""
    clone = require_clone("cloverbluefly/ViewXGen")
    list_of_test = clone / "metadata/mimiccxr_test_sub_final.csv"
    (tmp_path / "none.pickle").write_bytes(pickle.dumps({}))
    nothing = SimpleNamespace(get_vocab_size=lambda: 0, num_tokens=0)
    tensors = SimpleNamespace(transforms=SimpleNamespace(ToTensorV2=dict))
    loaded = load_functions(
        clone / "loader_unified.py", "UnifiedCXRDataset", Dataset=object, os=os, csv=csv, random=random, pickle=pickle,
        tqdm=iter, defaultdict=defaultdict, VQGanVAE=lambda *_: nothing,
        albumentations=SimpleNamespace(SmallestMaxSize=dict, CenterCrop=dict, Compose=list, pytorch=tensors),
    )  # fmt: skip
    theirs = loaded["UnifiedCXRDataset"](
        metadata_file=list_of_test, img_root_dir="", text_root_dir="", vqgan_model_path="", vqgan_config_path="",
        codebook_indices_path=tmp_path / "none.pickle", vqgan=512, max_img_num=3, max_text_len=256, tokenizer=nothing,
        target_count=3, target_view=["AP", "PA", "LATERAL", "LL"], under_sample="fixed_all_unified",
    )  # fmt: skip
    root = write(tmp_path / "data")
    text = list_of_test.read_text()
    (root / "metadata/mimiccxr_test_sub_final.csv").write_text(text)
    for study in {line.split(",")[2] for line in text.splitlines()}:
        (root / f"reports/s{study}.txt").write_text("Clear.")
    ours = defaultdict(list)
    for case in task("viewxgen", root).cases("test"):
        ours[case.attributes["study"]].append(case.id)
    assert ours == {study: [line[0] for line in lines] for study, lines in theirs.dict_by_studyid.items()}
    assert list(ours) == theirs.key_list
