"""Samples of benchmarks of agents."""

from tests.helpers.catalogue import agents, picture, write_json
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


@agents(
    "deeptumorvqa_v2_agent",
    cases=["bench_1", "bench_2", "bench_3", "bench_4", "bench_5"],
    replies={"bench_1": "Answer: B", "bench_2": "A", "bench_3": "<think>A?</think>D"},
    scores={"accuracy": 2 / 5, "unanswered": 2 / 5},
    authors={"accuracy": 1 / 5, "unanswered": 2 / 5},
    text=ASKED,
    images=0,
)
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


@agents(
    "deeptumorvqa_v2_vision",
    cases=["bench_1", "bench_2", "bench_3", "bench_4", "bench_5"],
    replies={"bench_1": "Answer: B", "bench_2": "A", "bench_3": "<think>A?</think>D"},
    scores={"accuracy": 2 / 5, "unanswered": 2 / 5},
    authors={"accuracy": 1 / 5, "unanswered": 2 / 5},
    text=ASKED,
    images=0,
)
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
