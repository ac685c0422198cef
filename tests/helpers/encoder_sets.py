"""Sets of encoders, slides and risk in their authors' layouts, large enough for a head to be fitted and tested."""

import csv
import json

import h5py
import numpy as np
import pandas as pd
import torch

from tests.helpers.benchmark_files import config, picture, volume

EDGE = 24


def tile(number, seed, edge=EDGE):
    """An RGB picture whose colour tells the number of its class, under noise."""
    random = np.random.default_rng(seed)
    colour = np.array([(40 + 53 * number) % 256, (200 + 91 * number) % 256, (90 + 29 * number) % 256])
    return np.clip(colour + random.normal(0, 12, (edge, edge, 3)), 0, 255).astype(np.uint8)


def write_crc(root):
    """NCT-CRC-HE: a folder for each of nine classes, two sets side by side."""
    for folder, count in (("NCT-CRC-HE-100K", 6), ("CRC-VAL-HE-7K", 2)):
        for number, name in enumerate(config("crc_100k").classes):
            for index in range(count):
                picture(root / folder / name / f"{name}-{folder[:3]}{index}.tif", tile(number, 100 * number + index))


def write_pcam(root):
    """PatchCamelyon: images and labels in files of their own, for each split."""
    for place, (split, count) in enumerate((("train", 16), ("valid", 6), ("test", 8))):
        labels = np.arange(count) % 2
        with h5py.File(root / f"camelyonpatch_level_2_split_{split}_x.h5", "w") as file:
            file["x"] = np.stack([tile(label, 100 * place + index) for index, label in enumerate(labels)])
        with h5py.File(root / f"camelyonpatch_level_2_split_{split}_y.h5", "w") as file:
            file["y"] = labels.astype(np.uint8).reshape(-1, 1, 1, 1)


def write_mhist(root):
    """MHIST: a table of votes and splits beside its pictures."""
    lines = ["Image Name,Majority Vote Label,Number of Annotators who Selected SSA (Out of 7),Partition"]
    for index in range(24):
        name, is_sessile = f"MHIST_{index}.png", index % 2
        picture(root / "images" / name, tile(is_sessile, index))
        lines.append(f"{name},{('HP', 'SSA')[is_sessile]},{1 + 5 * is_sessile},{'test' if index > 15 else 'train'}")
    (root / "annotations.csv").write_text("\n".join(lines) + "\n")


def write_medmnist(root):
    """MedMNIST's breast set: one .npz with six arrays."""
    arrays = {}
    for place, (split, count) in enumerate((("train", 16), ("val", 6), ("test", 8))):
        labels = np.arange(count) % 2
        shown = [tile(label, 100 * place + index, 28)[..., 0] for index, label in enumerate(labels)]
        arrays |= {f"{split}_images": np.stack(shown), f"{split}_labels": labels.reshape(-1, 1).astype(np.uint8)}
    np.savez(root / "breastmnist.npz", **arrays)


def bag(number, seed, tiles=6, length=8):
    """Features of a slide's tiles, whose mean tells the number of its class."""
    random = np.random.default_rng(seed)
    return (random.normal(0, 1, (tiles, length)) + 2 * number * (np.arange(length) < 2)).astype(np.float32)


