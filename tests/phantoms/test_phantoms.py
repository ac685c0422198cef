"""Phantoms: the same seed gives the same files, and what the tables say is what the masks and images hold."""

import json

import nibabel as nib
import numpy as np
import pandas as pd
import pydicom
import pytest
import SimpleITK
import yaml
from PIL import Image as Picture

from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import read, read_grid, read_mask
from medimg_eval.phantoms import KINDS, Phantom, ct, endoscopy, mr, pathology, write_phantoms, xray
from medimg_eval.phantoms.cohort import cohort
from medimg_eval.phantoms.shapes import box
from medimg_eval.tasks import SegmentationTask
from tests.helpers.config_files import config_file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three cases of each kind, of two patients; a second patient has a case of her own."""
    root = tmp_path_factory.mktemp("phantoms")
    for kind in KINDS:
        assert write_phantoms(kind, root / kind, cases=3, seed=0)
    return root


def table(folder, name):
    return pd.read_csv(folder / f"{name}.csv", dtype={"case": str})


def measured(folder, case):
    rows = table(folder, "measurements")
    return rows[rows["case"] == case].set_index("name")["value"]


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(kind, made, tmp_path):
    write_phantoms(kind, tmp_path / "again", cases=1, seed=0)
    write_phantoms(kind, tmp_path / "other", cases=1, seed=1)
    first, again, other = contents(made / kind), contents(tmp_path / "again"), contents(tmp_path / "other")
    # A cohort of one starts with the same case as a cohort of three; only the tables differ.
    shared = [name for name in again if "/" in name]
    assert len(shared) >= 2
    for name in shared:
        assert again[name] == first[name], name
        if kind != "endoscopy" or not name.startswith("masks"):  # labelled frames have names of their own
            assert again[name] != other.get(name), name


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_patient_and_answers_are_among_the_options(kind, made):
    rows = table(made / kind, "cases")
    assert rows["case"].is_unique
    assert len(rows[["patient", "split"]].drop_duplicates()) == rows["patient"].nunique()
    assert rows["patient"].value_counts().max() == 2
    lines = [json.loads(line) for line in (made / kind / "qa.jsonl").read_text().splitlines()]
    assert {line["case"] for line in lines} <= set(rows["case"])
    assert all(line["answer"] in line["options"] for line in lines)
    readme = (made / kind / "README.txt").read_text()
    assert "These are phantoms" in readme
    for name in rows.columns.intersection(["image", "mask", "lesions", "segmentation", "frames", "nuclei"]):
        assert all((made / kind / path).exists() for path in rows[name])


def test_a_ct_series_reads_alike_with_pydicom_simpleitk_and_ours(made):
    folder = made / "ct" / "series" / "ct-001"
    image = read(folder)
    slices = sorted((pydicom.dcmread(p) for p in folder.iterdir()), key=lambda d: float(d.ImagePositionPatient[2]))
    stack = np.stack([s.pixel_array * float(s.RescaleSlope) + float(s.RescaleIntercept) for s in slices], axis=-1)
    assert np.array_equal(image.array[0].transpose(1, 0, 2), stack)
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    other = reader.Execute()
    assert np.array_equal(SimpleITK.GetArrayFromImage(other).T, image.array[0])
    assert np.allclose(np.array(other.GetOrigin()) * [-1, -1, 1], image.affine[:3, 3], atol=1e-3)
    assert image.array.dtype == np.int16


def test_the_organs_of_a_ct_have_their_hounsfield_units(made):
    case = "ct-000"
    pixels = read(made / "ct" / "series" / case).array[0]
    labels = read_mask(made / "ct" / "masks" / f"{case}.nii.gz").labels
    means = {name: float(pixels[labels == label].mean()) for label, name in ct.LABELS.items()}
    assert means["lung"] < -600
    assert all(20 < means[name] < 200 for name in ("heart", "liver", "spleen", "kidney"))
    assert means["bone"] > 120
    # No threshold tells the organs apart: their intensities overlap.
    liver, spleen = pixels[labels == 3], pixels[labels == 4]
    assert np.percentile(liver, 95) > np.percentile(spleen, 5)
    assert np.percentile(spleen, 95) > np.percentile(liver, 5)


def test_volumes_boxes_and_diameters_of_a_ct_follow_from_its_masks(made):
    rows = table(made / "ct", "boxes")
    for case in table(made / "ct", "cases")["case"]:
        mask = read_mask(made / "ct" / "masks" / f"{case}.nii.gz")
        lesions = read_mask(made / "ct" / "lesions" / f"{case}.nii.gz").labels
        values = measured(made / "ct", case)
        voxel = float(np.prod(mask.geometry.spacing)) / 1000
        for label, name in ct.LABELS.items():
            assert values[f"{name} volume"] == pytest.approx((mask.labels == label).sum() * voxel, rel=1e-4)
        boxes = rows[rows["case"] == case]
        assert len(boxes) == lesions.max()
        for number, (_, row) in enumerate(boxes.iterrows(), 1):
            inside = lesions == number
            assert tuple(row[3:].astype(int)) == box(inside)
            organ = {"lung nodule": 1, "liver lesion": 3}[row["name"]]
            assert (mask.labels[inside] == organ).all()
            key = f"{row['name']} {number}"
            diameter = values[f"{key} diameter"]
            middle = [values[f"{key} {axis}"] for axis in ("right-left", "back-front", "down-up")]
            at = nib.affines.apply_affine(mask.affine, np.argwhere(inside))
            distance = np.linalg.norm(at - middle, axis=1)
            assert distance.max() <= diameter / 2 + 0.01
            every = nib.affines.apply_affine(mask.affine, np.argwhere(~inside))
            assert np.linalg.norm(every - middle, axis=1).min() >= diameter / 2 - 0.01


def test_the_dicom_seg_of_a_ct_holds_its_mask(made):
    pytest.importorskip("highdicom")
    mask = read_mask(made / "ct" / "masks" / "ct-002.nii.gz")
    segmentation = read_mask(made / "ct" / "segmentations" / "ct-002.dcm")
    assert np.array_equal(mask.labels, segmentation.labels)
    assert mask.geometry.difference(segmentation.geometry) is None
    assert segmentation.names == ct.LABELS


def test_the_tilted_ct_is_sheared_by_its_angle_and_its_mask_with_it(made):
    folder = made / "ct" / "variants" / "tilt"
    image = read(folder / "series")
    normal = np.cross(image.affine[:3, 0], image.affine[:3, 1])
    along = image.affine[:3, 2]
    angle = np.rad2deg(np.arccos(abs(normal @ along) / np.linalg.norm(normal) / np.linalg.norm(along)))
    assert angle == pytest.approx(ct.TILT, abs=1e-3)
    mask = read_mask(folder / "mask.nii.gz")
    assert image.geometry.difference(mask.geometry) is None
    # The same organs lie at the same places as without the tilt.
    plain = read_mask(made / "ct" / "variants" / "gap" / "mask.nii.gz")
    centres = [nib.affines.apply_affine(m.affine, np.argwhere(m.labels == 2)).mean(axis=0) for m in (mask, plain)]
    assert np.linalg.norm(centres[0] - centres[1]) < 12


def test_the_ct_with_a_missing_slice_and_the_folder_of_several_series_are_refused(made):
    variants = made / "ct" / "variants"
    assert len(list((variants / "gap" / "series").iterdir())) == ct.SHAPE[2] - 1
    with pytest.raises(CaseError, match="gap.*missing"):
        read(variants / "gap" / "series")
    with pytest.raises(CaseError, match="several.*mask.nii.gz.*either may be meant"):
        read(variants / "several")
    with pytest.raises(CaseError, match="several.*series="):
        read(sorted(variants.glob("several/*.dcm")))
    headers = [pydicom.dcmread(p, stop_before_pixels=True) for p in variants.glob("several/*.dcm")]
    assert len({h.SeriesInstanceUID for h in headers}) == 3
    assert {h.SeriesDescription for h in headers} == {"localiser", "plain", "portal"}
    assert len({h.StudyInstanceUID for h in headers}) == 1


def test_an_mr_holds_what_its_tables_say(made):
    found = table(made / "mr", "findings").set_index("case")["lesion"]
    rows = table(made / "mr", "boxes") if (made / "mr" / "boxes.csv").exists() else pd.DataFrame(columns=["case"])
    for case, lesion in found.items():
        image = nib.load(made / "mr" / "images" / f"{case}.nii.gz")
        mask = nib.load(made / "mr" / "masks" / f"{case}.nii.gz")
        pixels, labels = np.asarray(image.dataobj), np.asarray(mask.dataobj)
        assert np.allclose(image.affine, mask.affine, atol=1e-4)
        values = measured(made / "mr", case)
        for label, name in mr.LABELS.items():
            assert values[f"{name} volume"] == pytest.approx((labels == label).sum() * mr.EDGE**3 / 1000, rel=1e-4)
        means = [pixels[labels == label].mean() for label in (1, 2, 3)]
        assert means == sorted(means)
        assert bool(lesion) == bool((labels == 4).any())
        if lesion:
            assert tuple(rows[rows["case"] == case].iloc[0, 3:].astype(int)) == box(labels == 4)
            across = 2 * (0.75 / np.pi * values["lesion volume"] * 1000) ** (1 / 3)
            assert across == pytest.approx(values["lesion diameter"], rel=0.06)


def test_lesions_of_mr_phantoms_lie_on_the_side_the_answer_names():
    heads = [mr.scan(member) for member in cohort("mr", 6, 2)]
    assert any(head.side for head in heads)
    assert any(not head.side for head in heads)
    for head in heads:
        at = nib.affines.apply_affine(head.image.affine, np.argwhere(head.labels == 4))
        assert head.side == ("" if not len(at) else "right" if at[:, 0].mean() > 0 else "left")


def test_chest_x_rays_come_in_both_photometric_interpretations_and_read_alike(made):
    photometric = set()
    for member in cohort("xray", 3, 0):
        path = made / "xray" / "images" / f"{member.case}.dcm"
        header = pydicom.dcmread(path)
        photometric.add(header.PhotometricInterpretation)
        image = read(path)
        assert np.array_equal(image.array, xray.picture(member).image.array)
        assert image.geometry.spacing == (xray.PIXEL, xray.PIXEL)
        labels = np.asarray(Picture.open(made / "xray" / "masks" / f"{member.case}.png"))
        assert image.array[0][labels == 2].mean() > image.array[0][labels == 1].mean()
    assert photometric == {"MONOCHROME1", "MONOCHROME2"}


def test_the_cardiothoracic_ratio_follows_from_the_mask_and_decides_on_cardiomegaly(made):
    rows = table(made / "xray", "findings").set_index("case")["cardiomegaly"]
    for case, enlarged in rows.items():
        labels = np.asarray(Picture.open(made / "xray" / "masks" / f"{case}.png"))
        ratio = measured(made / "xray", case)["cardiothoracic ratio"]
        heart = np.flatnonzero((labels == 2).any(axis=0))
        chest = max(np.ptp(np.flatnonzero(row)) + 1 for row in labels == 1 if row.any())
        assert ratio == pytest.approx((np.ptp(heart) + 1) / chest, rel=1e-5)
        assert bool(enlarged) == (ratio > 0.5)


def test_reports_of_x_rays_name_the_findings_that_are_there_and_no_others(made):
    chests = {member.case: xray.picture(member) for member in cohort("xray", 24, 3)}
    present = pd.DataFrame({case: chest.findings for case, chest in chests.items()}).T.astype(bool)
    assert present.any().all()
    assert not present.all().any()
    ratios = np.array([chest.ratio for chest in chests.values()])
    assert (np.abs(ratios - xray.ENLARGED) > 0.01).all()  # no heart is on the line
    for case, chest in chests.items():
        text = xray.report(chest.findings, chest.sides, chest.ratio, chest.diameter, np.random.default_rng(0))
        body, _, summary = text.partition("IMPRESSION: ")
        for name, there in present.loc[case].items():
            assert (name in summary.lower()) == there, (case, name, text)
        for name, side in chest.sides.items():
            assert side in body
            columns = np.argwhere(chest.marks[name])[:, 1]
            middle = np.argwhere(chest.labels == 1)[:, 1].mean()
            assert side == ("left" if columns.mean() > middle else "right")
    texts = table(made / "xray", "cases")["report"]
    assert texts.is_unique


def test_boxes_of_x_rays_bound_the_findings(made):
    rows = table(made / "xray", "boxes")
    for member in cohort("xray", 3, 0):
        chest = xray.picture(member)
        marks = dict(chest.marks)
        if chest.findings["cardiomegaly"]:
            marks["cardiomegaly"] = chest.labels == 2
        found = rows[rows["case"] == member.case].set_index("name")
        assert set(found.index) == set(marks)
        for name, mark in marks.items():
            corners = found.loc[name, ["first_0", "first_1", "last_0", "last_1"]]
            assert tuple(corners.astype(int)) == box(mark)


def test_a_clip_opens_with_pyav_and_its_labels_fit_its_masks(made):
    import av

    rows = table(made / "endoscopy", "boxes")
    for member in cohort("endoscopy", 3, 0):
        with av.open(made / "endoscopy" / "clips" / f"{member.case}.mp4") as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
            rate = container.streams.video[0].average_rate
        assert len(frames) == endoscopy.FRAMES
        assert rate == endoscopy.FPS
        clip = endoscopy.clip(member)
        assert np.array_equal(np.stack(frames), clip.frames)
        labels = table(made / "endoscopy", f"frames/{member.case}")
        assert (labels["polyp"] == clip.visible).all()
        assert list(labels["phase"].unique()) == list(endoscopy.PHASES)
        assert 0 < clip.visible.sum() < endoscopy.FRAMES
        assert labels["labelled"].sum() == endoscopy.LABELLED
        for n in labels["frame"][labels["labelled"] == 1]:
            mask = np.asarray(Picture.open(made / "endoscopy" / endoscopy.mask_file(member.case, n)))
            assert np.array_equal(mask > 0, clip.masks[n])
            row = rows[(rows["case"] == member.case) & (rows["frame"] == n)].iloc[0]
            assert tuple(row[["first_0", "first_1", "last_0", "last_1"]].astype(int)) == box(mask > 0)


def test_every_fifth_patient_has_neither_polyp_nor_tumour():
    healthy = cohort("endoscopy", 7, 0)[6]
    assert healthy.healthy
    assert not endoscopy.clip(healthy).visible.any()
    assert not (pathology.slide(cohort("pathology", 7, 0)[6]).regions == 1).any()


def test_a_slide_is_a_pyramid_and_its_nuclei_lie_where_its_mask_says(made):
    import openslide

    folder = made / "pathology"
    rows = table(folder, "boxes")
    for case in table(folder, "cases")["case"]:
        with openslide.OpenSlide(folder / "slides" / f"{case}.tiff") as slide:
            assert slide.dimensions == (pathology.EDGE, pathology.EDGE)
            assert slide.level_count >= 3
        regions = np.asarray(Picture.open(folder / "masks" / f"{case}.png"))
        nuclei = table(folder, f"nuclei/{case}")
        values = measured(folder, case)
        at = (nuclei[["row", "column"]].to_numpy() / pathology.COARSE).astype(int)
        inside = regions[tuple(at.T)]
        assert (inside[nuclei["kind"] == "tumour"] == 1).all()
        assert (inside[nuclei["kind"] != "tumour"] == 2).all()
        for kind in ("tumour", "stroma", "lymphocyte"):
            assert values[f"{kind} nuclei"] == (nuclei["kind"] == kind).sum()
        area = {label: values[f"{name} area"] for label, name in pathology.LABELS.items()}
        for label, value in area.items():
            assert value == pytest.approx((regions == label).sum() * 0.002**2, rel=1e-4)
        density = [values["tumour nuclei"] / area[1], values["stroma nuclei"] / area[2]]
        assert density[0] > 2 * density[1]
        size = (nuclei["length"] * nuclei["width"]).groupby(nuclei["kind"]).mean()
        assert size["tumour"] > 1.3 * size["lymphocyte"]
        mine = rows[rows["case"] == case]
        covered = np.zeros_like(regions, dtype=bool)
        for _, row in mine.iterrows():
            top, left, bottom, right = row[["first_0", "first_1", "last_0", "last_1"]].astype(int) // pathology.COARSE
            covered[top : bottom + 1, left : right + 1] = True
        assert covered[regions == 1].all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_yields_cases_whose_masks_lie_on_their_images(kind, made, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", "/nowhere")  # what is made already is read from the root
    layout = Phantom(kind, root=str(made), count=3)
    card = yaml.safe_load(config_file(f"phantom_{kind}").read_text())
    settings = {key: card[key] for key in ("labels", "metrics", "units") if key in card}
    task = SegmentationTask(name=kind, layout=layout, **settings)
    cases = task.cases("test")
    assert {case.patient for case in cases} == {f"{kind}-p000"}
    for case in cases:
        image, mask = case.images[0].read(), case.target.read()
        assert image.geometry.difference(mask.geometry) is None
        assert case.images[0].geometry().difference(case.target.geometry()) is None
        assert set(case.attributes) == {"sex", "age_group", "site", "scanner"}
        assert mask.labels.any()
        task.accept(case, mask, what="reference")
        scores = task.score(case, mask)
        assert all(score.value in (0, 1) for score in scores if score.status == "present")
        assert image.array.ndim == len(mask.labels.shape) + 1
    with pytest.raises(UserError, match="no split 'tset'; did you mean 'test'"):
        layout.cases("tset")


def test_a_frame_of_a_clip_and_its_grid_agree(made):
    case = Phantom("endoscopy", root=str(made), count=3).cases("fit")[0]
    image = case.images[0].read()
    assert image.array.shape == (3, *endoscopy.SHAPE)
    assert image.geometry.difference(case.images[0].geometry()) is None
    assert read_grid(case.images[0].files[0]).shape == (endoscopy.FRAMES, *endoscopy.SHAPE)
