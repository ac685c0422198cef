"""Commands of encoders, slides, patients over time and risk, over files in their authors' form.

Their encoders are tiny networks with random weights, which are saved where a command names weights of the hub.
"""

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from tests.benchmarks import test_multimed, test_nih_boxes, test_rate
from tests.benchmarks.test_gpfm_regions import WRITERS
from tests.helpers import encoder_sets, hest_files
from tests.helpers.benchmark_files import picture, task
from tests.helpers.config_files import composed_config
from tests.helpers.system_chains import EPOCH, NETWORK, QUICK, Chains, any_number, write_classes

pytestmark = pytest.mark.long

CHAINS = Chains()


def save_dinov2(folder):
    """A tiny DINOv2, which is what Phikon-v2 is; words that name it."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(folder)
    square = {"height": 28, "width": 28}
    transformers.BitImageProcessor(size=square, crop_size=square).save_pretrained(folder)
    return [f"model.encoder.weights={folder}"]


def save_vit(path):
    """A tiny transformer of timm with the options of UNI's; words that name it."""
    import timm
    import torch

    model = timm.create_model("test_vit", num_classes=0, init_values=1.0e-5, dynamic_img_size=True)
    torch.save(model.state_dict(), path)
    return ["model.encoder.backbone=test_vit", f"model.encoder.weights={path}"]


def save_resnet(path):
    import timm
    import torch

    torch.save(timm.create_model(NETWORK, num_classes=0).state_dict(), path)
    return [f"model.encoder.backbone={NETWORK}", f"model.encoder.weights={path}"]


def data_of(folder, write):
    (folder / "data").mkdir()
    write(folder / "data")
    return [f"task.layout.root={folder}/data"]


@CHAINS.add(
    "fit task=hest_idc model=hest_probe +model@model.encoder=uni folds=all run=PROBE",
    "test task=hest_idc model=hest_probe +model@model.encoder=uni folds=all model.checkpoint=PROBE",
    "table",
)
def _hest(folder, request):
    hest_files.write(folder / "IDC", samples=3)
    words = [f"task.layout.root={folder}/IDC", *any_number("hest_idc"), *QUICK, "model.head.components=4"]
    words += save_vit(folder / "uni.bin")
    return [words, words, []]


@CHAINS.add(
    "fit task=pcam model=probe +model@model.encoder=phikon_v2 run=PROBE",
    "test task=pcam model=probe +model@model.encoder=phikon_v2 model.checkpoint=PROBE",
)
def _pcam(folder, request):
    words = [*data_of(folder, encoder_sets.write_pcam), *any_number("pcam"), *QUICK]
    return [*words, *save_dinov2(folder / "phikon")]


@CHAINS.add(
    "fit task=crc_100k model=owkin_probe +model@model.encoder=phikon_v2 run=PROBE",
    "test task=crc_100k model=owkin_probe +model@model.encoder=phikon_v2 model.checkpoint=PROBE",
)
def _phikon(folder, request):
    words = [*data_of(folder, encoder_sets.write_crc), *any_number("crc_100k"), *QUICK, "model.head.members=2"]
    return [*words, *save_dinov2(folder / "phikon")]


@CHAINS.add(
    "fit task=tcga_crc_msi model=owkin_abmil folds=all run=FOLDS",
    "test task=tcga_crc_msi model=owkin_abmil folds=all model.checkpoint=FOLDS",
    "test task=tcga_crc_msi model=owkin_abmil model.checkpoint=FOLDS task.layout.cohorts=[COHORT] "
    "task.layout.splits=null task.splits.test=all",
    "compare metric=auroc@MSI-H",
)
def _phikon_slides(folder, request):
    small = [
        "model.head.hidden=16",
        "model.head.attention=8",
        "model.grid={rate: [1.0e-2], epochs: [2]}",
        "model.folds=2",
    ]
    words = [*data_of(folder, encoder_sets.write_owkin), *small, *QUICK]
    of_coad, of_read = "task.layout.cohorts=[TCGA_COAD]", "task.layout.cohorts=[TCGA_READ]"
    other = ["task=tcga_crc_msi", "model=owkin_abmil", "model.name=Other", "folds=all", *words, of_coad]
    assert start(["fit", *other, f"run={folder}/OTHER"]) == 0
    assert start(["test", *other, f"model.checkpoint={folder}/OTHER", f"runs={folder}/runs"]) == 0
    return [[*words, of_coad], [*words, of_coad], [*words, of_read, "model.name=Ensemble"], []]


