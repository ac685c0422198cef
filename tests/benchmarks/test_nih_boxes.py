"""NIH's boxes, in the authors' layout: from a classifier's maps to their metrics, a figure and a report."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from medimg_eval.codecs import Weighed, maps_of
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.models import ImageClassifier, Probe, TimmEncoder
from medimg_eval.models.heads import make_head
from medimg_eval.results import load_runs
from medimg_eval.viewer.attention import every_figure
from tests.helpers.benchmark_files import picture, task
from tests.helpers.running import evaluate

EDGE = 64
ENTRY = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
FINDINGS = {"00000001_000.png": "Infiltration|Mass", "00000002_000.png": "Mass", "00000003_000.png": "No Finding"}
BOXES = [
    "00000001_000.png,Infiltrate,8.0,16.0,16.0,24.0,,,",
    "00000001_000.png,Mass,40.5,40.5,16.0,16.0,,,",
    "00000001_000.png,Mass,0.0,0.0,4.0,4.0,,,",
    "00000002_000.png,Mass,32.0,0.0,16.0,16.0,,,",
]


def write(root, boxes=BOXES):
    """Bright squares: in the first picture within the box of the infiltrate, in the second beside that of the mass."""
    for name, corner in (("00000001_000.png", (24, 8)), ("00000002_000.png", (40, 8)), ("00000003_000.png", (0, 0))):
        pixels = np.full((EDGE, EDGE), 10, np.uint8)
        pixels[corner[0] : corner[0] + 16, corner[1] : corner[1] + 16] = 250
        picture(root / "images_001/images" / name, pixels)
    rows = [
        f"{name},{said},0,{place},058,F,PA,2682,2749,0.143,0.143"
        for place, (name, said) in enumerate(FINDINGS.items(), 1)
    ]
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([ENTRY, *rows]) + "\n")
    header = "Image Index,Finding Label,Bbox [x,y,w,h],,,"
    (root / "BBox_List_2017.csv").write_text("\n".join([header, *boxes]) + "\n")


def nih(root, boxes=BOXES):
    write(root, boxes)
    return task("nih_boxes", root)


def test_boxes_are_outlines_of_findings_with_their_own_names(tmp_path):
    one = nih(tmp_path)
    first, second = one.cases("test")
    assert [first.id, second.id, first.patient] == ["00000001_000.png", "00000002_000.png", "00000001"]
    found = first.target.read()
    assert {name for name, value in found.values.items() if value == 1} == {"Infiltration", "Mass"}
    assert list(found.outlines) == ["Infiltration", "Mass"]
    mask = found.outlines["Infiltration"].mask.read().labels
    assert np.array_equal(np.argwhere(mask)[[0, -1]], [[16, 8], [39, 23]])  # x, y, width, height
    # Two boxes of one finding together; of a box from 40.5 to 56.5 those pixels whose centres lie in it.
    mass = found.outlines["Mass"].mask.read().labels
    assert mass.sum() == 4 * 4 + 16 * 16
    assert mass[40, 40] == mass[55, 55] == mass[0, 0] == 1
    assert mass[56, 56] == mass[39, 40] == 0


def test_a_box_of_a_finding_that_is_absent_or_unknown_fails_its_case(tmp_path):
    for label, message in (("Hernia", "said to be absent"), ("Massive", "called.*'Massive'")):
        one = nih(tmp_path, [f"00000002_000.png,{label},1,1,4,4,,,"])
        with pytest.raises(CaseError, match=message):
            one.cases("test")[0].target.read()


class Bright(nn.Module):
    """Features where a picture is bright, in cells of 8 x 8; every class likes them, but the first."""

    def __init__(self):
        super().__init__()
        self.cells, self.cut = nn.AvgPool2d(8), nn.ReLU()
        self.head = nn.Linear(1, 14, bias=False)
        with torch.no_grad():
            self.head.weight[:] = 1
            self.head.weight[0] = -1

    def forward(self, shown):
        return self.head(self.cut(self.cells(shown[:, :1])).mean((2, 3)))


def classifier(one, **changes):
    made = {"network": Bright(), "size": [EDGE, EDGE], "classes": one.classes, "explain": "grad_cam", **changes}
    return ModelSpec("Bright", ImageClassifier, made, lambda: ImageClassifier(**made))


def settings(tmp_path):
    from functools import partial

    import lightning.pytorch as pl

    from medimg_eval.evaluation.settings import Settings

    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", trainer=trainer, batch_size=2, config={"trainer": {}})


def scores_of(folder):
    from pandas import read_parquet

    frame = read_parquet(folder / "scores.parquet")
    return {(row.case, row.label, row.metric): row.value for row in frame.itertuples()}


def test_from_the_authors_files_to_metrics_of_maps_a_figure_and_a_report(tmp_path):
    one = nih(tmp_path / "data")
    run = evaluate(one, classifier(one), settings(tmp_path))
    found = scores_of(run)
    first, second = "00000001_000.png", "00000002_000.png"
    # The map is bright in rows 24 to 39 and columns 8 to 23, which the first box holds; nowhere else.
    assert found[first, "Infiltration", "pointing_game"] == 1
    assert found[first, "Infiltration", "map_energy"] == pytest.approx(1)
    assert found[first, "Infiltration", "map_iou"] == pytest.approx(16 * 16 / (16 * 24))
    assert found[first, "Mass", "pointing_game"] == found[first, "Mass", "map_energy"] == 0
    assert found[second, "Mass", "map_energy"] == 0
    assert (second, "Infiltration", "pointing_game") not in found
    lines = [json.loads(line) for line in (run / "predictions-0.jsonl").read_text().splitlines()]
    maps = maps_of(lines[0]["answer"])
    assert list(maps) == one.classes
    assert maps["Atelectasis"].max() == 0  # whose weight is below 0
    assert maps["Mass"].shape == (64,)
    wanted = {"kind": ["attention"], "cases": None, "width": "single"}
    ((name, drawn),) = every_figure(lambda: load_runs([run]), wanted, lambda folder: one)
    assert name == "attention-nih_boxes-Bright"
    assert "Outlines are those of the reference." in drawn.caption
    shown = drawn.frame[drawn.frame["case"] == first]
    assert shown.loc[shown["weight"].idxmax(), ["row", "column", "edge"]].tolist() == [24, 8, 8]


def test_a_report_and_a_figure_show_the_map_over_the_picture(tmp_path):
    from medimg_eval.imaging import heat_image

    one = nih(tmp_path / "data")
    case = one.cases("test")[0]
    model = classifier(one).model
    model.prepare(one.labels, case.images[0].read)
    (answer,) = one.ask(model, [one.prompt(case, one.read_images(case))])
    record = one.accept(case, answer).as_record()
    panels = one.answer_panels(case, record)
    assert [panel.title for panel in panels] == ["Where it looked: Infiltration", "Where it looked: Mass"]
    shown = panels[0].read().array
    assert shown.shape == (3, EDGE, EDGE)
    red = shown[0].astype(int) - shown[2]
    assert red[24:40, 8:24].min() > 100
    assert red[:24].max() == red[:, 24:].max() == 0
    weights = Weighed.from_record({"values": {}, **{k: v for k, v in record.items() if k != "probabilities"}})
    again = heat_image(case.images, weights.maps["Mass"], weights.places.corners, weights.places.edge)
    assert np.array_equal(again.array, shown)


def test_a_model_without_maps_is_told_apart_from_one_that_looked_elsewhere(tmp_path):
    one = nih(tmp_path / "data")
    found = scores_of(evaluate(one, classifier(one, explain=None), settings(tmp_path)))
    assert np.isnan(found["00000001_000.png", "Infiltration", "pointing_game"])


def test_a_probe_over_a_frozen_encoder_gives_the_maps_of_its_linear_scores(tmp_path):
    timm = pytest.importorskip("timm")
    from medimg_eval.imaging.pictures import as_picture
    from medimg_eval.models.explanations import Explanation, explain_pictures

    options = {"channels": [4, 4, 8, 8], "stem_width": 4}
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t", num_classes=0, **options).state_dict(), tmp_path / "weights.pt")
    encoder = TimmEncoder(
        "resnet10t", str(tmp_path / "weights.pt"), options, preprocess={"input_size": (3, 64, 64), "crop_pct": 1.0}
    )
    one = nih(tmp_path / "data")
    prompts = [one.prompt(case, one.read_images(case)) for case in one.cases("test")]
    probe = Probe(encoder, "logistic", explain="grad_cam")
    rng = np.random.default_rng(0)
    names = list(one.classes)
    head = make_head("logistic")
    head.arrays = {
        "weight": rng.normal(size=(14, 8)),
        "bias": rng.normal(size=14),
        "mean": rng.normal(size=8),
        "deviation": rng.uniform(1, 2, 8),
    }
    head.facts = {"kind": "classes", "names": names, "asked": "classify"}
    probe.head = head
    with torch.inference_mode():
        answers = probe.classify(prompts)
    network, transform = encoder.network_and_transform()
    weight = torch.from_numpy(head.arrays["weight"] / head.arrays["deviation"]).float()
    for prompt, answer in zip(prompts, answers, strict=True):
        shown = transform(as_picture(prompt.images[0]))[None]
        maps = explain_pictures(network, shown, Explanation(), range(14), lambda found: found @ weight.T).maps[0]
        for name, each in zip(names, maps, strict=True):
            assert answer.maps[name] == pytest.approx(each.ravel(), rel=1e-3, abs=1e-6)
        assert answer.places.grid == (2, 2, pytest.approx(0, abs=0.05), pytest.approx(0, abs=0.05))
        logits = np.log(answer["Mass"]) - np.log(1 - answer["Mass"])
        with torch.no_grad():
            assert float(head.logits(network(shown))[0, names.index("Mass")]) == pytest.approx(logits, rel=1e-4)
    head.facts["kind"], head.arrays["weight"], head.arrays["bias"] = "exclusive", head.arrays["weight"][:1], np.zeros(1)
    both = head.logits(torch.zeros(2, 8))
    assert torch.equal(both[:, 0], -both[:, 1])
    with pytest.raises(UserError, match="needs an encoder of timm or torchvision and a linear head"):
        Probe(encoder, "knn", explain="grad_cam")
