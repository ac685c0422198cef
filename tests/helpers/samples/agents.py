"""Samples of benchmarks of agents."""

import csv
from functools import partial

from tests.helpers.catalogue import SAMPLES, agents, picture, write_json, write_lines
from tests.helpers.samples.k3b import medmaslab
from tests.helpers.samples.k4k5 import PATIENT, deeptumorvqa_v2

AGENT = (
    "You are a radiology AI agent analyzing abdominal CT scans. You can call tools to obtain segmentation results, "
    "quantitative measurements, and clinical reference knowledge. Use tool calls when the question requires evidence "
    "you cannot obtain by visual inspection alone. After gathering enough evidence, give the final answer in the "
    "requested format (single letter for multiple choice, exact value/word for free-form)."
)
ASKED = (
    f"{AGENT}\n{PATIENT}What is the volume of the liver? A: 120 cm³ B: 1500.5 cm³ C: 900 cm³ D: 40 cm³\n"
    "Answer with ONLY the single letter (A, B, C, or D)."
)
KNOWLEDGE = """KNOWLEDGE_BASE: list[dict] = [
    {"keywords": ["spleen", "volume", "normal"], "text": "Spleens are small.", "source": "ours"},
    {"keywords": ["HU", "organ", "normal"], "text": "Livers have 60 HU.", "source": "ours"},
]
raise SystemExit("this file is not run")
"""


deep_tumor = partial(
    agents,
    cases=["bench_1", "bench_2", "bench_3", "bench_4", "bench_5"],
    replies={"bench_1": "Answer: B", "bench_2": "A", "bench_3": "<think>A?</think>D"},
    scores={"accuracy": 2 / 5, "unanswered": 2 / 5},
    authors={"accuracy": 1 / 5, "unanswered": 2 / 5},
    text=ASKED,
    images=0,
)


@deep_tumor("deeptumorvqa_v2_agent")
def deeptumorvqa_v2_agent(root):
    """Results of tools by patient, as nested objects, and a table of knowledge within a program."""
    deeptumorvqa_v2(root)
    cache = {
        "BDMAP_1": {
            "segment": {"liver": {"mask_found": True, "voxel_count": 9}},
            "measure": {"liver": {"volume_cm3": {"value": 1500.5, "unit": "cm3"}}},
        },
        "BDMAP_0": {"segment": {}, "measure": {}},
    }
    write_json(root / "tool_cache" / "benchmark_oracle_tool_cache.json", {"cache": cache})
    (root / "tool_cache" / "tools.py").write_text(KNOWLEDGE)


@deep_tumor("deeptumorvqa_v2_vision")
def deeptumorvqa_v2_vision(root):
    """Pictures of single organs and of two together."""
    deeptumorvqa_v2_agent(root)
    for number, organ in enumerate(("liver", "left_kidney", "liver_spleen")):
        picture(root / "benchmark" / "images_2d" / "organ" / f"BDMAP_1_{organ}.png", number)


def _call(name, **arguments):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "thought": "So.", "tool_calls": [{"type": "function", "function": function}]}


def _found(name, content):
    return {"role": "tool", "name": name, "content": content}


RECORDED = {
    "0": {
        "tools": [{"name": "OCR"}, {"name": "Calculator"}],
        "files": [{"type": "image", "path": "image/a.png"}],
        "gt_answer": {"whitelist": [["12", "twelve"], ["mm"]], "blacklist": [["cm"]]},
        "dialogs": [
            {"role": "user", "content": "How long are both together?"},
            _call("OCR", image="image/a.png"),
            _found("OCR", {"type": "text", "content": "5 mm and 7 mm"}),
            _call("Calculator", expression="5 + 7"),
            _found("Calculator", "12"),
            {"role": "assistant", "content": "They are 12 mm long."},
        ],
    },
    "1": {
        "tools": [{"name": "GoogleSearch"}],
        "files": [{"type": "image", "path": "image/a.png"}, {"type": "image", "path": "image/b.png"}],
        "gt_answer": {"whitelist": [["gout"]], "blacklist": None},
        "dialogs": [
            {"role": "user", "content": "Which disease?"},
            _call("GoogleSearch", query="tophi", k=1),
            _found("GoogleSearch", "Gout."),
            _call("GoogleSearch", query="tophi of the hand", k=1),
            _found("GoogleSearch", "Gout, again."),
            {"role": "assistant", "content": "It is gout."},
        ],
    },
}