@CHAINS.add(
    "fit task=gpfm_nsclc model=abmil run=FIT task.protocol=published",
    "test task=gpfm_nsclc model=abmil model.checkpoint=FIT task.protocol=published",
)
def _gpfm(folder, request):
    small = ["model.head.hidden=16", "model.head.attention=8", "model.head.epochs=2"]
    return [*data_of(folder, encoder_sets.write_gpfm), *any_number("gpfm_nsclc"), *small, *QUICK]


@CHAINS.add(
    "fit task=gpfm_survival_luad model=abmil folds=all run=FIT",
    "test task=gpfm_survival_luad model=abmil folds=all model.checkpoint=FIT",
)
def _gpfm_survival(folder, request):
    small = ["model.head.hidden=16", "model.head.attention=8", "model.head.epochs=2"]
    return [*data_of(folder, encoder_sets.write_gpfm_survival), *any_number("gpfm_survival_luad"), *small, *QUICK]


@CHAINS.add("test suite=gpfm_regions model=precomputed_classes model.root=PREDICTIONS")
def _gpfm_regions(folder, request):
    tasks = composed_config("suite/gpfm_regions")["tasks"]
    writers = {f"gpfm_{name}": write for name, write in WRITERS.items()} | {
        "crc_100k": encoder_sets.write_crc,
        "pcam": encoder_sets.write_pcam,
    }
    words = [f"~tasks.{name}" for name in tasks if name not in writers]
    for name, write in writers.items():
        root = folder / "data" / name
        root.mkdir(parents=True)
        write(root)
        words += [f"tasks.{name}.layout.root={root}", *any_number(name, f"tasks.{name}")]
        write_classes(task(name, root), folder / "PREDICTIONS")
    return [*words, *QUICK]


@CHAINS.add(
    "fit task=benchx_nih model=timm_classifier model.backbone=BACKBONE run=FIT",
    "test task=benchx_nih model=timm_classifier model.checkpoint=FIT",
)
def _benchx(folder, request):
    words = [*data_of(folder, encoder_sets.write_benchx), *any_number("benchx_nih"), *QUICK]
    words.append(f"model.backbone={NETWORK}")
    return [[*words, *EPOCH], words]


@CHAINS.add("fit task=benchx_siim_masks model=mask_probe model.network.encoder=ENCODER")
def _siim(folder, request):
    root, names = folder / "data", [f"{number}_train_{number % 2}_" for number in range(8)]
    for number, name in enumerate(names):
        picture(root / f"images/{name}.png", np.diag(np.arange(64) + number))
        picture(root / f"masks/{name}.png", np.eye(64))
    rows = [f"{name}.png,1.2.3,{number % 2}" for number, name in enumerate(names)]
    (root / "siim_labels.csv").write_text("\n".join(["new_filename,ImageId,has_pneumo", *rows]) + "\n")
    for part, held in (("train", names[:4]), ("val", names[4:6]), ("test", names[6:])):
        (root / f"{part}.txt").write_text("".join(f"{name}\n" for name in held))
    small = [f"model.network.encoder={NETWORK}", "model.network.channels=16", "model.patches_per_case=1"]
    return [f"task.layout.root={root}", *any_number("benchx_siim_masks"), *small, *QUICK, *EPOCH]


@CHAINS.add(
    "fit task=swinchex_nih model=timm_classifier model.backbone=swin_large_patch4_window7_224",
    "test task=swinchex_nih model=timm_classifier model.backbone=swin_large_patch4_window7_224 model.checkpoint=FIT",
    "test task=nih_boxes model=timm_classifier model.backbone=swin_large_patch4_window7_224 model.checkpoint=FIT "
    "model.explain=grad_cam",
)
def _swinchex(folder, request):
    words = [*data_of(folder, encoder_sets.write_swinchex), *any_number("swinchex_nih"), *QUICK]
    words.append(f"model.backbone={NETWORK}")
    test_nih_boxes.write(folder / "boxes")
    boxes = [f"task.layout.root={folder}/boxes", *any_number("nih_boxes"), *QUICK, f"model.backbone={NETWORK}"]
    return [[*words, *EPOCH, "run=FIT"], words, boxes]


