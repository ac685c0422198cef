"""The card of a table: what it tells, what it leaves to the authors, and that it claims nothing."""

from __future__ import annotations

import json

import pytest

from medimg_eval.errors import UsageError
from medimg_eval.results import build_table, disclose, load_runs, load_scores, write_card
from medimg_eval.results.cards.checklists import read_checklists
from medimg_eval.results.cards.manifest_facts import SECTIONS

ROWS = [(f"c{i}", f"p{i % 3}", "a", "dice", i / 10, "present") for i in range(6)]
TOLD = {
    "task_config": {
        "_target_": "medimg_eval.tasks.SegmentationTask",
        "labels": {"1": "liver"},
        "layout": {"_target_": "x.Folder", "root": "/home/me/data", "mapping": "/home/me/splits/map.json"},
        "card": {
            "source": "Ten livers | of one site",
            "licence": "CC BY 4.0",
            "truth": "two readers",
            "split": "fixed",
        },
    },
    "split_source": {"splits.json": "ab12"},
    "config": {"model": {"_target_": "x.Net", "checkpoint": "/home/me/weights.pt", "backbone": "org/net"}},
    "model_info": {"class": "Net", "parameters": 1234567, "checkpoint": "c0ffee", "backbone": "org/net"},
    "seed": 7,
    "provenance": {
        "python": "3.11.7",
        "versions": {"torch": "2.15.0"},
        "git": {"revision": "abc123", "changed_files": True},
        "command": ["/opt/program.py", "test", "task=liver", "data.root=/home/me/data"],
        "hardware": {"machine": "x86_64", "system": "Linux", "cpus": 2, "gpus": ["H100"]},
    },
    "timing": {"seconds": 12.34, "in_model": 10.0},
    "usage": [{"requests": 3}, {"requests": 4}],
    "judge": {"id": "J-1", "name": "Judge", "questions": 40, "without_verdict": 2, "identity": {"class": "Big"}},
}


@pytest.fixture
def told(write_run):
    attributes = {f"c{i}": {"sex": "fm"[i % 2]} for i in range(6)}
    table = build_table(load_runs([write_run("unet", ROWS, attributes, **TOLD)]), resamples=20)
    return disclose(table)


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ("source", "Ten livers | of one site"),
        ("licence", "CC BY 4.0"),
        ("access", "unknown"),
        ("split_sources", '{"splits.json": "ab12"}'),
        ("selection", '{"_target_": "x.Folder", "mapping": ".../map.json"}'),
        ("fingerprint", "f00d"),
        ("cases", "6 cases of 3 patients"),
        ("left_out", "0 of 6"),
        ("attributes", "sex: f 3, m 3"),
        ("resampled", "patients"),
        ("names", "Unet"),
        ("model", "Net"),
        ("checkpoint", "checkpoint weights.pt, content c0ffee"),
        ("parameters", "1,234,567"),
        ("settings", '{"checkpoint": "c0ffee", "backbone": "org/net"}'),
        ("fitting", "unknown"),
        ("baselines", "none"),
        ("output", "masks"),
        ("prompts", "none"),
        ("extraction", "none"),
        ("decoding", "none"),
        ("judge", 'Judge (J-1): 40 questions, 2 without verdict; {"class": "Big"}'),
        ("signature", "surface=surfel"),
        ("tests", "none"),
        ("undefined", "none"),
        ("failures", "0 of 6 cases"),
        ("command", "python -m medimg_eval test task=liver data.root=.../data"),
        ("seed", "7"),
        ("revision", "abc123, with files changed since"),
        ("software", "python 3.11.7, torch 2.15.0"),
        ("hardware", "Linux x86_64, 2 CPUs, H100"),
        ("when", "2026-11-21T10:00:00+00:00 to 2026-11-21T10:05:00+00:00"),
        ("timing", "12.3 s, 10.0 s of it in the model"),
        ("usage", '{"requests": 7}'),
        ("efficiency", "unknown"),
    ],
)
def test_a_fact_is_what_the_manifest_says_without_paths(told, fact, expected):
    assert told.told(fact) == expected


def test_metrics_come_with_direction_definition_and_source(told):
    assert told.told("metrics").startswith("Dice (higher is better): Dice similarity coefficient")
    assert "20 resamples of patients" in told.told("intervals")
    assert "[n too small]: " in told.told("intervals")


def test_what_differs_is_said_of_each_and_the_rest_once(write_run):
    folders = [write_run("a", ROWS, **TOLD), write_run("b", ROWS, **(TOLD | {"seed": 8}))]
    card = disclose(build_table(load_runs(folders), resamples=20))
    assert card.told("seed") == "A on Organs: 7; B on Organs: 8"
    assert card.told("hardware") == "Linux x86_64, 2 CPUs, H100"


