"""What two checklists ask of a paper, in our words and their numbers, and which facts of runs answer it.

Sources: Tejani et al., Checklist for Artificial Intelligence in Medical Imaging (CLAIM): 2024 Update, Radiology:
Artificial Intelligence 6(4), 2024, e240300; Miao et al., The Minimum Information about Clinical Artificial Intelligence
Checklist for Generative Modeling Research (MI-CLAIM-GEN), 2024, arXiv:2403.02558. The items of the latter have no
numbers of their own and are counted within its parts.
"""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """One item of a checklist."""

    number: str
    asks: str
    facts: tuple[str, ...] = ()
    """Names of the facts that answer it; none where only the authors can."""
    authors: str = ""
    """What the authors must say themselves, beside the facts or without any."""


class Checklist(NamedTuple):
    """A checklist with its items."""

    name: str
    source: str
    items: tuple[Item, ...]


CLAIM = Checklist(
    "CLAIM (2024 update)",
    "Tejani et al., Radiology: Artificial Intelligence 6(4), 2024, e240300",
    (
        Item("1", "The title names the study as one of AI, and the kind of technology", (), "the title"),
        Item("2", "The abstract sums up design, methods, results and conclusions", (), "the abstract"),
        Item("3", "Background, intended use and clinical role", (), "the clinical problem and the intended use"),
        Item("4", "Aims, objectives and hypotheses", (), "what was to be shown, and whether it was set beforehand"),
        Item("5", "Prospective or retrospective", (), "how the data of the study were collected"),
        Item("6", "The goal of the study", ("description",), "the goal, such as feasibility or non-inferiority"),
        Item("7", "Where the data come from", ("source", "reference", "access", "licence", "fingerprint")),
        Item("8", "Criteria of inclusion and exclusion", ("left_out",), "how the cases of the data were chosen"),
        Item("9", "How data were prepared", ("preprocessing",), "preparation before the data reached this program"),
        Item("10", "How parts of the data were selected", ("selection", "split")),
        Item("11", "How data were de-identified", (), "the method, and the rules that it meets"),
        Item("12", "How missing data were handled", ("failures", "undefined")),
        Item("13", "How images were acquired", (), "devices, protocols and their parameters"),
        Item("14", "What the reference standard is", ("truth", "labels")),
        Item("15", "Why this reference standard", (), "the reason, and what else there was"),
        Item("16", "Who made the reference standard", ("reference",), "their number, qualification and training"),
        Item("17", "How the test set was annotated", ("truth",), "tools and procedure"),
        Item("18", "How far annotators agree", (), "agreement between and within annotators, and how it was resolved"),
        Item("19", "How data were assigned to partitions", ("split", "split_sources")),
        Item("20", "On which level partitions are disjoint", ("split", "resampled"), "that no patient is in two"),
        Item("21", "The sample size intended", ("cases",), "why so many, such as a power analysis"),
        Item(
            "22",
            "The model in detail",
            ("names", "model", "checkpoint", "parameters", "settings", "prompts", "decoding"),
        ),
        Item("23", "Software with versions", ("software", "revision")),
        Item("24", "How parameters were initialised", ("checkpoint",), "what the weights were first trained on"),
        Item("25", "How the model was trained", ("fitting",), "data, augmentation, hyperparameters and convergence"),
        Item("26", "How the final model was chosen", (), "by which values of which data"),
        Item("27", "Ensembles", (), "whether there is one, and how its answers are combined"),
        Item("28", "Metrics of performance", ("metrics", "signature", "judge", "extraction")),
        Item("29", "Measures of significance and uncertainty", ("intervals", "tests")),
        Item("30", "Analyses of robustness or sensitivity", ("seed",), "such analyses; by=ATTRIBUTE shows subgroups"),
        Item("31", "Methods of explanation or interpretation", (), "these and how they were validated, if any"),
        Item("32", "Evaluation on internal data", ("split",), "which of the data are internal"),
        Item("33", "Testing on external data", (), "which of the data are external, or why there are none"),
        Item("34", "Registration of a clinical trial", (), "the registration, if it is one"),
        Item("35", "Numbers included and excluded", ("cases", "left_out"), "a flow chart"),
        Item("36", "Demographic and clinical characteristics", ("attributes",), "those of other partitions"),
        Item("37", "Performance with its uncertainty", ("results",)),
        Item("38", "Estimates of diagnostic performance and their precision", ("results", "intervals")),
        Item(
            "39",
            "Analysis of failures",
            ("failures",),
            "what wrong answers have in common",
        ),
        Item("40", "Limits of the study", ("limits", "warnings"), "what else limits it"),
        Item("41", "What it means for practice", (), "intended use and what stands in its way"),
        Item("42", "Where the full protocol is", ("command",), "a protocol, if there is one"),
        Item("43", "Availability of software, model and data", ("access", "licence", "revision"), "where they are"),
        Item("44", "Funding and its role", (), "who paid, and what they had a say in"),
    ),
)

MI_CLAIM_GEN = Checklist(
    "MI-CLAIM-GEN",
    "Miao et al., 2024, arXiv:2403.02558",
    (
        Item("1.1", "The clinical problem", (), "the problem that the model is meant for"),
        Item("1.2", "The research question", (), "the question"),
        Item("1.3", "Selection of cohorts and design, so that others can repeat it", ("source", "selection", "split")),
        Item("1.4", "How labels were made", ("truth", "reference"), "guidelines, experience and agreement"),
        Item("1.5", "Whether outputs are categorical, continuous or unstructured", ("output",)),
        Item("1.6", "Characteristics of the cohorts", ("attributes", "cases"), "how far they stand for real patients"),
        Item(
            "2.1",
            "All models and parts",
            ("names", "model", "checkpoint", "judge", "extractors"),
            "tools and retrieval",
        ),
        Item("2.2", "Origin and format of all data", ("source", "access", "licence"), "data of training"),
        Item("2.3", "Preparation of all data", ("preprocessing", "prompts"), "preparation for training"),
        Item(
            "2.4", "Independence of partitions, by patient", ("split", "split_sources", "resampled"), "of prompts too"
        ),
        Item("3.1", "The baseline, which is the state of the art", ("baselines",), "which model it is"),
        Item("3.2", "Comparison with the baseline, with its significance", ("results", "tests")),
        Item("3.3", "Kinds of evaluation and why these metrics", ("metrics",), "why these are the primary ones"),
        Item("3.4", "Evaluation by people", (), "guidelines, experience and agreement; see the command readers"),
        Item("5.1", "Examination of errors, against undetected failure", ("failures", "limits"), "what it showed"),
        Item("5.2", "The risk that it reveals", (), "a discussion"),
        Item("5.3", "Bias, privacy, security and other harm", (), "what was found, and done; by=ATTRIBUTE helps"),
        Item("5.4", "Shifts of distribution", (), "an assessment or a discussion"),
        Item("5.5", "Evaluation after deployment", (), "recommendations"),
        Item("6.1", "Transparency of code and data, with all prompts", ("prompts", "revision", "access"), "the tier"),
        Item(
            "6.2",
            "Hyperparameters, infrastructure and compute",
            ("settings", "decoding", "hardware", "timing", "usage", "efficiency", "fitting"),
        ),
        Item("6.3", "A clinical model card", ("names", "limits"), "abilities, intended use, limits and risks"),
        Item("6.4", "Release of the weights", ("checkpoint",), "where they are, and on which terms"),
    ),
)

CHECKLISTS = (CLAIM, MI_CLAIM_GEN)
