"""Every lookup of a name in a list of ours opens alike, names the nearest, and stays short."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval.api.catalogue_lists import list_catalogue
from medimg_eval.configs.overrides import composed
from medimg_eval.degradations.declaration import find_degradation
from medimg_eval.degradations.suites import read_suite
from medimg_eval.errors import UserError, invalid
from medimg_eval.exports import write_export
from medimg_eval.instantiate import Annotators, Extractors, build
from medimg_eval.metrics import parse
from medimg_eval.metrics.answers.rule_registry import rule_named
from medimg_eval.metrics.detection import DetectionRule
from medimg_eval.metrics.reconstruction.presets import preset_of
from medimg_eval.metrics.segmentation.empty_masks import EmptyPolicy
from medimg_eval.metrics.segmentation.matching_rules import LesionRule
from medimg_eval.metrics.text.profiles import cleaner, profile
from medimg_eval.models.heads.base import make_head
from medimg_eval.phantoms import write_phantoms
from medimg_eval.results.cards.checklists import read_checklists
from medimg_eval.results.figures.kinds import _check_keys
from medimg_eval.results.table.table import check_interval

BUDGET = 300
"""Characters of a message."""

ROOT = Path(medimg_eval.__file__).parents[1]
ROOMS = ("medimg_eval", "metrics", "models", "tasks", "configs")
FORMER = r"[Tt]here (is|are) no (?!column|pictures)|^[Uu]nknown| is$|must be one of"
"""Openings that lookups had before they had one; `FILE: there is no column` is about somebody's file."""


def lookups():
    """File, function called and arguments of each call that suggests a name."""
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if (parts[0] == "medimg_eval" and parts[1] in ROOMS) or path.name == "errors.py":
            continue  # there through a link
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in ("refuse_invalid", "refuse_unknown", "invalid"):
                    yield path, called, node.args
            if isinstance(node, ast.JoinedStr) and any(_is_suggestion(part) for part in node.values):
                yield path, "nearest", [node]


def _is_suggestion(part):
    call = part.value if isinstance(part, ast.FormattedValue) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "nearest"


def words_of(node):
    """The literal words of a string, with a dash for what is put in."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "-" for part in parts)


CALLS = list(lookups())
BY_NAME = {
    "list": lambda: list_catalogue("taks"),
    "task": lambda: composed("test", ["task=brain_tisue"]),
    "model": lambda: composed("test", ["model=unet_smal"]),
    "suite": lambda: composed("test", ["suite=quikstart"]),
    "trainer": lambda: composed("fit", ["trainer=defualt"]),
    "logger": lambda: composed("test", ["logger=tensorbord"]),
    "annotator": lambda: Annotators({"chexbrt": {"weights": "x"}}).configs,
    "extractor": lambda: Extractors({"inceptoin": {"weights": "x"}}).configs,
    "layout": lambda: build({"_target_": "medimg_eval.data.layouts.Quetions"}),
    "target": lambda: build({"_target_": "medimg_eval.data.targets.MaskFile"}),
    "split": lambda: build({"_target_": "medimg_eval.data.splits.SplitColum"}),
    "class of models": lambda: build({"_target_": "medimg_eval.models.MonaiSegmenterr"}),
    "class of tasks": lambda: build({"_target_": "medimg_eval.tasks.SegmentatonTask"}),
    "metric": lambda: parse("dcie"),
    "rule of extraction": lambda: rule_named("first leter"),
    "matching of detections": lambda: DetectionRule.of("luna61"),
    "policy for empty masks": lambda: EmptyPolicy.of("mnai"),
    "rule for lesions": lambda: LesionRule.of("brats2032"),
    "image metrics' preset": lambda: preset_of("fastmir"),
    "cleaner": lambda: cleaner("r2gen_mimc"),
    "profile": lambda: profile("r2gne"),
    "head": lambda: make_head("logistik"),
    "degradation": lambda: find_degradation("gaussian_nois"),
    "suite of degradations": lambda: read_suite("mrii"),
    "export": lambda: write_export(None, None, "nnunte", Path(), {}),
    "phantom": lambda: write_phantoms("xrya", Path(), cases=1, seed=0),
    "figure": lambda: _check_keys(["fores"], {"metric": "dice"}),
    "checklist": lambda: read_checklists(["clami"]),
    "interval": lambda: check_interval("bcaa"),
}


@pytest.mark.parametrize("ask", BY_NAME.values(), ids=BY_NAME)
def test_a_misspelt_name_is_refused_in_one_form(ask):
    with pytest.raises(UserError) as told:
        ask()
    message = str(told.value)
    assert " is invalid: expected one of " in message or message.startswith("nothing of")
    assert re.search(r", got '[^']+'", message)
    assert "did you mean" in message or "nearest: " in message
    assert len(message) <= BUDGET


def test_settings_are_refused_in_one_form():
    former = []
    for path, called, arguments in CALLS:
        words = words_of(arguments[0])
        if called == "refuse_unknown" or (called == "nearest" and "there is no -" not in words):
            former += [f"{path.name}: {words}"] * bool(re.search(FORMER, words))
    assert former == [], "use refuse_invalid, or invalid"


@pytest.mark.slow
def test_every_name_misspelt_makes_a_short_sentence():
    long, seen = [], 0
    for path, called, arguments in CALLS:
        if called == "nearest":
            continue
        module = importlib.import_module(_module(path))
        try:
            options = eval(ast.unparse(arguments[2 if called == "invalid" else 1]), vars(module))  # noqa: S307
            options = list(map(str, options))
        except (NameError, TypeError):
            continue  # of a run or a file
        seen += 1
        for name in options:
            message = invalid(words_of(arguments[0]), f"{name[:2]}{name[3:]}q", options)
            long += [message] * (len(message) > BUDGET)
    assert seen > 100
    assert long == []


def _module(path):
    return "medimg_eval." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("medimg_eval.")


def test_few_options_are_all_named_and_of_many_the_nearest():
    assert invalid("test", "wilcoxn", ("wilcoxon", "t")) == (
        "test is invalid: expected one of t, wilcoxon, got 'wilcoxn'; did you mean 'wilcoxon'?"
    )
    many = [f"organ_{number:03}" for number in range(117)]
    assert invalid("label", "rgan_101", many, "list labels") == (
        "label is invalid: expected one of 117 names, got 'rgan_101'; did you mean 'organ_101'? "
        "(also near: organ_116, organ_115; list labels shows all)"
    )
    assert invalid("label", "?", many).endswith("got '?' (nearest: organ_116, organ_115, organ_114)")
    assert invalid("task", "vqa/slak", ["slake"], like="slak").endswith("got 'vqa/slak'; did you mean 'slake'?")
