"""Synthesis: prompts become pictures in the run, their features are compared with real ones, and tables say so."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
import numpy as np
import pytest
from PIL import Image as Pictures

from medimg_eval import metrics
from medimg_eval.case import Case, Image, Text
from medimg_eval.commands.console import fail_if_cases_failed
from medimg_eval.data.layouts import Prompts
from medimg_eval.data.records import Given
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import ImageFile, read
from medimg_eval.models.base import Synthesizer
from medimg_eval.models.extractors.base import FeatureTable, Pixels
from medimg_eval.models.precomputed.images import PrecomputedImages
from medimg_eval.models.synthesis import Diffusers
from medimg_eval.phantoms.prompts import ChestPrompts, PhantomGenerator
from medimg_eval.results import build_cards, build_table, load_runs
from medimg_eval.results.runs.subsets import set_rows
from medimg_eval.results.table.render import to_markdown
from medimg_eval.tasks import SynthesisTask
from medimg_eval.tasks.synthesis import picture_of
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

METRICS = [
    "generation_failure_rate",
    "frechet_distance@pixels",
    "kernel_distance@pixels",
    "coverage@pixels",
    "near_copies@pixels",
    "memorised_fraction@pixels",
    "paired_feature_distance@pixels",
]
SPLITS = {"test": "test", "reference": "test", "train": "fit", "holdout": "test"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Real pictures: smooth, of 24 x 24, of 40 patients to train on and 30 to test on."""
    root, rng = tmp_path_factory.mktemp("real"), np.random.default_rng(0)
    for number in range(70):
        Pictures.fromarray(smooth(rng)).save(root / f"{number:02d}.png")
    return root


def smooth(rng):
    from scipy.ndimage import gaussian_filter

    noise = gaussian_filter(rng.normal(size=(24, 24)), 3)
    return np.uint8(np.clip(128 + 900 * noise, 0, 255))


@dataclass
class Layout:
    """The first 40 to fit on, the others to test on; every other has a finding, every third a view of its own."""

    root: Path

    def cases(self, split):
        numbers = {"fit": range(40), "test": range(40, 70), "few": range(40, 44)}[split]
        return [
            Case(
                f"c{n:02d}",
                (ImageFile(self.root / f"{n:02d}.png"),),
                Given(Text(f"chest {n}"), ()),
                f"p{n // 2}",
                {"Edema": "1" if n % 2 else "0", "view": "AP" if n % 3 else "PA", "Fracture": "-1"},
            )
            for n in numbers
        ]


class Drawer(Synthesizer):
    """Draws pictures of a seed, but for some prompts that it answers with a training picture."""

    asked: ClassVar[list] = []
    preferred_batch = 4

    def __init__(self, root=None, copies=(), fails=(), made=None):
        self.root, self.copies, self.fails, self.made = root, copies, fails, made

    def synthesize(self, prompts, seeds):
        assert not any(prompt.images for prompt in prompts)
        if set(self.fails) & {prompt.case_id for prompt in prompts}:
            raise RuntimeError("no")
        Drawer.asked += [prompt.case_id for prompt in prompts]
        return [self._pictures(prompt, some) for prompt, some in zip(prompts, seeds, strict=True)]

    def _pictures(self, prompt, seeds):
        assert prompt.text.startswith("chest ")
        if prompt.case_id in self.copies:
            return [read(self.root / f"{self.copies[prompt.case_id]:02d}.png") for _ in seeds]
        return [smooth(np.random.default_rng(seed))[None] for seed in seeds][: self.made]


def task(root, /, **settings):
    settings = {"name": "s", "layout": Layout(root), "metrics": METRICS, "splits": SPLITS} | settings
    return SynthesisTask(**settings)


def candidate(made, name="Drawer", **config):
    return ModelSpec(name, type(made), config, load=lambda: made)


def extractors(**more):
    return {"pixels": candidate(Pixels(8), "pixels", size=8), **more}


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(
        runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0, extractors=extractors()
    )


def values(folder):
    return {(row.metric.partition("@")[0], row.label, row.where): row.value for row in set_rows(load_runs([folder])[0])}


