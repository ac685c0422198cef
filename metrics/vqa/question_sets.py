"""Protocols over sets of questions: all right, the same answer, ordered steps; and means over groups.

Questions of a set share the attribute `set`, and the attribute `member` numbers them in their order, from 1. A set is
one draw of the bootstrap, and drawn twice it counts as two: the second time that a member occurs, its set begins anew.

A member may be right in part, as the expected value of a draw. Draws are independent, so the expected value of "all
right" is the product over the members, and every number here is exact for chance as well as for rights and wrongs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.agreement import cohen_kappa
from medimg_eval.metrics.answers import UNREAD
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.declarations import error_summary, share_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.vqa.correctness import NONE_GIVEN

SET, MEMBER = "set", "member"

_STEP_WEIGHT = 0.8
"""What each step of MedSPOT weighs of the one before."""

_OF_ALL_IMAGES = ("entity", "grounding")
"""Families of which ProbMed's image types weigh by all of their images."""


class Sets(NamedTuple):
    """Rows in the order of their sets and members.

    Attributes:
        order: (row,): which row stands here.
        starts: (set,): where each set begins.
    """

    order: Ints
    starts: Ints

    @property
    def sizes(self) -> Ints:
        """(set,): how many rows each set has."""
        return np.diff(np.append(self.starts, len(self.order)))


class Answers:
    """Rows of one metric in place, without expanding attributes as `ScoreTable.where` does."""

    def __init__(self, rows: ScoreTable, metric: str = "accuracy", *, known: bool = True) -> None:
        """Selects a metric's rows; `known` only those with values."""
        self.rows = rows
        chosen = rows.metric == metric
        self.at = np.flatnonzero(chosen & ~np.isnan(rows.value) if known else chosen)
        self.value = rows.value[self.at]
        self.case = rows.case[self.at]

    def attribute(self, name: str) -> npt.NDArray[np.str_]:
        """Returns an attribute of each row; "" where it has none.

        Raises:
            UsageError: No row of the run has it.
        """
        values = self.rows.attributes.get(name)
        if values is not None:
            return values[self.at]
        if not len(self.at):
            return np.zeros(0, np.str_)
        raise UsageError(f"No question has the attribute {name!r}{nearest(name, self.rows.attributes)}")


def sets_of(answers: Answers) -> Sets:
    """Groups rows into sets, repeated as the bootstrap drew.

    Rows without a set are left out, and sets of which a record cannot be understood.

    Raises:
        UsageError: The rows have sets but no `member` that tells a set that was drawn twice from a larger one.
    """
    if SET not in answers.rows.attributes or not len(answers.at):
        return Sets(np.zeros(0, np.int64), np.zeros(0, np.int64))
    names = answers.attribute(SET)
    members = answers.attribute(MEMBER) if MEMBER in answers.rows.attributes else np.full(len(names), "")
    if ((members == "") & (names != "")).any():
        raise UsageError(
            "Expected every question of a set to have the attribute 'member', its number in the set, found a 'set' "
            "without; state the task's set and order"
        )
    belongs = names != ""
    unread = answers.rows.label == UNREAD
    if unread.any():  # of a set with a member that nobody can judge, whether all is right is not known
        belongs &= ~np.isin(names, answers.rows.attributes[SET][unread])
    inside = np.flatnonzero(belongs)
    name, number = _number_texts(names[inside]), _sort_positions(members[inside])
    copy = _earlier_occurrences(name * (number.max(initial=0) + 1) + number, answers.case[inside])
    set_key = name * (copy.max(initial=0) + 1) + copy
    order = np.lexsort((number, set_key))
    sorted_sets = set_key[order]
    starts = np.flatnonzero(np.append(True, sorted_sets[1:] != sorted_sets[:-1])[: len(order)])
    return Sets(inside[order], starts)


def _number_texts(texts: npt.NDArray[np.str_]) -> Ints:
    """Numbers texts by first occurrence, faster than sorting."""
    number_of: dict[str, int] = {}
    return np.array([number_of.setdefault(text, len(number_of)) for text in texts.tolist()], np.int64)


