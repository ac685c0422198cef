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