def test_a_run_keeps_its_pictures_and_says_what_they_are_worth_as_a_set(pictures, settings):
    folder = evaluate(task(pictures, pictures=2), candidate(Drawer()), settings)
    check_rows("synthesis", folder)
    stored = json.loads((folder / "predictions" / "c40.json").read_text())
    assert stored["pictures"] == ["c40/000.png", "c40/001.png"]
    assert len(set(stored["seeds"])) == 2
    drawn = smooth(np.random.default_rng(stored["seeds"][0]))
    assert (read(folder / "predictions" / "c40" / "000.png").array == drawn).all()
    found = values(folder)["frechet_distance", "all", ()]
    assert (found.n_real, found.n_generated, found.d) == (30, 60, 64)
    assert found.low < found.value < found.high
    assert found.flagged("small_n")
    assert "pixels (grey values" in found.extractor
    (run,) = load_runs([folder])
    assert (run.cases, run.predicted, run.finished) == (30, 30, True)
    assert "" not in set(run.scores["case"])  # rows of sets belong to no case, and count as none


def test_a_cell_shows_the_value_with_its_own_interval_and_footnotes_say_what_it_rests_on(pictures, settings):
    folder = evaluate(task(pictures), candidate(Drawer()), settings)
    table = build_table(load_runs([folder]))
    cells = dict(zip([column.metric for column in table.columns], table.rows[0].cells, strict=True))
    found = values(folder)["kernel_distance", "all", ()]
    cell = cells["kernel_distance@pixels"]
    assert (cell.mean, cell.low, cell.high, cell.n) == (found.value, found.low, found.high, 30)
    assert cells["generation_failure_rate"].mean == 0
    notes = " ".join(table.footnotes)
    for part in (
        "one value for all pictures together [95 % interval of its own]",
        "30 pictures against 30 real images, 64 features of pixels",
        "reference: 30 images (",
        "real images in their place, n = 14",
        "hold-out images in their place, n = 30",
        "small_n: 30 real and 30 generated rows",
    ):
        assert part in notes, part


class Seer(Pixels):
    """Sees Edema in dark pictures, and a fracture in none; tells patients apart by how alike pictures are."""

    findings = ("Edema", "Fracture", "Mass")
    thresholds = (0.5, 0.5, 0.5)
    tells_patients = True

    def embed(self, pictures):
        edema = np.array([np.asarray(one, float).mean() < 128 for one in pictures])
        return np.c_[edema * 0.9, np.zeros((len(edema), 2))].astype(np.float32)


class Viewer(Pixels):
    choices, chooses = ("AP", "PA"), "view"

    def embed(self, pictures):
        return np.array([[0.7, 0.3]] * len(pictures), np.float32)


class Alike(Pixels):
    tells_patients = True

    def compare(self, one, other):
        return -np.linalg.norm(one.astype(float) - other, axis=-1)


class Dark(Drawer):
    """Draws dark pictures of the prompts of every other case, which are those with Edema, but for the last."""

    def _pictures(self, prompt, seeds):
        number = int(prompt.case_id[1:])
        level = 20 if number % 2 and number != 69 else 200
        return [np.full((1, 24, 24), level + n, np.uint8) for n in range(len(seeds))]


def test_a_classifier_tells_whether_pictures_show_what_was_asked_for(pictures, settings):
    settings.extractors = extractors(seer=candidate(Seer(8), "seer"), viewer=candidate(Viewer(8), "viewer"))
    asked = ["finding_agreement@seer", "finding_sensitivity@seer", "finding_auroc@seer", "view_accuracy@viewer"]
    made = task(pictures, metrics=[*asked, "intra_prompt_ms_ssim"], groups=["view"], pictures=2)
    folder = evaluate(made, candidate(Dark()), settings)
    found = {key: one.value for key, one in values(folder).items()}
    # 15 of 30 prompts have Edema, of which one is drawn bright; Fracture is uncertain in all, Mass in no attributes.
    assert found["finding_agreement", "Edema", ()] == pytest.approx(29 / 30)
    assert found["finding_sensitivity", "Edema", ()] == pytest.approx(14 / 15)
    assert found["finding_auroc", "Edema", ()] == pytest.approx(1 - 0.5 / 15)
    assert found["finding_agreement", "all", ()] == pytest.approx(29 / 30)
    assert np.isnan(found["finding_agreement", "Fracture", ()])
    assert not any(label == "Mass" for _, label, _ in found)
    # Two of three prompts ask for AP, which the classifier always sees.
    assert found["view_accuracy", "all", ()] == pytest.approx(2 / 3)
    assert found["view_accuracy", "all", (("view", "AP"),)] == 1
    runs = load_runs([folder])
    table = build_table(runs, by="label")
    assert any("not judged: Mass" in note for note in table.footnotes)
    assert "Edema" in to_markdown(table)
    likeness = runs[0].scores.query("metric == 'intra_prompt_ms_ssim'")["value"]
    assert len(likeness) == 30
    assert (likeness > 0.99).all()


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("finding_agreement@pixels", "'pixels' tells no findings; name a classifier of them"),
        ("view_accuracy@pixels", "chooses no view"),
        ("alignment_score@pixels", "reads no texts"),
        ("reid_rate@pixels", "tells no patients apart"),
    ],
)
def test_an_extractor_that_cannot_do_what_a_metric_asks_is_refused(pictures, settings, metric, words):
    with pytest.raises(UserError, match=words):
        evaluate(task(pictures, metrics=[metric]), candidate(Drawer()), settings)


