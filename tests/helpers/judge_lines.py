"""What a judge was asked in a run, what it replied, and what that is worth."""

import json


def judge_lines(folder):
    """Lines of a run: `case`, `question` ("NAME/3" of a third text), `reply` where one was had, and `value`."""
    found = {}
    for line in _lines(folder / "evidence-0.jsonl"):
        if line["provider"] == "judge":
            case, slash, number = line["owner"].rpartition("/")
            about = (case, f"{line['topic']}/{number}") if slash else (line["owner"], line["topic"])
            found[about] = {"case": about[0], "question": about[1], "reply": line.get("value"), "key": line["key"]}
            found[about]["prompt"] = line["prompt"]
    for line in _lines(folder / "verdicts.jsonl"):
        about = line["case"], line["question"]
        found[about] = {**found.get(about, {}), "case": about[0], "question": about[1], "value": line["value"]}
    return list(found.values())


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