def _recorded(root):
    write_json(root / "dataset.json", RECORDED)
    for number, name in enumerate("ab"):
        picture(root / "image" / f"{name}.png", number)


# 0 names the number and the unit; 1 does not name gout as a word of its own.
@agents(
    "medcta",
    cases=["0", "1"],
    replies={"0": "Twelve mm.", "1": "Gouty."},
    scores={"listed_answer": 1 / 2, "unanswered": 0},
    text="The related files are at image/a.png\nHow long are both together?",
    images=0,
)
def medcta(root):
    """Contents of tools as a text and as an object, one with two files, one that is searched for twice."""
    _recorded(root)


@agents(
    "medcta_steps",
    cases=["0/1", "0/2", "0/3", "1/1", "1/2", "1/3"],
    replies={"0/3": "12 mm"},
    scores={"unanswered": 5 / 6},
    text="The related files are at image/a.png\nHow long are both together?",
    images=0,
)
def medcta_steps(root):
    """The same, a case for each turn of the assistant."""
    _recorded(root)


DOCTOR = (
    "You are a doctor named Dr. Agent who only responds in the form of dialogue. You are inspecting a patient who you "
    "will ask questions in order to understand their disease. You are only allowed to ask 20 questions total before "
    "you must make a decision. You have asked {asked} questions so far. You can request test results using the format "
    '"REQUEST TEST: [test]". For example, "REQUEST TEST: Chest_X-Ray". Your dialogue will only be 1-3 sentences in '
    'length. Once you have decided to make a diagnosis please type "DIAGNOSIS READY: [diagnosis here]"\n\nBelow is all '
    "of the information you have. AIM. \n\n Remember, you must discover their disease by asking them questions. You "
    "are also able to provide exams.\n"
)


def _visit(aim, diagnosis):
    examination = {
        "Objective_for_Doctor": aim,
        "Patient_Actor": {"Demographics": "a young man", "Symptoms": ["a cough"]},
        "Physical_Examination_Findings": {"Lungs": "dull"},
        "Test_Results": {"Imaging": {"X-ray": "white"}},
        "Correct_Diagnosis": diagnosis,
    }
    return {"OSCE_Examination": examination}


@agents(
    "agentclinic_medqa",
    cases=["agentclinic_medqa-1", "agentclinic_medqa-2"],
    replies={"agentclinic_medqa-1": "DIAGNOSIS READY: Pneumonia"},
    scores={"answer_contains_reference": 1 / 2, "unanswered": 1 / 2},
    text=DOCTOR.replace("AIM", "Find the cause of a cough"),
    images=0,
)
def agentclinic_medqa(root):
    """Two visits."""
    visits = [_visit("Find the cause of a cough", "Pneumonia"), _visit("Find the cause of a pain", "Gout")]
    write_lines(root / "agentclinic_medqa.jsonl", visits)


@agents(
    "agentclinic_nejm",
    cases=["nejm-1"],
    replies={"nejm-1": "DIAGNOSIS READY: Ochronosis"},
    scores={"answer_contains_reference": 1, "unanswered": 0},
    text=DOCTOR.replace("AIM", "What is the most likely diagnosis?"),
)
def agentclinic_nejm(root):
    """One case whose image has its name from an address."""
    options = [{"text": "Dermatitis", "correct": False}, {"text": "Ochronosis", "correct": True}]
    record = {
        "image_url": "https://example.org/ContentServer/images?id=IC20240111&width=1500",
        "question": "What is it?",
        "patient_info": "You have dark skin.",
        "physical_exams": "Dermoscopy: dots.",
        "answers": options,
    }
    write_lines(root / "agentclinic_nejm.jsonl", [record])
    picture(root / "images" / "IC20240111.jpg")


