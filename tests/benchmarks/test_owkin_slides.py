"""Slides of TCGA in the folders of Owkin's HistoSSLscaling, beside its own loader; heads of folds on another cohort."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import LabelEncoder

from medimg_eval.case import Findings
from medimg_eval.errors import MissingDataError
from tests.helpers import encoder_sets
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import task

HISTO = "owkin/HistoSSLscaling"


@pytest.fixture
def root(tmp_path):
    encoder_sets.write_owkin(tmp_path)
    return tmp_path


def test_slides_are_found_and_labelled_by_patient(root):
    made = task("tcga_crc_msi", root)
    cases = {case.id: case for part in ("fit", "test") for case in made.cases(part)}
    # Of 15 patients of each cohort one has no label and one is Indeterminate; the first has two slides.
    assert len(cases) == 2 * (13 + 1)
    first = cases["TCGA-A0-0000-01Z-00-DX2.0A1B-2C"]
    assert first.patient == "TCGA-A0-0000"
    assert first.target.read() == Findings({"MSI-H": 0.0, "MSS": 1.0})
    assert cases["TCGA-A1-0003-01Z-00-DX1.0A1B-2C"].target.read() == Findings({"MSI-H": 1.0, "MSS": 0.0})
    image = first.images[0].read()
    assert image.array.shape == (1, 6, 8)  # without level, x and y
    np.testing.assert_allclose(image.array[0], encoder_sets.bag(0, 1).astype(np.float32))


def test_no_patient_lies_on_both_sides_of_a_fold(root):
    made = task("tcga_crc_msi", root)
    sides = [{case.patient for case in made.cases(part)} for part in ("fit", "test")]
    assert not sides[0] & sides[1]


def test_a_cohort_without_features_is_told(root):
    with pytest.raises(MissingDataError, match=r"TCGA_STAD: expected SLIDE.svs/features.npy of slides, got none; set"):
        task("tcga_crc_msi", root, layout={"cohorts": ["TCGA_STAD"]}).cases("fit")


def test_survival_is_read_in_days(root):
    made = task("tcga_coad_os", root)
    cases = {case.id: case for part in ("fit", "test") for case in made.cases(part)}
    survival = cases["TCGA-A0-0001-01Z-00-DX1.0A1B-2C"].target.read()
    assert (survival.time, survival.event, survival.unit) == (501, True, "days")


@pytest.mark.slow
@pytest.mark.parametrize("label", ["MSI", "OS"])
def test_slides_and_labels_are_those_of_the_authors_loader(root, label):
    clone = require_clone(HISTO)
    data = root / "preprocessed/slides_classification"
    for path in list((data / "features/iBOTViTBasePANCAN/TCGA").glob("*/*.svs")):
        coords = data / "coords/coords_224/TCGA" / path.parent.name / path.name
        coords.mkdir(parents=True)
        np.save(coords / "coords.npy", np.zeros((6, 3)))
    for path in (root / "raw/slides_classification/TCGA/clinical/survival").glob("*.csv"):  # columns that it asks for
        table = pd.read_csv(path)
        for column in ("PFI", "PFI.time", "age_at_initial_pathologic_diagnosis", "race", "ajcc_pathologic_tumor_stage",
                       "histological_grade"):  # fmt: skip
            table[column] = 0
        table.to_csv(path, index=False)
    labels = root / "raw/slides_classification/TCGA/clinical"
    paths = {
        "SLIDES": root / "raw/slides",
        "COORDS": lambda size: data / f"coords/coords_{size}/TCGA",
        "LABELS": {
            "SURVIVAL": lambda cohort: labels / f"survival/survival_labels_{cohort.lower()}.csv",
            "MSI": lambda cohort: labels / f"msi/msi_labels_{cohort.lower()}.csv",
        },
    }
    load = load_functions(
        clone / "rl_benchmarks/datasets/slides_classification/tcga.py",
        "load_histo", "load_label", "load_tcga",
        pd=pd, Path=Path, logger=logging.getLogger(), LabelEncoder=LabelEncoder, TCGA_PATHS=paths,
        TCGA_TASKS={cohort: [label] for cohort in ("TCGA_COAD", "TCGA_READ")},
    )["load_tcga"]  # fmt: skip
    cohorts = ["TCGA_COAD", "TCGA_READ"] if label == "MSI" else ["TCGA_COAD"]
    theirs = pd.concat([load(data / "features/iBOTViTBasePANCAN", cohort=cohort, label=label) for cohort in cohorts])
    theirs = theirs.dropna(subset=["label", "features_path", "patient_id"])
    made = task("tcga_crc_msi" if label == "MSI" else "tcga_coad_os", root)
    ours = {}
    for case in [case for part in ("fit", "test") for case in made.cases(part)]:
        truth = case.target.read()
        # Theirs: 1 of MSI-H, or the time, negative where censored.
        value = (
            float(truth == Findings({"MSI-H": 1.0, "MSS": 0.0}))
            if label == "MSI"
            else truth.time * (1 if truth.event else -1)
        )
        ours[case.id] = (case.patient, value)
    named = zip(theirs["slide_id"], theirs["patient_id"], theirs["label"], strict=True)
    assert ours == {slide: (patient, value) for slide, patient, value in named}