def test_copies_are_reidentified_and_new_pictures_are_not(pictures, settings):
    settings.extractors = extractors(alike=candidate(Alike(8), "alike"))
    copies = {f"c{n}": n - 40 for n in range(40, 52)}
    for name, held, least, most in (("copies", copies, 0.35, 0.6), ("honest", {}, 0, 0.3)):
        made = task(pictures, metrics=["reid_rate@alike"])
        folder = evaluate(made, candidate(Drawer(pictures, held), name, copies=sorted(held)), settings)
        found = values(folder)["reid_rate", "all", ()]
        assert least <= found.value <= most
        assert found.floor <= 0.3
        assert found.low <= found.value <= found.high
        assert found.details["tpr"] <= 0.3  # two images of a patient are as different as any here
        assert found.details["fpr"] <= 0.01


def test_radiomics_of_a_table_are_compared(pictures, settings, tmp_path):
    folder = evaluate(task(pictures, metrics=["generation_failure_rate"]), candidate(Drawer()), settings)
    lines = []
    for file in [*sorted(pictures.glob("*.png")), *sorted(folder.rglob("*.png"))]:
        grey = np.asarray(Pictures.open(file), float)
        lines.append(f"{file.parent.name}/{file.name},{grey.mean()},{grey.std()},1,{3 if lines else ''}")
    (tmp_path / "t.csv").write_text("\n".join(["file,mean,spread,constant,gaps", *lines]))
    table = candidate(FeatureTable(str(tmp_path / "t.csv")), "radiomics", weights=str(tmp_path / "t.csv"))
    wanted = task(pictures, metrics=["radiomics_frechet_distance@radiomics"], splits=SPLITS | {"reference": "fit"})
    rescore(folder, wanted, 0, extractors=extractors(radiomics=table))
    found = values(folder)["radiomics_frechet_distance", "all", ()]
    assert 0 <= found.value < 2
    assert "dropped_features: 1 of 4 are not finite: gaps" in found.flags
    assert "dropped_features: 1 of 4 are constant in the real set: constant" in found.flags


