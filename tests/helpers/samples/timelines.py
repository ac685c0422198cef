"""Samples of patients whose reports are read in order."""

import json

import yaml

from tests.helpers.catalogue import SAMPLES, sample
from tests.helpers.config_files import config_file
from tests.helpers.samples.k3b import write_csv

LUNGUAGE_COLUMNS = ("subject_id", "study_id", "sequence", "section", "sent_idx", "sent", "ent_idx", "ent", "dx_status")
LUNGUAGE_COLUMNS += (
    "dx_certainty",
    "location",
    "severity",
    "improved",
    "day_from_first",
    "gt_entity_group",
    "gt_temporal_group",
)


def lunguage_table(root):
    """Patient 10 with three studies, which stand out of order, and 11 with one alone; a history without a group."""
    small = "A small left effusion."
    rows = [
        (
            "10",
            "s52",
            2,
            "find",
            1,
            "Effusion has resolved. No edema.",
            4,
            "edema",
            "negative",
            "definitive",
            "",
            "",
            "",
            "8 days",
            "edema",
            1,
        ),
        (
            "10",
            "s52",
            2,
            "find",
            0,
            "The effusion is smaller.",
            3,
            "effusion",
            "positive",
            "definitive",
            "",
            "",
            "smaller",
            "8 days",
            "left effusion",
            1,
        ),
        ("10", "s51", 1, "hist", 0, "Fever.", 0, "fever", "positive", "definitive", "", "", "", "0 days", "", ""),
        (
            "10",
            "s51",
            1,
            "find",
            1,
            small,
            1,
            "effusion",
            "positive",
            "definitive",
            "loc: left",
            "small",
            "",
            "0 days",
            "left effusion",
            1,
        ),
        (
            "10",
            "s53",
            3,
            "impr",
            0,
            "New left effusion.",
            5,
            "effusion",
            "positive",
            "tentative",
            "loc: left",
            "",
            "",
            "200 days",
            "left effusion",
            2,
        ),
        ("11", "s61", 1, "find", 0, "Clear.", 0, "lungs", "negative", "definitive", "", "", "", "0 days", "lungs", 1),
    ]
    write_csv(root / "dataset" / "Lunguage.csv", LUNGUAGE_COLUMNS, *rows)


LUNGUAGE_REPORTS = (
    "Study 1 (s51, day 0)\nhist: Fever.\nfind: A small left effusion.\nStudy 2 (s52, day 8)\n"
    "find: The effusion is smaller. Effusion has resolved. No edema.\nStudy 3 (s53, day 200)\nimpr: New left effusion."
)


def asked_of_lunguage(name, middle):
    """The prompt of a task around what is asked of a patient."""
    template = yaml.safe_load(config_file(name).read_text())["template"]
    user = template["user"].replace("{{", "{").replace("}}", "}").replace("{question}", middle)
    return f"{template['system']}\n{user}"


WRITTEN = {
    "study_id": "s51",
    "sequence": 1,
    "entity": "effusion",
    "dx_status": "positive",
    "dx_certainty": "definitive",
}
WRITTEN |= {"location": "left", "severity": "small", "entity_group": "left effusion", "episode": 1}
SEEN = [{"IDX": number, "DAY": day, "finding": "x"} for number, day in ((0, 0), ("1", 8), (3, 200))]
COURSES = [{"episode": 1, "days": [0, 8, 200]}]


def lunguage_right(case):
    return case.target.read().value


# Of four rows one is written, with its group, study and course: similarity 1 to itself. What is left over of the truth
# counts by its nearest: effusion of s52 shares the group; attributes (status 0.5, certainty 0.1) of 0.5 + 0.1 + 0.2
# + 0.15 + 0.15, and the episode alone of the times, 0.5: 0.6 / 1.1 * 0.5 = 0.2727; of s53 the same group, status and
# place, of certainty none: 0.7 / 0.95, but neither study nor course: 0; edema shares no word: 0. TP 1, FN 3 - 0.2727.
@sample(
    "lunguage_timeline",
    cases=["10"],
    replies={"10": "```json\n" + json.dumps([WRITTEN]) + "\n```"},
    scores={"lunguage_timeline_words": 2 / (2 + 3 - 0.6 / 1.1 * 0.5), "unanswered": 0},
    images=0,
    perfect=lunguage_right,
    text=LUNGUAGE_REPORTS,
)
def lunguage_timeline(root):
    """A row for each finding; studies by their number, sentences by theirs."""
    lunguage_table(root)


# Truth: effusion {0: course 1, 1: course 1, 3: course 2}, edema {2}. Answered: {0, 1, 3} in one course, edema left out.
# Pairs of findings: 3 right of 3. Of courses: 1 in common, 1 true, 3 answered: 2 / 4. Purity: all; of courses 3 / 4.
@sample(
    "lunguage_groups",
    cases=["10"],
    replies={
        "10": json.dumps(
            {"results": [{"group_name": "effusion", "findings": SEEN, "episodes": COURSES, "rationale": ""}]}
        )
    },
    scores={
        "timeline_pair_f1@entity": 1,
        "timeline_pair_f1@episode": 1 / 2,
        "timeline_purity@entity": 1,
        "timeline_purity@episode": 3 / 4,
        # By number alone the truth's first courses are one: 3 pairs, of which 1 is answered; edema is alone in -1.
        "timeline_pair_f1@episode_published": 2 * 1 / (3 + 3),
        "timeline_purity@episode_published": 3 / 4,
        "unanswered": 0,
    },
    images=0,
    perfect=lunguage_right,
    text=(
        "IDX: 0, DAY: 0, status: positive: effusion left small\n"
        "IDX: 1, DAY: 8, status: positive: effusion smaller\n"
        "IDX: 2, DAY: 8, status: negative: edema\n"
        "IDX: 3, DAY: 200, status: positive: effusion left"
    ),
)
def lunguage_groups(root):
    """The same table, whose findings are given."""
    lunguage_table(root)


for asked_name in ("lunguage_timeline", "lunguage_groups"):
    SAMPLES[asked_name].text = asked_of_lunguage(asked_name, SAMPLES[asked_name].text)
