"""Reports scored by their authors' own scripts and by ours.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import ast
import copy
import importlib.util
import json
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.optimize import linear_sum_assignment

from medimg_eval.instantiate import build_task
from medimg_eval.metrics.reports.icon_consistency import consistency, equivalents_by_observations
from medimg_eval.metrics.reports.lunguage import ATTRIBUTES, lunguage_of
from medimg_eval.metrics.text import text_scores
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import REPORTS, config_of
from tests.helpers.samples import ALL

# ruff: noqa: S311
pytestmark = pytest.mark.slow
assert ALL is not None


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


def test_seis_bleu_rouge_and_cider_are_its_scripts():
    script = require_clone("mk-runner/SEI") / "modules/metrics/metrics.py"
    captions = {
        name: getattr(pytest.importorskip(f"pycocoevalcap.{name.lower()}.{name.lower()}"), name)
        for name in ("Bleu", "Rouge", "Cider")
    }
    meteor = SimpleNamespace(compute_score=lambda *_, **__: (0.0, []))  # it needs Java, and is not compared
    theirs = load_functions(script, "compute_nlg_scores", re=re, Meteor=lambda: meteor, **captions)
    draw = random.Random(1)
    words = ["the", "heart", "is", "normal", "no", "pleural", "effusion", "edema.", "mild", "stable", "lungs", "clear."]
    references = [" ".join(draw.choices(words, k=draw.randrange(8, 40))) for _ in range(300)]
    reports = [
        " ".join(draw.choice(words) if draw.random() < 0.3 else word for word in text.split() if draw.random() < 0.9)
        for text in references
    ]
    right = theirs["compute_nlg_scores"](references, reports)
    spaced = [[re.sub(" +", " ", text.replace(".", " .")) for text in texts] for texts in (references, reports)]
    ours = text_scores(*spaced, profile="coco").values  # noqa: PD011
    columns = {f"bleu@{order}": f"BLEU_{order}" for order in range(1, 5)} | {
        "rouge_l_coco": "ROUGE_L",
        "cider_d": "CIDer",
    }
    for name, column in columns.items():
        assert ours[name] == pytest.approx(right[column], rel=1e-9), name


def test_pet2reps_prompts_and_slices_are_its_programs(tmp_path):
    script = require_clone("YichiZhang98/PET2Rep") / "inference_qwen25vl.py"
    (loop, *_) = [node for node in ast.parse(script.read_text(encoding="utf-8")).body if isinstance(node, ast.For)]
    asked = [node for node in loop.body if isinstance(node, ast.Assign) and "processor" not in ast.unparse(node.value)][
        :7
    ]  # up to the messages
    REPORTS["pet2rep"].write(tmp_path)
    (file,) = (tmp_path / "text_prompt").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    task = build_task(config_of("pet2rep", tmp_path))
    for case, record in zip(task.cases("test"), records, strict=True):
        held = {"subject_prompt": record, "Image": SimpleNamespace(open=lambda path: path)}
        exec(compile(ast.Module(asked, []), str(script), "exec"), held)  # noqa: S102
        system, user = held["messages"]
        *images, text = user["content"]
        prompt = task.prompt(case, task.read_images(case))
        said, put = prompt.messages
        assert (said.role, "".join(said.parts)) == ("system", system["content"])
        assert [part for part in put.parts if isinstance(part, int)] == list(range(len(images)))
        assert isinstance(put.parts[0], int)  # images come first, and then the words without their own marks
        words = "".join(part for part in put.parts if isinstance(part, str))
        assert words.split() == text["text"].replace("<image>", " ").split()
        assert [str(image.files[0].relative_to(tmp_path)) for image in case.images] == [
            image["image"] for image in images
        ]
        assert (case.id, case.target.read().value) == (held["subject_id"], held["ground_truth"])


def test_lunguagescore_is_its_packages():
    """Installed as lunguage-score 1.0.0, or a clone at commit 759001b; how alike texts are is made up."""
    installed = importlib.util.find_spec("lunguage_score")
    places = installed.submodule_search_locations if installed else None
    folder = Path(places[0]) if places else require_clone("SuperSupermoon/Lunguage") / "lunguage_score"
    if not (folder / "lunguagescore.py").is_file():
        pytest.skip("the clone of SuperSupermoon/Lunguage is not at commit 759001b")

    def alike(ones, others):
        pairs = [[tuple(sorted((str(one), str(other)))) for other in others] for one in ones]
        return [[one == other or random.Random(f"{one} {other}").random() for one, other in row] for row in pairs]

    def matrix(ones, others, *_):
        return torch.tensor(alike(ones, others), dtype=torch.float64)

    matcher = SimpleNamespace(matrix_process_sequence_pair=matrix)
    network = SimpleNamespace(from_pretrained=lambda _: None)
    given = {"torch": torch, "np": np, "pd": pd, "linear_sum_assignment": linear_sum_assignment}
    given |= {"AutoTokenizer": network, "AutoModel": network, "SemanticMatcher": lambda: matcher}
    theirs = load_functions(folder / "lunguagescore.py", "DataConverter", "SubjectMatcher", **given)
    weights = yaml.safe_load((folder / "metric_weights.yaml").read_text())
    weights = weights["TEMPORAL_WEIGHTS"], weights["REL_WEIGHTS"]
    assert weights[1] == dict(ATTRIBUTES)
    converter, judge = theirs["DataConverter"](weights), theirs["SubjectMatcher"]("rexval")
    draw = random.Random(4)
    words = {name: [f"{name} {number}" for number in range(3)] for name in ATTRIBUTES}
    words |= {"dx_status": ["positive", "negative"], "dx_certainty": ["definitive", "tentative"]}

    def rows():
        return [
            {"study_id": 7, "entity": draw.choice(["effusion", "edema", "mass", "nodule"]), "dx_status": "positive"}
            | {name: draw.choice(values) for name, values in words.items() if draw.random() < 0.4}
            for _ in range(draw.randrange(1, 7))
        ]

    for _ in range(60):
        reference, prediction = rows(), rows()
        held = [converter.convert_to_structured_dict(pd.DataFrame(side))[7] for side in (reference, prediction)]
        _, *right, _, _ = judge.semantic_match(*held, rel_weights=weights[1], temporal_weights=weights[0])
        assert list(lunguage_of(reference, prediction, alike)) == pytest.approx(right, abs=1e-6)
