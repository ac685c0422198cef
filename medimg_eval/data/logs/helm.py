"""HELM's run folders: requests with their replies, and statistics of each instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medimg_eval.data.logs.records import Log, LogRecord
from medimg_eval.data.tables import read_json

STATE, STATS, SPEC = "scenario_state.json", "per_instance_stats.json", "run_spec.json"
COUNTERS = (
    "num_",
    "finish_reason_",
    "logprob",
    "max_prob",
    "prompt_truncated",
    "inference_",
    "training_",
    "batch_size",
)
"""How statistics begin that say what a request cost, not whether its reply is right."""


def is_helm(folder: Path) -> bool:
    """Whether a folder is a run of HELM's."""
    return (folder / STATE).is_file()


def read_helm(folder: Path) -> Log:
    """Reads a run; perturbed copies of questions are left out, and counted."""
    state = read_json(folder / STATE)
    spec = read_json(folder / SPEC) if (folder / SPEC).is_file() else {}
    scores = _read_scores(folder / STATS)
    records: list[LogRecord] = []
    repeats: dict[str, int] = {}
    perturbed = 0
    for request in state["request_states"]:
        instance, result = request["instance"], request.get("result") or {}
        if instance.get("perturbation"):
            perturbed += 1
            continue
        case = str(instance["id"])
        trial = int(request.get("train_trial_index", 0))
        mapping: Mapping[str, str] = request.get("output_mapping") or {}
        right = [reference["output"]["text"] for reference in instance["references"] if "correct" in reference["tags"]]
        reference = right[0] if right else ""
        if mapping:
            reference = next((letter for letter, text in mapping.items() if text in right), reference)
        replies = [completion["text"] for completion in result.get("completions", [])]
        repeat = repeats.setdefault(case, -1) + 1
        repeats[case] = repeat
        records.append(
            LogRecord(
                case,
                replies[0] if replies else "",
                reference,
                instance["input"].get("text", ""),
                {letter: mapping[letter] for letter in ascii_uppercase if letter in mapping},
                repeat,
                scores.get((case, trial), {}),
                failure="" if result.get("success", True) and replies else str(result.get("error") or "no completion"),
            )
        )
    model = str((spec.get("adapter_spec") or {}).get("model") or folder.resolve().parent.name)
    notes = [f"{perturbed} perturbed copies of questions are left out"] if perturbed else []
    return Log(
        "HELM", folder, model.replace("/", "_"), str(spec.get("name", folder.name)).split(":")[0], records, notes
    )


def _read_scores(file: Path) -> dict[tuple[str, int], dict[str, float]]:
    if not file.is_file():
        return {}
    scores: dict[tuple[str, int], dict[str, float]] = {}
    for instance in read_json(file):
        if not instance.get("perturbation"):
            values: dict[str, Any] = {
                stat["name"]["name"]: stat["mean"]
                for stat in instance["stats"]
                if stat.get("count") and not stat["name"]["name"].startswith(COUNTERS)
            }
            scores.setdefault((str(instance["instance_id"]), int(instance.get("train_trial_index", 0))), {}).update(
                values
            )
    return scores