def test_planted_copies_are_found_and_shown_first(pictures, settings):
    copies = {"c41": 3, "c52": 17, "c66": 30}
    folder = evaluate(task(pictures), candidate(Drawer(pictures, copies)), settings)
    honest = evaluate(task(pictures), candidate(Drawer(), "Honest", copies=False), settings)
    assert values(folder)["near_copies", "all", ()].value >= 3 / 30
    assert values(folder)["memorised_fraction", "all", ()].value >= 3 / 40
    assert values(honest)["memorised_fraction", "all", ()].value < 3 / 40
    with (folder / "nearest-pixels.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["case"], row["training_case"]) for row in rows[:3]} == {(c, f"c{n:02d}") for c, n in copies.items()}
    assert {row["distance"] for row in rows[:3]} == {"0"}
    assert (folder / "nearest-pixels.html").read_text().count("<img") == 2 * len(rows)


def test_findings_and_groups_have_values_of_their_own_images(pictures, settings):
    made = task(pictures, strata=["Edema", "Fracture"], groups=["view"], metrics=METRICS[:3])
    folder = evaluate(made, candidate(Drawer()), settings)
    found = values(folder)
    assert found["frechet_distance", "Edema", ()].n_real == 15
    assert found["frechet_distance", "all", (("view", "AP"),)].n_real == 20
    assert found["frechet_distance", "all", (("view", "PA"),)].n_generated == 10
    rare = found["frechet_distance", "Fracture", ()]  # uncertain, which is not stated
    assert np.isnan(rare.value)
    assert rare.flags == ("too_few: 0 reference images, expected at least 2",)
    by_label = build_table(load_runs([folder]), by="label", metrics=["kernel_distance@pixels"])
    shown = {row.group: row.cells[0] for row in by_label.rows}
    assert list(shown) == ["Edema", "Fracture", "all labels"]
    assert (shown["Edema"].n, shown["Fracture"].n, shown["all labels"].n) == (15, 0, 30)
    by_view = build_table(load_runs([folder]), by="view", metrics=["kernel_distance@pixels", "generation_failure_rate"])
    assert [(row.group, row.cells[0].n) for row in by_view.rows[:3]] == [("all cases", 30), ("AP", 20), ("PA", 10)]


def test_as_many_images_of_each_finding_can_be_drawn(pictures, settings):
    made = task(pictures, strata=["Edema"], groups=["view"], drawn=10, metrics=["frechet_distance@pixels"])
    found = values(evaluate(made, candidate(Drawer()), settings))
    sizes = {key[1:]: (one.n_real, one.n_generated) for key, one in found.items()}
    assert sizes.pop(("all", ())) == (30, 30)
    assert set(sizes.values()) == {(10, 10)}


def test_a_run_goes_on_where_it_stopped_and_embeds_nothing_twice(pictures, settings, monkeypatch):
    Drawer.asked = []
    model = candidate(Drawer(fails=["c45"]))
    folder = evaluate(task(pictures, metrics=METRICS[:3]), model, settings)
    (run,) = load_runs([folder])
    assert run.failed_cases == 1
    assert values(folder)["kernel_distance", "all", ()].n_generated == 29
    assert "1 of 30 cases failed" in " ".join(build_table([run]).footnotes)
    model.model.fails, seen = (), []
    embed = Pixels.embed
    monkeypatch.setattr(Pixels, "embed", lambda self, shown: seen.extend(shown) or embed(self, shown))
    assert evaluate(task(pictures, metrics=METRICS[:3]), model, settings) == folder
    assert Drawer.asked.count("c45") == 1
    assert len(Drawer.asked) == 30
    assert len(seen) == 1
    assert values(folder)["kernel_distance", "all", ()].n_generated == 30


def test_a_run_is_scored_again_by_other_metrics_without_its_model(pictures, settings):
    folder = evaluate(task(pictures, metrics=["generation_failure_rate"]), candidate(Drawer()), settings)
    assert not values(folder)
    rescore(folder, task(pictures, metrics=["vendi_score@pixels"]), 0, extractors=settings.extractors)
    found = values(folder)["vendi_score", "all", ()]
    assert 1 < found.value < 30
    assert found.floor == pytest.approx(found.value, rel=0.3)


def test_the_same_pictures_come_whatever_the_batch(pictures, settings, tmp_path):
    made = []
    for batch in (1, 7):
        settings.batch_size, settings.run = batch, tmp_path / f"run{batch}"
        folder = evaluate(task(pictures, metrics=["generation_failure_rate"]), candidate(Drawer()), settings)
        made.append([path.read_bytes() for path in sorted(folder.rglob("*.png"))])
    assert made[0] == made[1]
    assert len(set(made[0])) == 30


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"metrics": ["dcr@pixels"], "splits": {"test": "test"}}, UsageError, "no split is named for; set task.splits"),
        ({"metrics": ["frechet_distance"]}, UsageError, r"needs a parameter \(an extractor of features\)"),
        ({"metrics": ["dice"]}, UsageError, "'dice' does not judge pictures"),
        ({"pictures": 0}, UsageError, "task.pictures: expected a whole number of at least 1, got 0"),
        ({"unreadable": "skipp"}, UsageError, "did you mean 'skip'"),
        ({"protocol": "published"}, UsageError, "has no protocol=published"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(pictures, change, error, words):
    with pytest.raises(error, match=words):
        task(pictures, **change)


def test_what_metrics_lack_is_said_before_a_model_is_asked(pictures, settings):
    Drawer.asked = []
    with pytest.raises(UsageError, match=r"there is no extractor 'pixel'; did you mean 'pixels'"):
        evaluate(task(pictures, metrics=["frechet_distance@pixel"]), candidate(Drawer()), settings)
    with pytest.raises(UserError, match=r"alignment_score@pixels: extractor 'pixels' reads no texts"):
        evaluate(task(pictures, metrics=["alignment_score@pixels"]), candidate(Drawer()), settings)
    shared = {"test": "test", "reference": "test", "train": "test", "holdout": "test"}
    with pytest.raises(UserError, match=r"15 patients lie both in train and in holdout, the first being \['p20'"):
        evaluate(task(pictures, splits=shared), candidate(Drawer()), settings)
    assert not Drawer.asked
    assert not settings.runs.exists()


def test_a_real_image_that_cannot_be_read_stops_the_run_or_is_counted(pictures, settings, tmp_path):
    root = tmp_path / "some"
    root.mkdir()
    for path in pictures.iterdir():
        (root / path.name).write_bytes(b"" if path.name == "50.png" else path.read_bytes())
    with pytest.raises(UserError, match=r"case 'c50' of reference: .*50.png.* with task.unreadable=skip"):
        evaluate(task(root, metrics=METRICS[:2]), candidate(Drawer()), settings)
    folder = evaluate(task(root, metrics=METRICS[:2], unreadable="skip"), candidate(Drawer()), settings)
    assert values(folder)["frechet_distance", "all", ()].n_real == 29
    assert "1 images of reference cannot be read and are left out: case 'c50'" in " ".join(
        build_table(load_runs([folder])).footnotes
    )


@pytest.mark.parametrize("where", ["the metric", "the extractor"])
def test_what_raises_over_a_set_costs_its_own_values_and_is_named(pictures, settings, monkeypatch, where):
    def broken(*_):
        raise ZeroDivisionError("no")

    settings.extractors = extractors(other=candidate(other := Pixels(4), "other", size=4))
    if where == "the metric":
        broken_metric = replace(metrics.get("coverage"), function=broken)
        monkeypatch.setitem(metrics.registry._METRICS, "coverage", broken_metric)
    else:
        monkeypatch.setattr(other, "embed_images", broken)
    wanted = ["frechet_distance@pixels", "coverage@other"]
    folder = evaluate(task(pictures, metrics=wanted), candidate(Drawer()), settings)
    found = values(folder)
    assert found["frechet_distance", "all", ()].value > 0
    (flag,) = found["coverage", "all", ()].flags
    assert flag.startswith("error: ZeroDivisionError: no (test_synthesis.py:")
    assert "Coverage (other): error: ZeroDivisionError: no" in " ".join(build_table(load_runs([folder])).footnotes)
    with pytest.raises(UserError, match=r"lost to errors in (.|\n)* all \(coverage@other\): ZeroDivisionError: no"):
        fail_if_cases_failed([folder])


def test_pictures_of_other_sizes_and_constant_ones_are_told(pictures, settings):
    class Flat(Drawer):
        def _pictures(self, prompt, seeds):
            return [np.full((1, 12, 12), 7 if prompt.case_id == "c40" else 30_000, np.uint16)]

    folder = evaluate(task(pictures, metrics=METRICS[:2]), candidate(Flat()), settings)
    notes = " ".join(build_table(load_runs([folder])).footnotes)
    assert "images differ in sizes, which features may see: reference 24 x 24; generated 12 x 12" in notes
    assert "images differ in types, which features may see: reference uint8; generated uint16" in notes
    assert "30 of 30 images of generated are constant" in notes


def test_a_model_that_makes_fewer_pictures_than_asked_fails_its_cases(pictures, settings):
    folder = evaluate(task(pictures, pictures=2, metrics=METRICS[:2]), candidate(Drawer(made=1)), settings)
    failures = json.loads((folder / "summary.json").read_text())["failures"]
    assert failures[0]["message"] == "case 'c40': the prediction holds 1 pictures, expected 2"
    cells = build_table(load_runs([folder])).rows[0].cells
    assert cells[0].mean == 1
    assert np.isnan(cells[1].mean)
    with pytest.raises(UsageError, match="asks models to synthesize, which model"):
        refuse_incapable(task(pictures), candidate(Pixels(8)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((4, 4)), r"has shape \(4, 4\), expected \(1 or 3, rows, columns\)"),
        (np.zeros((2, 4, 4), np.uint8), r"has shape \(2, 4, 4\)"),
        (np.full((1, 4, 4), 1.5), "expected floats from 0 to 1, got values from 1.5 to 1.5"),
        (np.full((1, 4, 4), np.nan), "expected floats from 0 to 1"),
        (np.zeros((1, 4, 4), np.int32), "is int32, expected uint8, uint16, or floats"),
    ],
)
def test_what_is_no_picture_is_refused(given, words):
    with pytest.raises(CaseError, match=words):
        picture_of(given, "it")


