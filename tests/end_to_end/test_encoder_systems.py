"""Systems of encoders, slides and risk, from their files to their paper's table in at most three commands.

The encoder, where pictures are shown, is one that our own `fit` trained on phantoms.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from tests.benchmarks import test_multimed
from tests.helpers import encoder_sets, hest_files
from tests.helpers.benchmark_files import config, task
from tests.helpers.chat_server import chat_server

pytestmark = pytest.mark.long

NETWORK = "test_resnet"
QUICK = ["trainer.accelerator=cpu", "num_workers=0", "score_workers=0"]
EPOCH = ["trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1"]


@pytest.fixture(scope="module")
def frozen_backbone(tmp_path_factory):
    """The network that `fit` trained on X-ray phantoms, and its file of weights."""
    folder = tmp_path_factory.mktemp("phantom_encoder")
    words = ["fit", "task=phantom_findings", "task.layout.count=16", f"task.layout.root={folder}/phantoms"]
    words += ["~task.expected", "model=timm_classifier", f"model.backbone={NETWORK}", *QUICK[:2], *EPOCH]
    assert start([*words, f"run={folder}/fit"]) == 0
    return NETWORK, folder / "fit/checkpoints/best.ckpt"


@pytest.fixture(scope="module")
def phantom_encoder(frozen_backbone):
    """Words that name that network as a probe's encoder."""
    backbone, weights = frozen_backbone
    words = ["+model@model.encoder=timm_encoder", f"model.encoder.backbone={backbone}"]
    return [*words, f"model.encoder.weights={weights}"]


def sized(name, root, parts=("fit", "validate", "test"), **changes):
    """Words that state how many cases a fixture has where the card states the release's number."""
    made, expected = task(name, root, **changes), config(name).get("expected") or {}
    of_split = {made.splits[part]: len(made.cases(part)) for part in parts if part in made.splits}
    of_part = {part: len(made.cases(part)) for part in parts if part in made.splits}
    return [f"task.expected.{key}={(of_split | of_part)[key]}" for key in expected]


def run_commands(name, root, words, learned=(), asked=(), changes=None):
    """`fit`, `test` and `table` of a task, where `learned` is for the first alone; returns the table's rows as text."""
    folder = root.parent
    shared = [f"task={name}", f"task.layout.root={root}", *sized(name, root, **(changes or {})), *words, *QUICK[:2]]
    assert start(["fit", *shared, *learned, f"run={folder}/FIT"]) == 0
    assert start(["test", *shared, f"model.checkpoint={folder}/FIT", QUICK[2], *asked, f"run={folder}/RUN"]) == 0
    return table_of(folder / "RUN")


def table_of(run, *words):
    """What `table` writes of a run without failures."""
    out = run.parent / "table"
    assert start(["table", f"runs={run}", "resamples=20", f"out={out}", *words]) == 0
    manifests = [json.loads(path.read_text()) for path in run.rglob("manifest.json")]
    assert {manifest["status"] for manifest in manifests} == {"finished"}
    assert not any(manifest.get("failed_cases") for manifest in manifests)
    text = (out / "table.csv").read_text()
    assert text.count("\n") > 1
    return text