@agents(
    "medinsightbench",
    cases=["case-1"],
    replies={"case-1": "An effusion.\nNo nodule."},
    scores={"unanswered": 0},
    text="Goal of the analysis: Find all.\nList the insights that you find in the image, one a line.",
)
def medinsightbench(root):
    """One case with two insights, in the form that we take the records to have."""
    record = {"id": "case-1", "image": "images/1.png", "goal": "Find all.", "insights": ["Effusion", "No nodule"]}
    write_lines(root / "test.jsonl", [record])
    picture(root / "images" / "1.png")


COURSES = (
    "autogen",
    "colacare",
    "dylan",
    "llm_discussion",
    "mdagents",
    "mdteamgpt",
    "medagents",
    "meta_prompting",
    "reconcile",
)
STEPWISE = {
    "medmaslab_vote": "You are a helpful medical assistant.\n",
    "medmaslab_cot": "You are a helpful assistant.\n",
}
for _name in (
    "medmaslab_cot",
    "medmaslab_debate",
    "medmaslab_discussion",
    "medmaslab_vote",
    *(f"medmaslab_{course}" for course in COURSES),
):
    agents(
        _name,
        cases=SAMPLES["medmaslab"].cases,
        replies=SAMPLES["medmaslab"].replies,
        scores={
            name: value for name, value in SAMPLES["medmaslab"].scores.items() if name in ("accuracy", "unanswered")
        },
        text=SAMPLES["medmaslab"].text
        if _name not in STEPWISE
        else f"{STEPWISE[_name]}{SAMPLES['medmaslab'].text}let's think step by step.",
        images=SAMPLES["medmaslab"].images,
    )(medmaslab)


# Chain 1 has its first error found and a right step called wrong; of chain 2 nothing is said of the second step.
@agents(
    "visualprocessbench",
    cases=["test-1", "test-2"],
    replies={"test-1": "1: correct\n2: incorrect\n3: incorrect", "test-2": "1: correct"},
    # without the neutral step: right ones due 3, said 1, both 1; wrong ones due 1, said 2, both 1
    scores={"right_step_f1": 2 / 4, "wrong_step_f1": 2 / 3, "first_error_found": 1},
    text=(
        "A question about images was answered step by step. Say of each step whether it is correct.\n\n"
        "Question: How many?\n\nSteps:\n1. Two are red.\n2. Three are blue.\n3. So five.\n\n"
        "Write a line for each step: its number, a colon, and correct, incorrect, or neutral for a step that claims "
        "nothing."
    ),
    settings={"expected": {"test": 2}},
)
def visualprocessbench(root):
    """Chains of steps with their labels within an object, one of them neutral."""
    chains = [
        (["Two are red.", "Three are\nblue.", "So five."], [1, -1, 1]),
        (["I count.", "One is there."], [0, 1]),
    ]
    rows = []
    for number, (steps, labels) in enumerate(chains):
        picture(root / "images" / f"{number}.png", number)
        response = {"steps": steps, "process_correctness": labels}
        row = {"image": [f"images/{number}.png"], "question": "How many?", "answer": "5", "response": response}
        rows.append(row | {"policy_model": "m", "data_source": "MMMU"})
    write_lines(root / "test.jsonl", rows)


TALK = [
    {"role": "user", "content": "My chest hurts."},
    {"role": "assistant", "content": "Since when?"},
    {"role": "user", "content": "Since today."},
]


@agents(
    "healthbench",
    cases=["a1", "b2"],
    replies={"a1": "Call for help.", "b2": "Wait."},
    scores={"unanswered": 0},
    text="My chest hurts.\nSince when?\nSince today.",
    images=0,
    settings={"expected": {"test": 2}},
)
def healthbench(root):
    """Conversations of one and of three turns, with rubrics of which one has negative points."""
    rubric = [
        {"criterion": "Says to call an ambulance.", "points": 5, "tags": ["axis:accuracy"]},
        {"criterion": "Asks about other signs.", "points": 3, "tags": ["axis:completeness"]},
        {"criterion": "Says to wait.", "points": -4, "tags": ["axis:accuracy"]},
    ]
    rows = [
        {"prompt_id": name, "prompt": talk, "rubrics": rubric, "example_tags": ["theme:x"]}
        for name, talk in (("a1", TALK), ("b2", TALK[:1]))
    ]
    write_lines(root / "2025_oss_eval.jsonl", rows)