def test_floats_are_kept_in_as_many_bits_as_a_png_has():
    grey = picture_of(np.array([[[0.0, 0.5, 1.0]]]), "it")
    assert (grey.dtype, grey.tolist()) == (np.uint16, [[0, 32768, 65535]])
    assert picture_of(Image(np.ones((3, 2, 2), np.float32), np.eye(4)), "it").tolist() == [[[255] * 3] * 2] * 2


def test_the_card_has_two_sides_and_ranks_models_by_their_ranks_alone(pictures, settings):
    copies = {f"c{n}": n - 40 for n in range(40, 60)}
    folders = [
        evaluate(task(pictures), candidate(Drawer(pictures, copies), "Copier"), settings),
        evaluate(task(pictures), candidate(Drawer(), "Honest", honest=True), settings),
    ]
    (card,) = build_cards(load_runs(folders))
    assert list(dict.fromkeys(column.group for column in card.columns)) == ["Fidelity", "Privacy", "Mean rank"]
    by_title = {column.title: place for place, column in enumerate(card.columns)}
    ranks = {row.name: [row.cells[by_title[one]].mean for one in ("Privacy rank", "Rank")] for row in card.rows}
    assert ranks["Honest"][0] < ranks["Copier"][0]
    assert "Utility: nothing was trained on the pictures, so this side of the card is empty." in card.footnotes
    (card,) = build_cards(load_runs(folders[:1]))
    assert "Ranks: there are fewer than two models to rank." in card.footnotes