def folder_of(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    return root


TILES = {
    "pcam": (encoder_sets.write_pcam, "probe"),  # self-supervision for histopathology, and eva
    "mhist": (encoder_sets.write_mhist, "knn_probe"),
    "crc_100k": (encoder_sets.write_crc, "owkin_probe"),  # Phikon-v2's tiles
    "medmnist_breast": (encoder_sets.write_medmnist, "probe"),
}


@pytest.mark.parametrize("name", sorted(TILES))
def test_tiles_go_through_an_encoder_of_phantoms_to_a_table(name, tmp_path, phantom_encoder):
    write, model = TILES[name]
    root = folder_of(tmp_path)
    write(root)
    words = [f"model={model}", *phantom_encoder]
    words += ["model.head.members=2"] if model == "owkin_probe" else []
    words += ["model.grid={}", "+model.head.k=3"] if model == "knn_probe" else []
    assert "auroc" in run_commands(name, root, words).lower()


def test_hest_goes_from_patches_and_counts_to_the_mean_over_genes_and_folds(tmp_path, phantom_encoder):
    hest_files.write(tmp_path / "IDC", samples=3)
    words = ["model=hest_probe", *phantom_encoder, "model.head.components=4", "folds=all"]
    assert "pearson" in run_commands("hest_idc", tmp_path / "IDC", words).lower()


def test_gpfms_slides_are_classed_by_its_own_abmil(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_gpfm(root)
    head = "{name: abmil, hidden: 16, attention: 8, gated: false, rate: 2.0e-3, decay: 1.0e-4, epochs: 3}"
    text = run_commands("gpfm_nsclc", root, ["model=abmil", f"model.head={head}", "task.protocol=published"])
    assert "auroc" in text.lower()


def test_gpfms_survival_is_tested_in_each_of_its_folds(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_gpfm_survival(root)
    words = ["model=abmil", "model.head.hidden=16", "model.head.attention=8", "model.head.epochs=2", "folds=all"]
    assert "c_index" in run_commands("gpfm_survival_luad", root, words).lower()


def test_phikons_slides_go_through_nested_folds_to_another_cohort(tmp_path, capsys):
    root = folder_of(tmp_path)
    encoder_sets.write_owkin(root)
    small = ["model.head.hidden=16", "model.head.attention=8"]
    words = [
        "model=owkin_abmil",
        *small,
        "model.grid={rate: [1.0e-2, 1.0e-9], epochs: [4]}",
        "model.folds=2",
        "folds=all",
    ]
    of_coad = ["task=tcga_crc_msi", f"task.layout.root={root}", "task.layout.cohorts=[TCGA_COAD]", *QUICK[:2]]
    assert start(["fit", *of_coad, *words, f"run={tmp_path}/FIT"]) == 0
    searches = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("FIT/fold-*/search.json"))]
    # Each outer fold chose anew among inner ones; a rate of 1e-9 learns nothing.
    assert [search["chosen_on"] for search in searches] == ["2 folds"] * 5
    assert [search["chosen"]["rate"] for search in searches] == [0.01] * 5
    tested = ["model.checkpoint=" + str(tmp_path / "FIT"), QUICK[2]]
    assert start(["test", *of_coad, *words, *tested, f"run={tmp_path}/RUN"]) == 0
    assert "auroc" in table_of(tmp_path / "RUN").lower()
    # Another cohort is tested by the mean of the five heads; the same one is not, for each head knows most of it.
    of_read = [*of_coad, "task.layout.cohorts=[TCGA_READ]", "task.splits.test=all", "task.layout.splits=null"]
    assert start(["test", *of_read, *words[:-1], *tested, f"run={tmp_path}/OUT/a", "model.name=ensemble"]) == 0
    alone = [*words[:-1], f"model.checkpoint={tmp_path}/FIT/fold-0", QUICK[2]]
    assert start(["test", *of_read, *alone, f"run={tmp_path}/OUT/b", "model.name=fold 0"]) == 0
    capsys.readouterr()
    assert start(["compare", f"runs={tmp_path}/OUT", "metric=auroc@MSI-H", "resamples=20"]) == 0
    assert "ensemble" in capsys.readouterr().out
    assert start(["test", *of_coad, *words[:-1], *tested, f"run={tmp_path}/OUT/c"]) == 1
    assert "holds a model for each fold" in capsys.readouterr().err


def test_gpfms_survival_is_fitted_as_published_where_validation_is_the_test(tmp_path, capsys):
    root = folder_of(tmp_path)
    encoder_sets.write_gpfm_survival(root)
    words = ["task=gpfm_survival_luad", f"task.layout.root={root}", "model=abmil", "model.head.hidden=8", *QUICK[:2]]
    words += ["model.head.attention=4", "model.head.epochs=1", "task.layout.splits.fold=0", "task.expected=null"]
    assert start(["fit", *words, "task.protocol=published", f"run={tmp_path}/FIT"]) == 0
    assert "validate and test are the same 8 cases" in capsys.readouterr().err
    assert start(["fit", *words, "task.splits.validate=val", "task.layout.tuning=''", f"run={tmp_path}/X"]) == 1


@pytest.mark.parametrize(("name", "model"), [("pathobench", "patho_bench_probe"), ("pathobench_survival", "cox_probe")])
def test_patho_benchs_tables_and_features_go_through_its_probe(name, model, tmp_path):
    root = tmp_path / "data"
    encoder_sets.write_patho_bench(root, survives=model == "cox_probe")
    store = {"layout": {"store": "by_slide_id"}}
    words = [f"model={model}", "task.layout.store=by_slide_id", "folds=all"]
    words += ["model.grid={}", "+model.head.alpha=0.07"] if model == "cox_probe" else []
    run_commands(name, root, words, changes=store)


BENCHX_CLASSES = {
    "benchx_nih": encoder_sets.write_benchx,
    "benchx_rsna": encoder_sets.write_benchx_rsna,
    "benchx_siim": encoder_sets.write_benchx_siim,
    "benchx_vindr": encoder_sets.write_benchx_vindr,
    "benchx_covidx": encoder_sets.write_benchx_covidx,
}


@pytest.mark.parametrize("name", sorted(BENCHX_CLASSES))
def test_benchx_tunes_a_backbone_on_its_lists(name, tmp_path):
    root = folder_of(tmp_path)
    BENCHX_CLASSES[name](root)
    words = ["model=timm_classifier", f"model.backbone={NETWORK}"]
    assert "auroc" in run_commands(name, root, words, EPOCH).lower()


@pytest.mark.parametrize("name", ["rsna_boxes", "siim_masks", "tbx11k", "object_cxr"])
def test_benchx_finds_places_by_a_decoder_on_an_encoder_of_phantoms(name, tmp_path, frozen_backbone):
    root = folder_of(tmp_path)
    encoder_sets.write_benchx_masks(root)
    encoder, weights = frozen_backbone
    words = ["model=mask_probe", "model.network.channels=16", "model.patches_per_case=1"]
    words += [f"model.network.encoder={encoder}", f"model.network.encoder_weights={weights}"]
    learned = ["trainer.max_epochs=4", "trainer.check_val_every_n_epoch=4", "fit.lr=0.01"]
    assert "pooled_dice@background" in run_commands(f"benchx_{name}", root, words, learned)


def test_benchx_writes_reports_from_an_encoder_of_phantoms(tmp_path, frozen_backbone):
    root = folder_of(tmp_path)
    encoder_sets.write_iu_xray(root)
    encoder, weights = frozen_backbone
    words = ["model=report_probe", f"model.encoder={encoder}", f"model.encoder_weights={weights}", "model.views=2"]
    words += ["model.decoder={model_type: gpt2, n_embd: 32, n_layer: 1, n_head: 4, n_positions: 64}"]
    words += ["model.max_tokens=24", "task.metrics=[bleu_4,rouge_l]"]
    learned = ["trainer.max_epochs=8", "trainer.check_val_every_n_epoch=8", "fit.lr=0.01"]
    assert "bleu" in run_commands("iu_xray_r2gen", root, words, learned).lower()


def test_swinchex_tunes_a_backbone_on_its_lists(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_swinchex(root)
    words = ["model=timm_classifier", f"model.backbone={NETWORK}"]
    assert "auroc" in run_commands("swinchex_nih", root, words, EPOCH).lower()


def test_olives_tunes_a_backbone_on_its_biomarkers(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_olives(root)
    tuned = ["model=timm_classifier", f"model.backbone={NETWORK}"]
    assert "auroc" in run_commands("olives_biomarkers", root, tuned, EPOCH).lower()


@pytest.mark.parametrize("name", ["olives_disease", "olives_treatment"])
def test_olives_fuses_scans_fundus_and_values(name, tmp_path, phantom_encoder):
    root = folder_of(tmp_path)
    encoder_sets.write_olives(root)
    words = ["model=fusion_probe", *phantom_encoder, "task.layout.values=[BCVA,CST]"]
    changes = {"layout": {"values": ["BCVA", "CST"]}}
    conditions = ["conditions=[without_oct,only_values]"]
    run_commands(name, root, words, asked=conditions, changes=changes)
    head = json.loads((tmp_path / "FIT/checkpoints/head.json").read_text())
    assert set(head["settings"]["blocks"]) == {"oct", "fundus", "values"}
    assert "only_values" in table_of(tmp_path / "RUN", "by=condition")


def test_pillars_risk_of_lung_cancer_by_year(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_nlst(root, tmp_path / "risks.csv")
    survival = "{" + ",".join(f"{year}: S{year}" for year in range(1, 7)) + "}"
    words = ["test", "task=nlst_risk", f"task.layout.root={root}", *sized("nlst_risk", root, ("test",)), *QUICK]
    words += ["model=precomputed_risks", f"model.root={tmp_path}/risks.csv", f"model.survival={survival}"]
    assert start([*words, f"run={tmp_path}/RUN"]) == 0
    assert "c_index" in table_of(tmp_path / "RUN").lower()


def label_reports(root, scheme, replies, *words):
    """`label` by a served model that replies rightly, beside people's labels; returns the agreement by finding."""
    with chat_server(replies=replies) as server:
        model = ["model=openai_compatible", "model.model=tiny", f"model.base_url={server.url}", "model.cache=false"]
        files = [f"reports={root}/reports.csv", f"human={root}/people.csv", f"out={root}/labels"]
        assert start(["label", *files, f"scheme={scheme}", *model, "resamples=20", *words]) == 0
    return pd.read_csv(root / "labels/agreement.csv")


def test_rates_labels_of_reports_become_findings_of_frozen_features(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_rate(root)
    words = ["column=Report Text", "write=[labels,rate]"]
    agreement = label_reports(root, "chexpert_questions", encoder_sets.rate_replies(), *words)
    held = agreement[agreement.statistic == "kappa"].set_index("label").value
    assert held[["Cardiomegaly", "Edema"]].tolist() == [1, 1]
    words = ["task.layout.labels=labels/rate.json", "model=rate_probe", "+model.head.epochs=100"]
    words += ["+model.head.learning_rate=0.05", "fraction=[0.1,1]", "draws=2"]
    changes = {"layout": {"labels": "labels/rate.json"}}
    assert "auroc" in run_commands("rate_findings", root, words, changes=changes).lower()
    assert "fraction-0.1" in table_of(tmp_path / "RUN", "by=condition")


def test_mosaics_labels_of_danish_reports_are_a_task_of_pictures(tmp_path, phantom_encoder):
    root = folder_of(tmp_path)
    encoder_sets.write_mosaic(root)
    agreement = label_reports(root, "mosaic_danskcxr", encoder_sets.mosaic_replies())
    held = agreement[agreement.label == "PleuralEffusion"].set_index("statistic").value
    assert (held["f1"], held["weighted_f1"]) == (1, 1)


def test_multimeds_form_fuses_an_encoder_of_phantoms_with_signals_and_texts(tmp_path, frozen_backbone):
    root = folder_of(tmp_path)
    test_multimed.write(root, 80)
    backbone, weights = frozen_backbone
    words = ["model=fusion_risk"]
    for key in ("model.encoder.slide", "model.encoder.xray"):
        words += [f"+model@{key}=timm_encoder", f"{key}.backbone={backbone}", f"{key}.weights={weights}"]
    conditions = ["conditions=[without_ecg,missing_dna-30,noisy_ecg-3,dropped_note-3,blank_values-30]"]
    assert "c_index" in run_commands("multimed_form", root, words, asked=conditions).lower()
    asked = table_of(tmp_path / "RUN", "by=condition")
    assert all(name in asked for name in ("without_ecg", "missing_dna-30", "noisy_ecg-3", "dropped_note-3"))


def test_t3_merges_two_models_in_domain_on_new_classes_and_corrupted(tmp_path):
    root = folder_of(tmp_path)
    encoder_sets.write_t3_cells(root)
    folders = [encoder_sets.write_clip(tmp_path / f"clip{seed}", seed) for seed in range(2)]
    words = ["test", "suite=t3_cells", "model=merged_clip", *QUICK, f"runs={tmp_path}/RUNS"]
    words += [
        f"model.general.model_name=null model.general.checkpoint={folders[0]}",
        f"model.tuned.checkpoint={folders[1]}",
    ]
    words[-2:-1] = words[-2].split()
    for name in ("medmnist_blood", "medimeta_c_pbc", "medmnist_c_blood"):
        words.append(f"tasks.{name}.layout.root={root}")
        words += [f"~tasks.{name}.expected"] if config(name).get("expected") else []
    assert start(words) == 0
    text = table_of(Path(tmp_path) / "RUNS", "by=severity", "metrics=[top1_accuracy,corruption_error]")
    assert "corruption" in text.lower()