@CHAINS.add(
    "fit task=olives_biomarkers model=timm_classifier model.backbone=BACKBONE run=FIT",
    "test task=olives_biomarkers model=timm_classifier model.checkpoint=FIT",
)
def _olives(folder, request):
    words = [*data_of(folder, encoder_sets.write_olives), *any_number("olives_biomarkers"), *QUICK]
    words.append(f"model.backbone={NETWORK}")
    return [[*words, *EPOCH], words]


@CHAINS.add("fit task=olives_treatment model=timm_classifier model.backbone=BACKBONE run=EFFECT")
def _olives_treatment(folder, request):
    words = [*data_of(folder, encoder_sets.write_olives), *any_number("olives_treatment"), *QUICK, *EPOCH]
    return [*words, f"model.backbone={NETWORK}"]


@CHAINS.add(
    "fit task=olives_disease model=fusion_probe +model@model.encoder=timm_encoder task.layout.values=[BCVA,CST] "
    "run=FUSED",
    "test task=olives_disease model=fusion_probe +model@model.encoder=timm_encoder task.layout.values=[BCVA,CST] "
    "model.checkpoint=FUSED conditions=[without_oct,only_values]",
)
def _olives_disease(folder, request):
    words = [*data_of(folder, encoder_sets.write_olives), *any_number("olives_disease"), *QUICK]
    return [*words, *save_resnet(folder / "encoder.bin")]


@CHAINS.add(
    "fit task=multimed_form model=fusion_risk run=FIT",
    "test task=multimed_form model=fusion_risk model.checkpoint=FIT "
    "conditions=[only_ecg,missing_dna-30,noisy_ecg-3,dropped_note-3,blank_values-30]",
    "table by=condition",
)
def _multimed(folder, request):
    words = [*data_of(folder, lambda root: test_multimed.write(root, 35)), *QUICK]  # all to test have an ECG
    return [words, words, []]


FRACTIONS = "fraction=[0.025,0.05,0.1,0.25,0.5,1]"


@CHAINS.add(
    f"fit task=rate_findings model=rate_probe {FRACTIONS} run=PROBE",
    f"test task=rate_findings model=rate_probe {FRACTIONS} model.checkpoint=PROBE",
    "rank by=label metrics=[auroc@macro]",
)
def _rate(folder, request):
    words = [*data_of(folder, test_rate.write), *QUICK, "+model.head.epochs=5"]
    other = ["task=rate_findings", "model=rate_probe", "model.name=Other", *words]
    assert start(["fit", *other, f"run={folder}/OTHER"]) == 0
    assert start(["test", *other, f"model.checkpoint={folder}/OTHER", f"runs={folder}/runs"]) == 0
    return [words, words, []]


@CHAINS.add("test task=nlst_risk model=precomputed_risks model.root=RISKS task.protocol=published")
def _nlst(folder, request):
    (folder / "data").mkdir()
    encoder_sets.write_nlst(folder / "data", folder / "RISKS.csv")
    survival = "{" + ",".join(f"{year}: S{year}" for year in range(1, 7)) + "}"
    return [f"task.layout.root={folder}/data", "model.root=RISKS.csv", f"model.survival={survival}", *QUICK]


def write_t3(folder):
    (folder / "data").mkdir()
    encoder_sets.write_t3_cells(folder / "data")
    general, _ = (encoder_sets.write_clip(folder / name, seed) for seed, name in enumerate(("GENERAL", "TUNED")))
    words = ["model.general.model_name=null", f"model.general.checkpoint={general}", *QUICK]
    for name in ("medmnist_blood", "medimeta_c_pbc", "medmnist_c_blood"):
        words += [f"tasks.{name}.layout.root={folder}/data", *any_number(name, f"tasks.{name}")]
    return words


@CHAINS.add(
    "test suite=t3_cells model=merged_clip model.tuned.checkpoint=TUNED",
    "test suite=t3_cells model=merged_clip model.tuned.checkpoint=TUNED model.rule=fixed",
    "table by=severity metrics=[top1_accuracy,corruption_error]",
)
def _t3(folder, request):
    words = write_t3(folder)
    return [words, words, []]


@pytest.mark.parametrize("lines", CHAINS, ids=CHAINS.names)
def test_commands_run_on_files_of_their_authors_form(lines, run_chain):
    run_chain(CHAINS, lines)