def write_gpfm(root, name="gpfm_nsclc"):
    """GPFM: a table, one list of three columns, and features as CLAM leaves them; patients stay in one part."""
    layout, classes = config(name).layout, list(config(name).classes)
    folder = root / "features/pt_files"
    folder.mkdir(parents=True)
    slides = [f"TCGA-{index:02d}-A{index:03d}-01Z-00-DX1.UUID{index}" for index in range(10 * len(classes))]
    lines, parts = ["dir,case_id,slide_id,label"], {"train": [], "val": [], "test": []}
    for index, slide in enumerate(slides):
        number = index % len(classes)
        torch.save(torch.from_numpy(bag(number, index)), folder / f"{slide}.pt")
        lines.append(f"/elsewhere,{slide},{slide},{classes[number]}")
        parts[("train", "train", "train", "val", "test")[index // len(classes) % 5]].append(slide)
    for path in (layout.table, layout.splits.table):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / layout.table).write_text("\n".join(lines) + "\n")
    pd.DataFrame({part: pd.Series(names) for part, names in parts.items()}).to_csv(root / layout.splits.table)


def write_gpfm_survival(root, name="gpfm_survival_luad"):
    """GPFM's survival: five columns of folds, several slides of a patient in one cell."""
    table = root / config(name).layout.table
    table.parent.mkdir(parents=True)
    folder = root / "features/pt_files"
    folder.mkdir(parents=True)
    lines = ["Study,case_id,survival_months,censorship,slide_id,Fold 0,Fold 1,Fold 2,Fold 3,Fold 4"]
    for index in range(40):
        slides = [f"P{index}-DX{part}.uuid" for part in range(1 + index % 2)]
        for part, slide in enumerate(slides):
            torch.save(torch.from_numpy(bag(index / 20, 2 * index + part)), folder / f"{slide}.pt")
        cell = ";".join(f"/storage/pt_files/resnet50/{slide}.pt" for slide in slides)
        folds = ",".join("val" if index % 5 == fold else "train" for fold in range(5))
        lines.append(f"TCGA-LUAD,P{index},{60 - index + 0.5},{float(index % 4 == 0)},{cell},{folds}")
    table.write_text("\n".join(lines) + "\n")


def write_patho_bench(root, survives=False):
    """Patho-Bench: `k=all.tsv` and `config.yaml` of one task, features of its slides beside them."""
    (root / "by_slide_id").mkdir(parents=True)
    extra = ["OS_event", "OS_days"] if survives else ["OS"]
    lines = ["\t".join(["case_id", "slide_id", "OS", *(extra if survives else ()), *(f"fold_{k}" for k in range(4))])]
    for index in range(32):
        number = index % 2
        with h5py.File(root / "by_slide_id" / f"C{index}-1.h5", "w") as file:
            file["features"] = bag(index / 16 if survives else number, index)[0]
        folds = ["test" if index // 2 % 4 == fold else "train" for fold in range(4)]
        told = [str(int(index % 4 > 0)), str(1000 - 20 * index)] if survives else []
        lines.append("\t".join([f"C{index}", f"C{index}-1", str(number), *told, *folds]))
    (root / "k=all.tsv").write_text("\n".join(lines) + "\n")
    settings = "task_col: OS\nsample_col: case_id\nextra_cols: []\nlabel_dict: {0: wildtype, 1: mutant}\nmetrics: [x]\n"
    (root / "config.yaml").write_text(settings)


def write_owkin(root, cohorts=("TCGA_COAD", "TCGA_READ"), patients=15):
    """HistoSSLscaling's data_dir: labels of patients without a header, and .npy files of level, x, y and features.

    Patient 00 has two slides, one has no label, and that of one is Indeterminate.
    """
    raw = root / "raw/slides_classification/TCGA/clinical"
    for place, cohort in enumerate(cohorts):
        features = root / "preprocessed/slides_classification/features/iBOTViTBasePANCAN/TCGA" / cohort
        msi, survival = [], ["bcr_patient_barcode,gender,OS,OS.time"]
        for number in range(patients):
            patient, label = f"TCGA-A{place}-{number:04d}", number % 2
            if number < patients - 1:
                word = (
                    "Indeterminate"
                    if number == patients - 2
                    else "MSI-H"
                    if label
                    else ("MSS", "MSI-L")[number % 4 // 2]
                )
                msi.append(f"{patient},{word}")
                survival.append(f"{patient},FEMALE,{number % 3 % 2},{900 - 400 * label + number}")
            for slide in range(1 + (number == 0)):
                folder = features / f"{patient}-01Z-00-DX{slide + 1}.0A1B-2C.svs"
                folder.mkdir(parents=True)
                tiles = bag(label, 100 * place + 2 * number + slide)
                places = np.stack([np.full(len(tiles), 16), np.arange(len(tiles)), np.zeros(len(tiles))], axis=1)
                np.save(folder / "features.npy", np.concatenate([places, tiles], axis=1).astype(np.float32))
        for name, lines in (("msi/msi_labels", msi), ("survival/survival_labels", survival)):
            table = raw / f"{name}_{cohort.lower()}.csv"
            table.parent.mkdir(parents=True, exist_ok=True)
            table.write_text("\n".join(lines) + "\n")


def write_benchx(root):
    """BenchX's NIH: NIH's table, and one name a line in each list."""
    classes = list(config("benchx_nih").classes)
    rows, parts = ["Image Index,Finding Labels,Patient Gender,Patient Age,View Position"], {}
    for index in range(3 * 28):
        name, held = f"{index:08d}_000.png", [classes[index % 14], classes[(index + 3) % 14]]
        picture(root / "images" / name, tile(index % 14, index)[..., 0])
        rows.append(f"{name},{'|'.join(held)},F,50,PA")
        parts.setdefault(("train", "val", "test")[index // 28], []).append(name)
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join(rows) + "\n")
    for part, names in parts.items():
        (root / f"{part}.txt").write_text("\n".join(names) + "\n")


BENCHX_SPLITS = ("train", "train", "val", "test")
"""Splits that rows of a fixture go to, one after the other."""


def write_lists(root, names):
    """BenchX's lists of names, a file for each split."""
    for split in sorted(set(BENCHX_SPLITS)):
        held = [name for place, name in enumerate(names) if BENCHX_SPLITS[place % 4] == split]
        (root / f"{split}.txt").write_text("".join(f"{name}\n" for name in held))


def write_benchx_table(root, file, header, row, classes, listed="{}"):
    """Pictures of BenchX whose colour tells the class, named in a table and, as `listed` says, in the lists."""
    lines, names = [header], []
    for index in range(4 * 2 * len(classes)):
        name, number = f"{index:04d}", index // 4 % len(classes)
        picture(root / f"images/{name}.png", tile(number, index)[..., 0])
        lines.append(row.format(index=index, name=name, label=classes[number]))
        names.append(listed.format(name))
    (root / file).write_text("\n".join(lines) + "\n")
    write_lists(root, names)


def write_benchx_rsna(root):
    """BenchX's RSNA: a row for each box, here of nobody."""
    write_benchx_table(
        root, "rsna_labels.csv", ",patientId,x,y,width,height,Target", "{index},{name},,,,,{label}", "01"
    )


def write_benchx_siim(root):
    """BenchX's SIIM: names with an ending in the table and without one in the lists."""
    write_benchx_table(
        root, "siim_labels.csv", "new_filename,ImageId,has_pneumo", "{name}.png,1.2.{index},{label}", "01"
    )


def write_benchx_vindr(root):
    """BenchX's VinDr-CXR: findings of readers joined by a bar."""
    layout = config("benchx_vindr").layout.target.classes
    asked = [name for name, label in layout.items() if label in config("benchx_vindr").classes]
    write_benchx_table(root, "vindr_labels.csv", "image_id,class_name", "{name},{label}|Other disease", asked)


def write_benchx_covidx(root):
    """BenchX's COVIDx: patients of sources, lists of files."""
    row = "{index},images/{name}.png,{label},rsna"
    header = "patient_id,filename,class,data_source"
    write_benchx_table(root, "covidx_labels.csv", header, row, ["negative", "positive"], "images/{}.png")


def write_benchx_masks(root):
    """BenchX's sets with masks: a bright square in each other picture, and files of the same names."""
    random, names = np.random.default_rng(0), [f"{index:04d}" for index in range(32)]
    for index, name in enumerate(names):
        mask, corner = np.zeros((64, 64), np.uint8), 8 + index % 5 * 8
        mask[corner : corner + 16, corner : corner + 16] = index // 4 % 2
        picture(root / f"images/{name}.png", 60 + random.integers(0, 30, mask.shape) + 120 * mask)
        picture(root / f"masks/{name}.png", mask)
    write_lists(root, names)


def write_iu_xray(root):
    """R2Gen's annotation of IU X-ray: two views a study, and a finding that both show as their grey."""
    reports = ["The heart is enlarged . No effusion .", "The lungs are clear . Normal heart ."]
    studies = {split: [] for split in ("train", "val", "test")}
    for index in range(32):
        split, name = BENCHX_SPLITS[index % 4], f"CXR{index}_IM-{index:04d}"
        paths = [f"{name}/{view}.png" for view in range(2)]
        for view, path in enumerate(paths):
            picture(root / "images" / path, tile(index // 4 % 2, 2 * index + view)[..., 0])
        studies[split].append({"id": name, "report": reports[index // 4 % 2], "image_path": paths, "split": split})
    (root / "annotation.json").write_text(json.dumps(studies))


def write_swinchex(root):
    """SwinCheX: lists with a column for each finding, beside NIH's folders of pictures."""
    classes = list(config("swinchex_nih").classes)
    (root / "configs/NIH").mkdir(parents=True)
    for place, part in enumerate(("train", "validation", "test")):
        lines = [",".join(["Image Index", *classes])]
        for index in range(28):
            name = f"{28 * place + index:08d}_000.png"
            picture(root / "images_001/images" / name, tile(index % 14, 28 * place + index)[..., 0])
            lines.append(",".join([name, *(str(int(index % 14 == number)) for number in range(14))]))
        (root / f"configs/NIH/{part}.csv").write_text("\n".join(lines) + "\n")


def write_olives(root):
    """OLIVES: eyes of two trials by visit, a table of biomarkers and values, scans and a fundus picture."""
    path = "Path (Trial/Arm/Folder/Visit/Eye/Image Name)"
    eyes = [f"/TREX DME/GILA/{number:04d}GOD" for number in range(12)]
    eyes += [f"/Prime_FULL/01-{number:03d}" for number in range(12)]
    biomarkers, rows = list(config("olives_biomarkers").classes), []
    for patient, eye in enumerate(eyes):
        for visit in range(3):
            folder = f"{eye}/W{4 * visit}/OD"
            picture(root / folder[1:] / f"fundus_OD_W{4 * visit}.tif", tile(patient % 2, visit))
            for scan in range(2):
                name = f"{folder}/{'TREXJ_00000' if 'TREX' in eye else ''}{scan}.png"
                shown = tile(patient % 2, 10 * patient + scan)[..., 0]
                picture(root / name[1:], shown)
                held = {marker: str((patient + number + scan) % 2) for number, marker in enumerate(biomarkers)}
                rows.append(
                    {path: name, "Scan (n/49)": scan + 1, **held, "Eye_ID": patient}
                    | {"BCVA": 60 + patient + (0, 3, -2)[visit], "CST": 300 - patient}
                    | {"Patient_ID": patient % 12}
                )
    table = root / "OLIVES_Dataset_Labels/full_labels/Biomarker_Clinical_Data_Images.csv"
    table.parent.mkdir(parents=True)
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_t3_cells(root):
    """MedMNIST's blood, and the corrupted sets of MedMNIST-C and MediMeta-C, in the folders that the suite names."""
    classes = len(config("medmnist_blood").classes)
    arrays = {}
    for split in ("train", "val", "test"):
        labels = np.arange(classes)
        arrays |= {f"{split}_images": np.stack([tile(number, 0, 28) for number in labels])}
        arrays |= {f"{split}_labels": labels.reshape(-1, 1).astype(np.uint8)}
    np.savez(root / "bloodmnist.npz", **arrays)
    for name in ("bloodmnist", "pbc"):
        (root / name / "test").mkdir(parents=True)
        shown = np.stack([tile(number, 1, 28) for number in range(classes)])
        for file in ("clean", *(f"fog_severity_{severity}" for severity in range(1, 6))):
            np.savez(root / name / "test" / f"{file}.npz", images=shown, labels=np.arange(classes).reshape(-1, 1))


def write_nlst(root, risks):
    """NLST in the columns of pillar-finetune, and a table of risks with survival of six years."""
    random = np.random.default_rng(0)
    lines, answers = ["accession,image_paths,split,y,time_at_event"], []
    for index in range(30):
        has_cancer, year = index % 3 == 0, int(random.integers(0, 6))
        volume(root / f"A{index}.nii.gz", np.zeros((3, 3, 3)))
        lines.append(f"A{index},A{index}.nii.gz,test,{int(has_cancer)},{year if has_cancer else 5}")
        risk = float(np.clip(0.2 + 0.5 * has_cancer + random.normal(0, 0.1), 0, 0.9))
        answers.append({"case": f"A{index}", "risk": risk, **{f"S{year}": 1 - risk * year / 6 for year in range(1, 7)}})
    (root / "nlst.csv").write_text("\n".join(lines) + "\n")
    pd.DataFrame(answers).to_csv(risks, index=False)


HEARTS, LUNGS = ("The heart is of normal size.", "The heart is enlarged."), ("No oedema.", "There is pulmonary oedema.")
"""Sentences of a report, of a finding that is absent and present."""


def rate_replies():
    """Words of a prompt of CheXpert's questions, and what a model replies that answers rightly."""
    pairs = [(heart, lung) for heart in HEARTS for lung in LUNGS]
    rewritten = [(["Write the report anew", f"{heart} {lung}"], f"{heart} {lung}") for heart, lung in pairs]
    asked = [("Question: Is the heart enlarged?", HEARTS[1]), ("Question: Is there pulmonary oedema?", LUNGS[1])]
    positive = [([question, told], json.dumps({"value": "yes", "evidence": told})) for question, told in asked]
    return [*rewritten, *positive, (["Question:"], json.dumps({"value": "no"}))]


def write_rate(root):
    """RATE-Evals' features, whose first numbers tell two findings, beside the scans' reports and people's labels."""
    random, reports, people = np.random.default_rng(0), [], []
    for split, count in (("train", 40), ("valid", 8), ("test", 24)):
        (root / "embeddings" / split).mkdir(parents=True)
        for index in range(count):
            name, present = f"{split}{index:03d}", (index % 2, index // 2 % 2)
            vector = random.normal(0, 1, 6).astype(np.float32)
            vector[:2] += 3 * np.array(present)
            np.savez_compressed(root / f"embeddings/{split}/{name}.npz", embedding=vector[None])
            told = f"{HEARTS[present[0]]} {LUNGS[present[1]]} Unchanged since the last study."
            reports.append({"Accession": name, "Report Text": told})
            people.append({"Accession": name, "Cardiomegaly": present[0], "Edema": present[1]})
    pd.DataFrame(reports).to_csv(root / "reports.csv", index=False)
    pd.DataFrame(people).to_csv(root / "people.csv", index=False)


def mosaic_replies():
    """Words of a Danish report, and the object that a model replies."""
    names = list(config("mosaic_danskcxr", "labelling").findings)
    held = {"Pleuravæske.": {"PleuralEffusion": 1}, "Ingen pleuravæske.": {"PleuralEffusion": 2}, "Normal.": {}}
    return [([told], json.dumps(dict.fromkeys(names, -1) | stated)) for told, stated in held.items()]


def write_mosaic(root):
    """Danish reports, a picture of each, and what people read in half of them."""
    reports, people = [], []
    for index in range(36):
        told, stated = (("Pleuravæske.", 1), ("Ingen pleuravæske.", 2), ("Normal.", -1))[index % 3]
        part = ("fit", "validate", "test")[index // 3 % 3]
        picture(root / f"images/r{index}.png", tile(int(stated == 1), index)[..., 0])
        reports.append({"id": f"r{index}", "report": told, "part": part})
        people.append({"id": f"r{index}", "PleuralEffusion": {2: 0, -1: ""}.get(stated, 1)})
    pd.DataFrame(reports).to_csv(root / "reports.csv", index=False)
    pd.DataFrame(people[:18]).to_csv(root / "people.csv", index=False)


def write_clip(folder, seed):
    """A tiny CLIP model without training, in a folder as open_clip keeps one; returns it."""
    import open_clip

    sizes = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    folder.mkdir()
    described = {"model_cfg": sizes, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    named = folder / f"tiny-clip-{seed}.json"
    named.write_text(json.dumps(sizes))
    open_clip.add_model_config(named)
    torch.manual_seed(seed)
    torch.save(open_clip.create_model(named.stem).state_dict(), folder / "open_clip_pytorch_model.bin")
    return folder
