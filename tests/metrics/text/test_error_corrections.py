"""Errors of notes that are told and corrected, by hand and beside the authors' script and its package."""

import contextlib
import io
import math
import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.text.error_corrections import Correction, read_correction, rouge_of_sets
from tests.helpers.authors import load_functions, require_clone


def value(name, said, due):
    found, parameter = parse(name)
    return found.function(AnsweredQuestion("open", said, [due]), *(() if parameter is None else (parameter,)))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("1 10 He has hepatitis A.", Correction(True, 10, "He has hepatitis A.")),
        ('ms-test-0 1 3 "He is well."', Correction(True, 3, "He is well.")),
        ("0 -1 NA", Correction(False, -1, "NA")),
        ("0 -1 All is fine as it is.", Correction(False, -1, "NA")),
        ("0 -1 ", Correction(False, -1, "NA")),
        ("Correct.", Correction(False, -1, "NA")),
        ("Sentence four is wrong.\n1 4 He takes aspirin.\nSo it is.", Correction(True, 4, "He takes aspirin.")),
        ("1 4", Correction(True, 4, "NA")),
        ("The dose of 10 mg is wrong.", None),
        ("", None),
    ],
)
def test_replies_are_read(reply, told):
    assert read_correction(reply) == told


def test_scores_by_hand():
    due = "1 2 he takes oral aspirin"
    assert value("error_flag_accuracy", "1 7 x", due) == 1
    assert value("error_sentence_accuracy", "1 7 x", due) == 0
    # 2 of 3 words said are among the 4 due.
    assert value("correction_rouge@1", "1 2 he takes heparin", due) == pytest.approx(4 / 7, abs=1e-7)
    assert value("correction_rouge@2", "1 2 he takes heparin", due) == pytest.approx(2 / 5, abs=1e-7)
    assert value("correction_rouge@1", "0 -1 NA", due) == 0
    assert value("correction_rouge@1", "1 2 he is well", "0 -1 NA") == 0
    assert value("correction_rouge@1", "CORRECT", "0 -1 NA") == 1
    for name in ("error_flag_accuracy", "error_sentence_accuracy", "correction_rouge@1"):
        assert value(name, "I cannot say.", due) == 0
        assert math.isnan(value(name, "1 2 x", "no key of this form"))
        choice = AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"})
        found, parameter = parse(name)
        assert math.isnan(found.function(choice, *(() if parameter is None else (parameter,))))


WORDS = st.lists(st.sampled_from(["he", "takes", "oral", "aspirin.", "5mg", "is", "well"]), min_size=1, max_size=9)


@given(WORDS, WORDS, st.sampled_from([1, 2]))
def test_rouge_is_that_of_the_package(said, due, n):
    rouge = pytest.importorskip("rouge")
    text, reference = " ".join(said), " ".join(due)
    with contextlib.suppress(ValueError):  # it refuses texts without words
        theirs = rouge.Rouge().get_scores([text], [reference])[0][f"rouge-{n}"]["f"]
        assert rouge_of_sets(text, reference, n) == pytest.approx(theirs, abs=1e-6)


@given(WORDS)
def test_a_sentence_beside_itself_is_right(words):
    text = " ".join(words)
    assert rouge_of_sets(text, text, 1) == pytest.approx(1, abs=1e-7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_authors_script_says_the_same_of_made_up_replies(tmp_path):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone: MEDIQA-CORR's script, with the package it needs."""
    rouge = pytest.importorskip("rouge")
    import pandas as pd

    clone = require_clone("abachaa/MEDIQA-CORR-2024")
    script = clone / "evaluation/mediqa-corr-2024-eval-script-1-acc-rouge.ipynb.py"
    names = (
        "parse_reference_file", "parse_run_submission_file", "compute_accuracy", "increment_counter", "NLGMetrics",
        "get_nlg_eval_data",
    )  # fmt: skip
    theirs = load_functions(script, *names, re=re, pd=pd, math=math, np=np, string=string, Rouge=rouge.Rouge)
    rng = np.random.default_rng(0)
    words = ["he", "takes", "oral", "aspirin", "daily", "and", "is", "well"]
    rows, lines = [], []
    for number in range(200):
        flag, said_flag = rng.integers(0, 2, 2)
        due, said = (" ".join(rng.choice(words, 6)) for _ in range(2))
        rows.append([f"ms-test-{number}", flag, int(rng.integers(0, 4)) if flag else -1, due if flag else np.nan])
        sentence = int(rng.integers(0, 4)) if said_flag else -1
        lines.append(f"ms-test-{number} {said_flag} {sentence} {said if said_flag else 'NA'}")
    table = pd.DataFrame(rows, columns=["Text ID", "Error Flag", "Error Sentence ID", "Corrected Sentence"])
    table.to_csv(tmp_path / "due.csv", index=False)
    (tmp_path / "said.txt").write_text("\n".join(lines) + "\n")
    with contextlib.redirect_stdout(io.StringIO()):
        references, flags, sentences = theirs["parse_reference_file"](tmp_path / "due.csv")
        corrections, said_flags, said_sentences = theirs["parse_run_submission_file"](tmp_path / "said.txt")
    accuracy = theirs["compute_accuracy"](flags, sentences, said_flags, said_sentences)
    scores = theirs["NLGMetrics"]().compute(*theirs["get_nlg_eval_data"](references, corrections))
    keys = [f"{flag} {sentence} {'' if due != due else due}" for _, flag, sentence, due in rows]  # noqa: PLR0124
    replies = [line.partition(" ")[2] for line in lines]

    def mean(name):
        return np.mean([value(name, said, due) for said, due in zip(replies, keys, strict=True)])

    assert mean("error_flag_accuracy") == accuracy["Error Flags Accuracy"]
    assert mean("error_sentence_accuracy") == accuracy["Error Sentence Detection Accuracy"]
    assert mean("correction_rouge@1") == pytest.approx(scores["R1FC"], abs=1e-9)
    assert mean("correction_rouge@2") == pytest.approx(scores["R2FC"], abs=1e-9)