def test_pixel_distances_do_not_wrap_around(pictures, settings):
    metrics = ["pixel_distance", "pixel_distance_min", "pixel_distance_chexgenbench"]

    class Near(Drawer):
        def _pictures(self, prompt, seeds):
            own = read(pictures / f"{prompt.case_id[1:]}.png").array.astype(int)
            return [np.uint8(np.clip(own - 9, 0, 255)), np.uint8(np.clip(own + 3, 0, 255))]

    made = task(pictures, pictures=2, metrics=metrics, splits={"test": "few"})
    folder = evaluate(made, candidate(Near()), settings)
    means = [cell.mean for cell in build_table(load_runs([folder])).rows[0].cells]
    assert means[0] == pytest.approx(6, abs=0.8)
    assert means[1] == pytest.approx(3, abs=0.3)
    assert means[2] > 220  # 3 grey levels brighter is 253 modulo 256


def test_given_images_are_found_by_name_by_number_and_by_table(tmp_path, pictures):
    names = ["a.png", "a-1.png", "b_10.png", "b_2.png", "b_x.png", "c/0.png"]
    (tmp_path / "c").mkdir()
    for number, name in enumerate(names):
        Pictures.fromarray(np.full((2, 2), number, np.uint8)).save(tmp_path / name)
    (tmp_path / "made.csv").write_text("id,synthetic_filename\nq,a.png\nq,c/0.png\n")

    def made(case, count, **settings):
        prompt = SynthesisTask(name="s", layout=None, pictures=count).prompt(Case(case, (), Given(Text("x"), ())), ())
        (found,) = PrecomputedImages(str(tmp_path), **settings).synthesize([prompt], [list(range(count))])
        return [int(one.array[0, 0, 0]) for one in found]

    assert made("a", 1) == [0]
    assert made("b", 2, pattern="{case}_{n}.png") == [3, 2]
    assert made("b", 1, pattern="{case}_{n}.*", first=True) == [3]
    assert made("c", 1, pattern="{case}/{n}.png") == [5]
    assert made("q", 2, table="made.csv") == [0, 5]
    with pytest.raises(CaseError, match=r"0 pictures of case 'z' \('z\.\*'\), expected 1"):
        made("z", 1)
    with pytest.raises(CaseError, match=r"2 pictures of case 'b' .*, expected 1; set model.first=true"):
        made("b", 1, pattern="{case}_{n}.png")
    with pytest.raises(UsageError, match=r"expected \{case\} in model.pattern"):
        PrecomputedImages(str(tmp_path), pattern="x.png")
    with pytest.raises(UserError, match="no such folder"):
        PrecomputedImages(str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"made.csv: has no column 'file'"):
        PrecomputedImages(str(tmp_path), table="made.csv", file="file")


