"""`figure`: every kind from a CSV of scores, one figure per task, and invalid settings."""

from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from medimg_eval.commands import figure
from medimg_eval.errors import UsageError
from medimg_eval.results import figures

CONFIG = Path(__file__).parents[2] / "configs" / "figure.yaml"


@pytest.fixture
def scores(tmp_path):
    """Dice, probabilities, candidates and measurements of two models on twelve cases, as a CSV."""
    rows = []
    for place, model in enumerate(("nnU-Net", "SAM $x$")):
        for case in range(12):
            known = {"case": f"c{case}", "model": model, "patient": f"p{case // 2}", "site": "AB"[case % 2]}
            for label, name in enumerate(("liver", "spleen", "kidney")):
                dice = ((case * 7 + label * 3 + place * 5) % 11) / 11
                rows.append(known | {"metric": "dice", "label": name, "value": dice, "status": "present"})
                truth, chance = (case + label) % 3 == 0, ((case * 5 + label * 2 + place) % 13) / 13
                status = "present" if truth else "absent"
                rows.append(known | {"metric": "probability", "label": name, "value": chance, "status": status})
            hit = "hit" if case % 3 else "false"
            rows += [
                known | {"metric": "candidate", "label": "nodule", "value": case / 12, "status": hit},
                known | {"metric": "lesions", "label": "nodule", "value": 1, "status": "present"},
                known | {"metric": "measured_reference", "label": "tilt", "value": case, "status": "present"},
                known | {"metric": "measured", "label": "tilt", "value": case + case % 3, "status": "present"},
            ]
    file = tmp_path / "scores.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    return file


def draw(scores, folder, **keys):
    """Runs the command with its defaults, here."""
    config = OmegaConf.load(CONFIG)
    for key in ("defaults", "hydra"):  # what Hydra takes out of it
        config.pop(key, None)
    config.update({"runs": None, "direction": None, "scores": str(scores), "out": str(folder), "resamples": 50} | keys)
    figure.run(config)


def test_every_kind_is_drawn_from_a_csv(scores, tmp_path, capsys, monkeypatch):
    drawn = {}
    # Subsetting fonts costs more than everything else; files are written in the tests of files and of the program.
    monkeypatch.setattr(figures, "write_figure", lambda found, folder, stem: drawn.update({stem: found}) or [folder])

    # of fits, sweeps, risks, slides, costs
    others = {"data_fraction", "severity", "learning_curve", "kaplan_meier", "attention", "budget"}
    kinds = {kind: one for kind, one in figures.KINDS.items() if kind not in others}
    draw(scores, tmp_path / "out", kind=list(kinds), metric="dice")

    assert list(drawn) == [f"{kind}-dice" if "metric" in one.takes else kind for kind, one in kinds.items()]
    assert len(drawn) == 14
    for found in drawn.values():
        assert "n = " in found.caption
        assert len(found.frame)
        assert {"n", "interval"} <= set(found.frame.columns)
        assert found.size[0] == pytest.approx(89)
    assert capsys.readouterr().out.splitlines() == [found.caption for found in drawn.values()]


def test_the_program_draws_a_figure_of_a_csv(scores, program):
    done = program("figure", "kind=forest", "metric=dice", "by=site", f"scores={scores}", "out=made", "width=double")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Dice on scores by site (n = 6 cases")
    assert "wrote made/forest-dice-site.pdf" in done.stderr
    written = sorted(file.name for file in scores.parent.glob("made/*"))
    assert written == [f"forest-dice-site.{suffix}" for suffix in ("csv", "pdf", "png", "txt")]


def test_each_task_has_a_figure_of_its_own(scores, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, "write_figure", lambda drawn, folder, stem: [folder / stem])
    frame = pd.read_csv(scores).query("metric == 'dice'")
    pd.concat([frame.assign(task=task) for task in ("Liver/A", "b", "Liver A")]).to_csv(scores, index=False)

    draw(scores, tmp_path / "out", kind="box", metric="dice")

    said = capsys.readouterr()
    assert [Path(line).name for line in said.err.split()[1::2]] == [
        "box-Liver-A-dice",
        "box-b-dice",
        "box-Liver-A-dice-3",
    ]
    assert [line.split(" (")[0] for line in said.out.splitlines()] == [
        "Dice of cases on Liver/A",
        "Dice of cases on b",
        "Dice of cases on Liver A",
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kind": "boxes"}, "got 'boxes'; did you mean 'box'"),
        ({"kind": []}, "kind is an empty list; name one or more of box, violin"),
        ({"kind": "box"}, "kind=box needs metric=NAME"),
        ({"kind": "roc", "paired": True}, "does not read paired; leave it out, or draw box, violin, strip"),
        ({"kind": "box", "metric": "dice", "bins": 5}, "does not read bins"),
        ({"kind": "box", "metric": "dice", "paired": "maybe"}, "paired must be true or false"),
        ({"kind": "box", "metric": "dcie"}, "scores of 'dcie'; did you mean 'dice'"),
        ({"kind": "forest", "metric": "dice", "level": 2}, "level must be a number"),
        ({"kind": "forest", "metric": "dice", "interval": "exact"}, "got 'exact'"),
        ({"kind": "roc", "by": "sex"}, "No case has an attribute 'sex'"),
    ],
)
def test_what_cannot_be_meant_is_said(keys, said, scores, tmp_path):
    with pytest.raises(UsageError, match=said):
        draw(scores, tmp_path / "out", **keys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["box", "forest", "reliability", "bland_altman"])
def test_one_case_is_no_cases_and_a_kind_that_is_named_twice_is_drawn_once(kind, scores, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, "write_figure", lambda drawn, folder, stem: [folder / stem])
    pd.read_csv(scores).query("case == 'c1'").to_csv(scores, index=False)

    draw(scores, tmp_path / "out", kind=[kind, kind], metric="dice" if kind in ("box", "forest") else None)

    (caption,) = capsys.readouterr().out.splitlines()
    assert "n = 1 case" in caption
    assert "1 cases" not in caption