def _sort_positions(members: npt.NDArray[np.str_]) -> Ints:
    """Returns member numbers' ranks, numeric: 2 before 10."""
    names, inverse = np.unique(members, return_inverse=True)
    numbers = [(float(name), name) if name.replace(".", "", 1).isdecimal() else (math.inf, name) for name in names]
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=numbers.__getitem__)] = np.arange(len(names))
    return rank[inverse]


def _earlier_occurrences(keys: Ints, case: Ints) -> Ints:
    """Returns how often each key occurred in earlier cases."""
    order = np.lexsort((case, keys))
    fresh = np.append(True, np.diff(keys[order]) != 0)[: len(keys)]
    positions = np.arange(len(keys))
    count = np.empty(len(keys), np.int64)
    count[order] = positions - np.maximum.accumulate(np.where(fresh, positions, 0)) if len(keys) else positions
    return count


def _all_right(answers: Answers) -> Floats:
    """Returns the product of the credits of each set, (set,)."""
    sets = sets_of(answers)
    if not len(sets.starts):
        return np.zeros(0)
    return np.multiply.reduceat(answers.value[sets.order], sets.starts)


def _known_mean(values: Floats | Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


_of_accuracy = partial(share_summary, needs=("accuracy",))
_of_chosen = partial(_of_accuracy, parameter_is_text=True)


@_of_accuracy(title="Set accuracy", source="MediConfusion; MMEvalPro; ProbMed; MMBench")
def group_accuracy(rows: ScoreTable) -> float:
    """The share of sets all of whose questions were answered right.

    Sets that are pairs give MediConfusion's set accuracy; triplets MMEvalPro's genuine accuracy; all rotations of the
    options MMBench's circular evaluation; an image's questions of one family ProbMed's accuracy; ordered steps the task
    completion (TCA) of MedSPOT. In [0, 1]; questions without a set are left out.
    """
    return _known_mean(_all_right(Answers(rows)))


@_of_chosen(title="Set accuracy among", source="ProbMed, without adversarial pairs", parameter="attribute=pattern")
def group_accuracy_among(rows: ScoreTable, wanted: str) -> float:
    """The share of sets whose questions with some value of an attribute were all answered right.

    Asked for as `group_accuracy_among@qa_type=*_gt*`: only those questions of a set count whose attribute `qa_type`
    fits the pattern, in which * stands for anything. A set without one counts by all of its questions, as in ProbMed,
    where a normal image has only its adversarial question.

    Raises:
        UsageError: The parameter is not of that form, or there is no such attribute.
    """
    attribute, equals, pattern = wanted.partition("=")
    if not equals:
        raise UsageError(
            f"Expected group_accuracy_among@attribute=value, such as group_accuracy_among@qa_type=*_gt*, got {wanted!r}"
        )
    judged = Answers(rows)
    fits = {value: fnmatchcase(value, pattern) for value in set(judged.attribute(attribute).tolist())}
    sets = sets_of(judged)
    if not len(sets.starts):
        return math.nan
    counts = np.array([fits[value] for value in judged.attribute(attribute).tolist()], bool)[sets.order]
    without = ~np.logical_or.reduceat(counts, sets.starts)
    counts |= np.repeat(without, sets.sizes)
    factors = np.where(counts, judged.value[sets.order], 1.0)
    return _known_mean(np.multiply.reduceat(factors, sets.starts))


@_of_chosen(title="ProbMed's accuracy", source="ProbMed, calculate_score.py", parameter="family, or * for all")
def group_accuracy_probmed(rows: ScoreTable, family: str) -> float:
    """The share of images all of whose pairs of a family are right, averaged as ProbMed's program does.

    Asked for as `group_accuracy_probmed@grounding`, or `@*` for its overall accuracy: in each image type by itself, and
    then over the types, of which each weighs as many images as have the family; for entity and grounding as many as it
    has at all, also those that the family is not asked of. Pairs of which one question was not answered at all are
    left out. In [0, 1].

    Raises:
        UsageError: The rows have no `image_type`, `family` or `qa_type`.
    """
    judged = Answers(rows)
    kinds, names, question_types = (judged.attribute(name) for name in ("image_type", "family", "qa_type"))
    sets = sets_of(judged)
    if not len(sets.starts):
        return math.nan
    numbers = [
        name.rpartition("_")[2] for name in question_types.tolist()
    ]  # of the pair, in `entity_gt_1`; none in others
    numbers = [number if number.isdecimal() else "" for number in numbers]
    pairs = list(zip(judged.attribute(SET).tolist(), numbers, strict=True))
    unanswered = {pair for pair, status in zip(pairs, rows.status[judged.at], strict=True) if status == "failed"}
    counts = np.array([pair not in unanswered for pair in pairs])[sets.order]
    right = np.multiply.reduceat(np.where(counts, judged.value[sets.order], 1.0), sets.starts)
    first, any_counted = sets.order[sets.starts], np.logical_or.reduceat(counts, sets.starts)
    means, weights = [], []
    for kind in np.unique(kinds[first]):
        of_kind = kinds[first] == kind
        held, images = np.unique(names[first][of_kind], return_counts=True)
        for name in (name for name in held if fnmatchcase(name, family)):
            judged_sets = of_kind & any_counted & (names[first] == name)
            if judged_sets.any():
                means.append(right[judged_sets].mean())
                weights.append(images.max() if name in _OF_ALL_IMAGES else judged_sets.sum())
    return float(np.average(means, weights=weights)) if means else math.nan


@_of_chosen(title="Macro accuracy", source="unweighted mean over groups", parameter="attribute")
def macro_accuracy(rows: ScoreTable, attribute: str) -> float:
    """The mean over the values of an attribute of the accuracy among the questions that have it.

    Each value weighs the same, however many questions it has. Values are split at commas: a question of "detection,
    comparison" belongs to both. Questions without a value are left out. In [0, 1].
    """
    judged = Answers(rows)
    return _over_groups(judged.attribute(attribute), judged.value)


@_of_chosen(title="Macro set accuracy", source="MMEvalPro, its macro average", parameter="attribute")
def macro_group_accuracy(rows: ScoreTable, attribute: str) -> float:
    """The mean over the values of an attribute of the set accuracy among the sets that have it.

    A set has the values of its first question. As `macro_accuracy` otherwise.
    """
    judged = Answers(rows)
    sets = sets_of(judged)
    return _over_groups(judged.attribute(attribute)[sets.order[sets.starts]], _all_right(judged))


def _over_groups(names: npt.NDArray[np.str_], values: Floats) -> float:
    """Returns the mean of group means; names may list groups."""
    groups: dict[str, list[float]] = {}
    lists = {name: [part for name in name.split(",") if (part := name.strip())] for name in set(names.tolist())}
    for name, value in zip(names.tolist(), values.tolist(), strict=True):
        for group in lists[name]:
            groups.setdefault(group, []).append(value)
    return _known_mean([math.fsum(held) / len(held) for held in groups.values()])


def _step_chances(rows: ScoreTable) -> tuple[Floats, Sets]:
    """Returns cumulative step success by set, and the sets."""
    judged = Answers(rows)
    sets = sets_of(judged)
    reached = judged.value[sets.order].astype(np.float64)
    positions = np.arange(len(reached)) - np.repeat(sets.starts, sets.sizes)
    for step in range(1, int(positions.max(initial=0)) + 1):
        here = np.flatnonzero(positions == step)
        reached[here] *= reached[here - 1]
    return reached, sets


@_of_accuracy(title="S1A", source="MedSPOT")
def first_step_accuracy(rows: ScoreTable) -> float:
    """The share of tasks whose first step was right.

    Tasks are sets, and their steps its members in order. In [0, 1].
    """
    reached, sets = _step_chances(rows)
    return _known_mean(reached[sets.starts])


@_of_accuracy(title="SHR", source="MedSPOT, its Evaluation_scripts")
def step_hit_rate(rows: ScoreTable) -> float:
    """The step hit rate: steps that were right before the first failure of their task, over all steps of all tasks.

    Steps after a failure count as missed, as in the authors' code; its page speaks of the steps that were evaluated.
    In [0, 1].
    """
    return _known_mean(_step_chances(rows)[0])


@_of_accuracy(title="WPS", source="MedSPOT, its Evaluation_scripts")
def weighted_prefix_score(rows: ScoreTable) -> float:
    """The weighted prefix score: the mean over tasks of the sum of 0.8^(i-1) over steps i before the first failure.

    It is not bounded by 1: a task of three steps that are all right has 2.44.
    """
    reached, sets = _step_chances(rows)
    positions = np.arange(len(reached)) - np.repeat(sets.starts, sets.sizes)
    if not len(sets.starts):
        return math.nan
    return _known_mean(np.add.reduceat(reached * _STEP_WEIGHT**positions, sets.starts))


@error_summary(needs=("predicted_position",), title="Confusion", source="MediConfusion")
def confusion(rows: ScoreTable) -> float:
    """The share of sets whose questions were all answered with the same letter, of those that were answered in full.

    It serves sets whose questions have the same options and different right answers. In [0, 1]; NaN where no set was
    answered in full.
    """
    return _share_alike(Answers(rows, "predicted_position", known=False))


@share_summary(needs=("predicted_class",), title="Consistency", source="share of equal answers")
def consistency(rows: ScoreTable) -> float:
    """The share of sets whose questions were all answered the same, of those that were answered in full.

    It serves sets whose questions have the same right answer: rotations of the options, other words. Answers are the
    same if their option's text is, whatever its letter. In [0, 1]; NaN where no set was answered in full.
    """
    return _share_alike(Answers(rows, "predicted_class", known=False))


@share_summary(needs=("stance",), title="Consistency of stance", source="Kaur et al. 2024, UPHILL")
def stance_consistency(rows: ScoreTable) -> float:
    """The share of claims to all of whose questions the answers take the same stance, however the claim is put.

    Sets are claims. In [0, 1]; NaN where no claim has a stance for each of its questions.
    """
    return _share_alike(Answers(rows, "stance", known=False))


def _share_alike(answers: Answers) -> float:
    sets = sets_of(answers)
    if not len(sets.starts):
        return math.nan
    answers_given = answers.value[sets.order]
    low, high = np.minimum.reduceat(answers_given, sets.starts), np.maximum.reduceat(answers_given, sets.starts)
    full = ~np.isnan(low) & (low != NONE_GIVEN) & (sets.sizes > 1)
    return _known_mean((low == high)[full].astype(float))


@share_summary(
    needs=("predicted_position",),
    title="Kappa",
    source="Cohen 1960; WorldMedQA-V",
    parameter="attribute",
    parameter_is_text=True,
    value_kind="correlation",
)
def kappa(rows: ScoreTable, attribute: str) -> float:
    """Cohen's kappa between the letters that were answered to the same question under two values of an attribute.

    `kappa@language` compares the languages of a question, which are the members of a set. Of more than two values the
    mean over pairs of them. Only pairs of which both were answered count. At most 1, and 0 for agreement by chance; NaN
    where all answers are one letter, or none are paired.
    """
    judged = Answers(rows, "predicted_position")
    values = judged.attribute(attribute)
    sets = sets_of(judged)
    owner = np.repeat(np.arange(len(sets.starts)), sets.sizes)
    answers = {
        value: dict(zip(owner[chosen].tolist(), judged.value[sets.order][chosen].tolist(), strict=True))
        for value in sorted(set(values.tolist()) - {""})
        if (chosen := (values[sets.order] == value) & (judged.value[sets.order] != NONE_GIVEN)).any()
    }
    kappas = [
        cohen_kappa([first_answers[name] for name in both], [second_answers[name] for name in both])
        for first_answers, second_answers in combinations(answers.values(), 2)
        if (both := sorted(first_answers.keys() & second_answers.keys()))
    ]
    return _known_mean(kappas)