def test_of_given_scores_nearly_all_is_unknown(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("case,model,metric,value\na,M,dice,0.5\nb,M,dice,0.7\n", encoding="utf-8")
    card = disclose(build_table(load_scores(file), resamples=20))
    known = {name for section in SECTIONS.values() for name in section if card.told(name) != "unknown"}
    assert known == {
        *("cases", "left_out", "attributes", "resampled", "names", "baselines", "metrics", "signature"),
        *("intervals", "tests", "results", "failures", "undefined", "warnings"),
    }
    item = next(one for one in read_checklists()[0].items if one.number == "7")
    assert card.answer(item) == "Unknown: source, reference, access, licence, fingerprint of cases and files."


def test_an_unfinished_run_has_a_card(write_run):
    card = disclose(build_table(load_runs([write_run("slow", status="running", cases=3, predicted=1)])))
    assert card.told("results") == "unknown"
    assert card.told("cases") == "3 cases"


def test_items_are_numbered_without_gaps_and_name_facts():
    claim, generative = read_checklists()
    assert [item.number for item in claim.items] == [str(number) for number in range(1, 45)]
    parts = [tuple(map(int, item.number.split("."))) for item in generative.items]
    assert parts == sorted(parts)
    assert {part for part, _ in parts} == {1, 2, 3, 5, 6}
    known = {name for section in SECTIONS.values() for name in section}
    for item in (*claim.items, *generative.items):
        assert item.facts or item.authors, item
        assert set(item.facts) <= known, item


@pytest.mark.parametrize(
    ("name", "rows", "last"),
    [
        ("stard_ai", 48, "40b"),
        ("tripod_ai", 52, "27c"),
        ("tripod_llm", 49, "19g"),
        ("metrics", 30, "30"),
        ("decide_ai", 38, "X"),
    ],
)
def test_further_checklists_are_whole_and_say_what_was_read(name, rows, last):
    (found,) = read_checklists([name])
    numbers = [item.number for item in found.items]
    assert len(set(numbers)) == rows
    assert numbers[-1] == last
    assert found.read
    known = {fact for section in SECTIONS.values() for fact in section}
    for item in found.items:
        assert item.facts or item.authors, item
        assert set(item.facts) <= known, item


def test_numbers_of_further_checklists_have_no_gaps():
    for name in ("stard_ai", "tripod_ai", "tripod_llm", "metrics", "decide_ai"):
        (found,) = read_checklists([name])
        heads = dict.fromkeys(item.number.rstrip("abcdefg") for item in found.items)
        arabic = sorted(int(one) for one in heads if one.isdigit())
        assert arabic == list(range(1, len(arabic) + 1)), name
    roman = [one for one in heads if not one.isdigit()]
    assert roman == ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"]


def test_a_card_fills_in_the_checklists_that_are_named(told, write_run, tmp_path):
    folder = write_run("net", ROWS, **TOLD)
    held = {"plan": "sha256:ab", "accepted": True, "endpoints": [{"metric": "dice", "lower": 0.2, "verdict": "met"}]}
    (folder / "acceptance.json").write_text(json.dumps(held), encoding="utf-8")
    table = build_table(load_runs([folder]), resamples=20)
    files = write_card(table, tmp_path / "paper", names=["stard_ai", "decide_ai"])
    text = files[0].read_text(encoding="utf-8")
    assert "## STARD-AI" in text
    assert "What of it was read: two transcripts" in text
    assert "CLAIM" not in text
    assert "accepted by plan sha256:ab; dice lower 0.2: met" in text
    said = json.loads(files[1].read_text(encoding="utf-8"))
    assert [one["name"] for one in said["checklists"]] == ["STARD-AI", "DECIDE-AI"]
    with pytest.raises(UsageError, match="got 'stard'; did you mean 'stard_ai'"):
        disclose(table, ["stard"])


def test_files_hold_every_item_and_escape_what_is_told(told, write_run, tmp_path):
    table = build_table(load_runs([write_run("net", ROWS, **TOLD)]), resamples=20)
    files = write_card(table, tmp_path / "paper")
    assert [file.name for file in files] == ["card.md", "card.json"]
    lines = files[0].read_text(encoding="utf-8").splitlines()
    assert r"| Source | Ten livers \| of one site |" in lines
    assert (
        "| 1 | The title names the study as one of AI, and the kind of technology |"
        in lines[lines.index("## CLAIM (2024 update)") + 6]
    )
    said = json.loads(files[1].read_text(encoding="utf-8"))
    assert said["facts"]["access"] == {"Organs": "unknown"}
    assert [len(checklist["items"]) for checklist in said["checklists"]] == [44, 23]
    assert said["checklists"][0]["items"][22]["facts"]["software"] == "python 3.11.7, torch 2.15.0"
    assert said["footnotes"] == list(told.footnotes)


def test_the_command_writes_the_forms_and_the_card(program, tmp_path):
    file = tmp_path / "scores.csv"
    lines = [f"c{i},{model},dice,{(i + shift) / 20}" for i in range(10) for model, shift in (("A", 0), ("B", 5))]
    file.write_text("\n".join(["case,model,metric,value", *lines]) + "\n", encoding="utf-8")
    done = program(
        "table",
        f"scores={file}",
        f"out={tmp_path / 'paper'}",
        "form=transposed",
        "marks=best",
        "percent=true",
        "resamples=50",
    )
    assert done.returncode == 0, done.stderr
    assert "Dice (%) ↑" in done.stdout
    assert "‡: worse than the best" in done.stdout
    written = {path.name for path in (tmp_path / "paper").iterdir()}
    assert written == {*(f"table.{end}" for end in ("md", "tex", "csv", "html", "xlsx")), "card.md", "card.json"}
    assert "‡" in json.loads((tmp_path / "paper" / "card.json").read_text(encoding="utf-8"))["facts"]["tests"]["table"]


@pytest.mark.parametrize(
    ("model", "prompts"),
    [("HuggingFaceVlm", "the usual of medimg-eval 0.1.0"), ("GivenTexts", "unknown")],
)
def test_prompts_of_given_answers_are_unknown(write_run, model, prompts):
    manifest = {
        "task_config": {"_target_": "medimg_eval.tasks.QuestionTask", "extraction": "cascade"},
        "model_info": {"class": model},
        "provenance": {"versions": {"medimg-eval": "0.1.0"}},
    }
    rows = [(f"c{i}", f"p{i}", "choice", "accuracy", float(i % 2), "right") for i in range(6)]
    card = disclose(build_table(load_runs([write_run("vlm", rows, **manifest)]), resamples=20))
    assert card.told("prompts") == card.told("decoding") == prompts
    assert card.told("extraction") == "cascade"