MET = '{"explanation": "It does.", "criteria_met": %s}'


@agents(
    "healthbench_meta",
    cases=["2025_oss_meta_eval-1", "2025_oss_meta_eval-2", "2025_oss_meta_eval-3"],
    replies={
        "2025_oss_meta_eval-1": MET % "true",
        "2025_oss_meta_eval-2": MET % "true",
        "2025_oss_meta_eval-3": MET % "false",
    },
    # predictions T, T, F beside [T], [F, T], [F, F]: both F1 are 0.8
    scores={"physician_agreement": 0.8},
    text=(
        "Your job is to look at a conversation, the answer that was given to it, and one item of a rubric, and to say "
        "whether the answer meets the criterion of that item.\n\n# Conversation\nuser: My chest hurts.\n\nassistant: "
        "Since when?\n\nuser: Since today.\n\n# Answer\nCall for help.\n\n# Rubric item\nSays to call.\n\n"
        "# Instructions\n"
        "If a criterion names several things, all of them must be there for it to be met, unless it says otherwise.\n"
        'Return a JSON object with the fields "explanation" (a text, which says why) and "criteria_met" (true or '
        "false), and nothing else."
    ),
    images=0,
)
def healthbench_meta(root):
    """Criteria of one family with labels of one and of two physicians."""
    rows = [
        {"prompt": TALK, "completion": "Call for help.", "rubric": "Says to call.", "category": "cluster:emergency"}
        | {"binary_labels": labels, "completion_id": f"c{number}"}
        for number, labels in enumerate(([True], [False, True], [False, False]))
    ]
    write_lines(root / "2025_oss_meta_eval.jsonl", rows)


@agents(
    "medval",
    cases=["report2impression-1", "report2impression-2", "dialogue2note-3"],
    replies={
        "report2impression-1": "None.\nA",
        "report2impression-2": "The side is wrong.\nAnswer: C",
        "dialogue2note-3": "C",
    },
    # right are 1 and 2; F1 of level 1 is 1, of level 3 is 2/3, of level 4 is 0
    scores={"accuracy": 2 / 3, "macro_f1": (1 + 2 / 3 + 0) / 3},
    text=(
        "Compare a text that a model wrote with the reference that it was made from, and say how risky its "
        "inconsistencies with the reference are for clinical understanding, decisions and safety.\n\n"
        "# What the text was to be\nreport2impression\n\n# Reference\nFindings: clear lungs.\n\n"
        "# Text\nNo findings.\n\n# Risk\n"
        "A. Level 1 (No Risk)\nB. Level 2 (Low Risk)\nC. Level 3 (Moderate Risk)\nD. Level 4 (High Risk)\n\n"
        "List the errors first, each in a line. Then answer with the letter of the level of risk."
    ),
    images=0,
)
def medval(root):
    """Texts of two tasks with grades of 1, 3 and 4."""
    rows = [
        ("report2impression", "Findings: clear lungs.", "Clear.", "No findings.", "None", 1),
        ("report2impression", "Effusion on the left.", "Left effusion.", "Effusion on the right.", "Error 1: side", 3),
        ("dialogue2note", "No allergy.", "No allergy.", "Allergic to all.", "Error 1: allergy", 4),
    ]
    names = (
        "#",
        "id",
        "task",
        "input",
        "reference_output",
        "output",
        "physician_error_assessment",
        "physician_risk_grade",
    )
    root.mkdir(parents=True, exist_ok=True)
    with (root / "test.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows((number, number, *row) for number, row in enumerate(rows, 1))
