"""HEST-Benchmark: from the authors' files to the mean over genes, then folds."""

import runpy
from pathlib import Path

import h5py
import numpy as np
import pytest
from omegaconf import OmegaConf
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import medimg_eval as me
from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, MissingDataError, UserError
from medimg_eval.models import Pixels
from tests.helpers import hest_files
from tests.helpers.authors import require_clone
from tests.helpers.benchmark_files import config, task
from tests.helpers.config_files import config_file, config_names

TASKS = [name for name in config_names("task") if name.startswith("hest_")]


@pytest.fixture
def idc(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return hest_files.write(tmp_path / "IDC", samples=3)


def by_the_book(features, made, components):
    """Pearson r of each fold and gene, by scikit-learn, as the authors' trainer does it."""
    found = []
    for tested in made:
        rest = [name for name in made if name != tested]
        x, y = (np.concatenate([of[name] for name in rest]) for of in (features, log_counts(made)))
        scale = StandardScaler().fit(x)
        pca = PCA(components, random_state=1).fit(scale.transform(x))
        fit, shown = (pca.transform(scale.transform(one)).astype(np.float32) for one in (x, features[tested]))
        alpha = 100 / (components * y.shape[1])
        said = Ridge(alpha=alpha, solver="lsqr", fit_intercept=False, max_iter=1000).fit(fit, y).predict(shown)
        right = log_counts(made)[tested]
        found.append([np.corrcoef(said[:, gene], right[:, gene])[0, 1] for gene in range(y.shape[1])])
    return np.array(found)


def log_counts(made):
    return {name: np.log1p(counts) for name, (_, _, counts) in made.items()}


def hest(**changes):
    return task("hest_idc", "IDC", **changes)


def in_folds(one, probe):
    settings = {"folds": "all", "num_workers": 0}
    return me.test(one, probe | {"checkpoint": str(me.fit(one, probe, **settings))}, **settings)


def test_a_spot_is_its_tile_and_the_log_of_its_counts(idc):
    cases = hest().cases("test")
    barcodes, tiles, counts = idc["TENX0"]
    assert [case.id for case in cases] == [f"TENX0/{one}" for one in barcodes]
    assert {case.patient for case in cases} == {"TENX0"}
    for case, tile, right in zip(cases, tiles, counts, strict=True):
        assert (case.images[0].read().array == tile.transpose(2, 0, 1)).all()
        assert case.target.read().values == pytest.approx(dict(zip(hest_files.GENES, np.log1p(right), strict=True)))
    assert len(hest().cases("fit")) == 2 * 14
    assert hest().names == list(hest_files.GENES)


def test_folds_are_those_of_the_numbers_in_the_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hest_files.write(tmp_path / "IDC", samples=11, spots=1)
    folds = hest(layout={"splits": {"fold": "all"}}).folds()
    assert {number: {case.patient for case in fold.cases("test")} for number, fold in folds.items()} == {
        number: {f"TENX{number}"} for number in range(11)
    }


@pytest.mark.parametrize(("shown", "model"), [("tiles", "hest_probe"), ("embeddings", "hest_probe_fixed")])
def test_the_number_is_the_mean_over_genes_then_folds(idc, shown, model):
    probe = OmegaConf.to_container(config(model, "model"))
    probe["head"]["components"] = 4
    if shown == "embeddings":
        features = hest_files.embeddings(Path("IDC/emb/uni"), idc)
        one = hest(layout={"features": "emb/uni/{sample_id}.h5"})
    else:
        probe["encoder"] = {"_target_": "medimg_eval.models.Pixels", "size": 4}
        features = {name: pixels(tiles) for name, (_, tiles, _) in idc.items()}
        one = hest()
    run = in_folds(one, probe)
    expected = by_the_book(features, idc, 4)
    values = {row.metric: row.value for row in run.summary.itertuples()}
    assert values["pearson"] == pytest.approx(expected.mean(), abs=2e-4)
    assert values["pearson"] > 0.5
    assert (values["r2@median"] > -0.5) == (model == "hest_probe_fixed")  # about the mean, or the missing one
    assert "summaries are of each of 3 folds by itself, then their mean" in str(me.table([run.folder]))


def test_the_authors_trainer_says_the_same(idc):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone: its regression, on what it would load."""
    clone = require_clone("mahmoodlab/HEST")
    theirs = runpy.run_path(str(clone / "src/hest/bench/trainer.py"))["train_test_reg"]
    features, right = hest_files.embeddings(Path("IDC/emb/uni"), idc), log_counts(idc)
    probe = OmegaConf.to_container(config("hest_probe", "model"))
    probe["head"]["components"] = None  # their PCA is in another file, which needs all of their libraries
    one = hest(layout={"features": "emb/uni/{sample_id}.h5"})
    run = in_folds(one, probe)
    found = []
    for tested in idc:
        rest = [name for name in idc if name != tested]
        x, y = (np.concatenate([of[name] for name in rest]) for of in (features, right))
        scale = StandardScaler().fit(x)
        given = scale.transform(x), scale.transform(features[tested]), y, right[tested]
        found.append(theirs(*given, random_state=1, genes=list(hest_files.GENES))[0])
    values = {row.metric: row.value for row in run.summary.itertuples()}
    assert values["pearson"] == pytest.approx(np.mean([one["pearson_mean"] for one in found]), abs=1e-5)
    assert values["r2@median"] == pytest.approx(np.mean([one["r2_score_q2"] for one in found]), abs=1e-3)


def pixels(tiles):
    images = [Image(tile.transpose(2, 0, 1), np.eye(4), units="pixel") for tile in tiles]
    return np.asarray(Pixels(size=4).embed([Prompt(str(at), (one,)) for at, one in enumerate(images)]), np.float32)


def test_what_does_not_fit_is_told(idc):
    with pytest.raises(MissingDataError, match=r"no such table"):
        hest(layout={"table": "folds/*.csv"}).cases("test")
    Path("IDC/var_50genes.json").write_text('{"genes": ["KRT7", "CD3X"]}')
    with pytest.raises(CaseError, match=r"TENX0.h5ad: holds no column 'CD3X'; did you mean 'CD3E'"):
        hest().cases("test")[0].target.read()
    with h5py.File("IDC/patches/TENX0.h5", "a") as file:
        file["barcode"][1] = file["barcode"][0]
    with pytest.raises(UserError, match=r"TENX0.h5: 1 spots have the barcode of another"):
        hest().cases("test")
    Path("IDC/patches/TENX0.h5").unlink()
    with pytest.raises(UserError, match=r"TENX0.h5: no such file"):
        hest().cases("test")
    text = Path("IDC/splits/train_1.csv").read_text()
    Path("IDC/splits/train_1.csv").write_text(text.replace("patches/TENX2", "patches/TENX0"))
    with pytest.raises(UserError, match=r"train_1.csv, line 3: sample 'TENX2' has other tiles"):
        hest().cases("test")


def test_the_nine_tasks_are_in_the_suite_with_what_the_authors_print():
    assert len(TASKS) == 9
    suite = OmegaConf.load(config_file("hest", "suite"))
    assert sorted(name for base in suite.defaults for name in base.values()) == TASKS
    printed = {name: {one.model: one.number for one in task(name, "x").published_numbers} for name in TASKS}
    averages = {model: np.mean([float(of[model]) for of in printed.values()]) for model in printed["hest_idc"]}
    assert {len(of) for of in printed.values()} == {12}
    for model, average in {"Resnet50": 0.326, "UNI": 0.3862, "Hoptimus0": 0.4146}.items():
        assert averages[model] == pytest.approx(average, abs=5e-5)