def test_a_table_of_prompts_is_cases_with_or_without_images(tmp_path):
    (tmp_path / "prompts.csv").write_text(
        "id,prompt,split,patient,Edema,image\n1,a,test,p,1,x.png\n2,b,test,p,0,y.png\n3,a,test,q,,z.png\n"
    )
    layout = Prompts(
        root=str(tmp_path),
        table="prompts.csv",
        split="split",
        patient="patient",
        attributes=["Edema"],
        parts={"once": {"of": "test", "distinct": True}, "some": {"of": "test", "sample": 2, "seed": 1}},
    )
    first = layout.cases("test")[0]
    assert (first.id, first.target.read().text, first.patient, first.images) == ("1", "a", "p", ())
    assert [case.id for case in layout.cases("once")] == ["1", "2"]
    assert [case.id for case in layout.cases("some")] == ["1", "3"]  # as pandas' sample(2, random_state=1)
    layout.image = "image"
    assert layout.cases("test")[0].images[0].files == (tmp_path / "x.png",)
    layout.parts = {"x": {"distinct": True}}
    with pytest.raises(UsageError, match=r"task.layout.parts.x: expected `of`"):
        layout.cases("x")


def test_diffusers_says_what_it_lacks_and_asks_the_pipeline_for_each_seed(monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"diffusers"):
        Diffusers("no/such").check_ready()
    asked = []

    class Pipeline:
        def __call__(self, prompt, generator, output_type, **more):
            asked.append((prompt, [one.initial_seed() for one in generator], more))
            return type("Said", (), {"images": np.full((len(prompt), 4, 6, 3), 0.5)})

    model = Diffusers("x", steps=2, guidance=3.0, negative="blurred", size=[4, 6], batch=2)
    model._pipeline = Pipeline()
    prompts = [SynthesisTask(name="s", layout=None).prompt(Case(c, (), Given(Text(c), ())), ()) for c in "ab"]
    made = model.synthesize(prompts, [[1, 2], [3]])
    assert [one[:2] for one in asked] == [(["a", "a"], [1, 2]), (["b"], [3])]
    assert asked[1][2] == {
        "num_inference_steps": 2,
        "guidance_scale": 3.0,
        "negative_prompt": ["blurred"],
        "height": 4,
        "width": 6,
    }
    assert [len(one) for one in made] == [2, 1]
    assert (made[0][0].shape, made[0][0].dtype, made[0][0].max()) == ((1, 4, 6), np.uint8, 128)
    with pytest.raises(UsageError, match="got 'half'"):
        Diffusers("x", precision="half")


def test_the_phantom_generator_copies_as_many_as_it_says_and_heeds_its_prompts():
    model = PhantomGenerator(copies=0.4, noise=0, tries=1, count=12)
    cases = ChestPrompts(count=12).cases("test")
    assert cases[0].attributes.keys() >= {"pneumothorax", "sex"}
    made = SynthesisTask(name="s", layout=None)
    prompts = [made.prompt(case, ()) for case in cases]
    pictures = model.synthesize(prompts, [made.seeds(case.id) for case in cases])
    copied = {case.id: model.copied(case.id) for case in cases}
    assert {one is None for one in copied.values()} == {True, False}
    for case, (picture,) in zip(cases, pictures, strict=True):
        if (source := copied[case.id]) is not None:
            array = source.images[0].read().array.astype(float)
            stretched = (array - array.min()) * 255 / (array.max() - array.min())
            assert np.abs(picture - stretched).max() <= 1
    again = model.synthesize(prompts[:1], [made.seeds(cases[0].id)])
    assert (again[0][0] == pictures[0][0]).all()
    with pytest.raises(UsageError, match=r"model.copies from 0 to 1"):
        PhantomGenerator(copies=2)
