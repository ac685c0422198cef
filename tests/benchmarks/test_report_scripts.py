"""Reports scored by their authors' own scripts and by ours.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import copy
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.metrics.reports.icon_consistency import consistency, equivalents_by_observations
from tests.helpers.authors import load_functions, require_clone

# ruff: noqa: S311
pytestmark = pytest.mark.slow


def test_icons_equivalents_and_consistency_are_its_scripts(capsys):
    script = require_clone("wjhou/ICon") / "eval/eval_consistency.py"
    names = ("Retriever", "token_overlap", "retrieve", "compute_consistency")
    conditions = ["Edema", "Fracture", "Cardiomegaly", "Pneumonia", "Lung Lesion"]
    given = {
        "copy": copy,
        "keep_obs": {*conditions},
        "model": None,
        "tokenizer": None,
        "tqdm": lambda items, **_: items,
        "stopwords": SimpleNamespace(words=lambda _: []),
        "label_sentences": lambda text, *_: text,
    }
    theirs = load_functions(script, *names, **given)
    theirs["path"] = "reports.json"
    draw = random.Random(0)
    words = ["mild", "left", "right", "small", "bibasilar", "improved", "stable", "apical"]

    def text():
        return " ".join(draw.choice([*words, "is", "."]) for _ in range(draw.randrange(12)))

    compared = 0
    for _ in range(20):
        results = {
            f"image{number}": {
                "hyp": text(),
                "ref": text(),
                "ref_obs": [
                    f"{name}:{draw.choice(['Positive', 'Positive', 'Negative'])}"
                    for name in draw.sample([*conditions, "No Finding"], draw.randrange(4))
                ],
            }
            for number in range(30)
        }
        studies = {image: f"study{number // 2}" for number, image in enumerate(results)}
        similar = theirs["retrieve"](studies, results, {*words}, topk=10000)
        images = list(results)
        observed = [
            {name for name in row["ref_obs"] if "Positive" in name and name.split(":")[0] in conditions}
            for row in results.values()
        ]
        pairs = equivalents_by_observations(observed, list(studies.values()))
        assert {(images[one], images[other]) for one, other in pairs} == {
            (image, other) for image, others in similar.items() for other in others
        }
        attributes = [[{*row[side].split()} & {*words} for row in results.values()] for side in ("hyp", "ref")]
        ours = consistency(*attributes, pairs)
        theirs["compute_consistency"](results, similar, {*words})
        printed = dict(re.findall(r"(\S*) for Hypothesis: (\S+)", capsys.readouterr().out))
        compared += int((ours.compared > 0).sum())
        assert round(float(np.nanmean(ours.overlap)), 4) == pytest.approx(float(printed["Consistency"]), abs=1e-9)
        assert round(float(np.nanmean(ours.weighted)), 4) == pytest.approx(float(printed["Ref-Consistency"]), abs=1e-9)
    assert compared > 100
