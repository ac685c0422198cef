"""Benchmarks of agents: their tools on files in the authors' layouts, whole sessions, and the authors' own tools."""

import json

import pytest
from agent_tools import Scripted, ask, call

from medimg_eval.errors import UserError
from medimg_eval.tools.lookups import KnowledgeLookup
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import AGENTS, answered, composed, task_of, worth
from tests.helpers.samples import ALL

assert ALL is not None


EACH = pytest.mark.parametrize("name", sorted(AGENTS))


@EACH
def test_the_authors_files_are_read_and_the_first_question_is_put_word_for_word(name, tmp_path):
    sample, task = AGENTS[name], task_of(name, tmp_path)
    cases = task.cases("test")
    assert [case.id for case in cases] == sample.cases
    assert len(task.read_images(cases[0])) == sample.images
    assert task.prompt(cases[0], task.read_images(cases[0])).text == sample.text


@EACH
def test_known_answers_are_worth_what_was_worked_out_by_hand(name, tmp_path):
    sample = AGENTS[name]
    for extraction, wanted in {"cascade": sample.scores, "authors": sample.authors}.items():
        if wanted:
            task = task_of(name, tmp_path / "data", extraction=extraction, metrics=list(wanted))
            found = worth(answered(task, sample.replies, tmp_path / extraction))
            assert {metric: found[metric] for metric in wanted} == pytest.approx(dict(wanted), nan_ok=True)


def say(*calls):
    return "".join(f"<tool_call>{json.dumps(call(name, **arguments))}</tool_call>" for name, arguments in calls)


def agent_of(name, root, **changes):
    """The task of a sample with its tools' files below the root."""
    tools = {key: dict(one) for key, one in composed(name)["tools"].items()}
    for key, one in tools.items():
        one["file"] = str(root) + one["file"].removeprefix(composed(name)["layout"]["root"])
        one.update(changes.get(key, {}))
    return task_of(name, root, tools=tools)


def steps_of(reply):
    return [step for step in reply.trace if step["kind"] == "tool"]


def test_deeptumorvqas_tools_answer_from_the_cache_of_the_patient(tmp_path):
    liver = {"target": "liver", "measurement_type": "volume_cm3"}
    script = [
        say(("segment_organ", {"target": "liver"}), ("measure", liver)),
        say(("measure", liver | {"measurement_type": "mean_hu"}), ("measure", liver | {"measurement_type": "weight"})),
        say(("lookup_medical_knowledge", {"query": "normal HU"})),
        say(("segment_organ", {"target": "liver"})),
        say(("segment_organ", {"target": "spleen"})),  # the fifth reply has no tools any more
    ]
    first, second, *_ = ask(agent_of("deeptumorvqa_v2_agent", tmp_path), Scripted(script))
    results = [json.loads(step["result"]) if "error" not in step else step["error"] for step in steps_of(first)]
    assert results[0] == {"mask_found": True, "voxel_count": 9}
    assert results[1] == {"value": 1500.5, "unit": "cm3"}
    assert "no result for mean_hu; there are volume_cm3" in results[2]["message"]
    assert results[3]["type"] == "arguments"
    assert [one["text"] for one in results[4]["results"]] == ["Livers have 60 HU.", "Spleens are small."]  # 4 and 2
    assert results[6]["type"] == "withdrawn"
    assert first.trace[-1]["reason"] == "turns"
    assert steps_of(second)[0]["error"]["message"].endswith("there are ")  # of another patient nothing was segmented


def test_deeptumorvqas_reference_tools_are_a_set(tmp_path):
    task = agent_of("deeptumorvqa_v2_agent", tmp_path)
    (case, *_) = task.cases("test")
    (reply, *_) = ask(task, Scripted([say(("measure", {"target": "liver", "measurement_type": "volume_cm3"})), "B"]))
    scores = {row.metric: row.value for row in task.score(case, reply)}
    assert (scores["tool_precision"], scores["tool_recall"], scores["accuracy"]) == (1, 1 / 2, 1)


def test_deeptumorvqas_pictures_are_seen_unless_the_authors_client_takes_them_out(tmp_path):
    script = [say(("crop_organ", {"organ": "kidney_left"}), ("crop_organ", {"organ": "../x"})), "B"]
    model = Scripted(script)
    (reply, *_) = ask(agent_of("deeptumorvqa_v2_vision", tmp_path), model)
    assert json.loads(steps_of(reply)[0]["result"]) == {
        "organ_queried": "kidney_left",
        "organ_localized": "left_kidney",
    }
    assert "there are left_kidney, liver, liver_spleen" in steps_of(reply)[1]["error"]["message"]
    assert max(len(prompt.images) for prompt in model.prompts) == 1
    blind = Scripted(script)
    (reply, *_) = ask(agent_of("deeptumorvqa_v2_vision", tmp_path, crop_organ={"shown": False}), blind)
    assert "<inline_image>" in steps_of(reply)[0]["result"]
    assert {len(prompt.images) for prompt in blind.prompts} == {0}


def test_a_file_that_tools_look_into_must_be_there(tmp_path):
    task = agent_of("deeptumorvqa_v2_agent", tmp_path)
    (tmp_path / "tool_cache" / "benchmark_oracle_tool_cache.json").unlink()
    with pytest.raises(UserError, match=r"benchmark_oracle_tool_cache\.json is not there"):
        ask(task, Scripted(["A"]))


def test_what_tools_look_into_decides_their_version_and_not_where_it_lies(tmp_path):
    for name in ("one", "two"):
        AGENTS["deeptumorvqa_v2_agent"].write(tmp_path / name)
    versions = [agent_of("deeptumorvqa_v2_agent", tmp_path / name).asked["tool_versions"] for name in ("one", "two")]
    assert versions[0] == versions[1]
    file = tmp_path / "two" / "tool_cache" / "tools.py"
    task = agent_of("deeptumorvqa_v2_agent", tmp_path / "two")
    file.write_text(file.read_text().replace("small", "large"))
    assert task.asked["tool_versions"] == versions[0]  # read when the task was made
    moved = agent_of("deeptumorvqa_v2_agent", tmp_path / "three")
    assert moved.asked["tool_versions"] == versions[0]


def test_keywords_with_capitals_are_never_found_as_the_authors_have_it(tmp_path):
    AGENTS["deeptumorvqa_v2_agent"].write(tmp_path)
    file = str(tmp_path / "tool_cache" / "tools.py")
    query = "HU of the organ"
    ours, theirs = (KnowledgeLookup(file, any_case=any_case) for any_case in (True, False))
    assert ours._score(ours.entries[1]["keywords"], query.lower()) == 4  # HU and organ, each in it and a word of it
    assert theirs._score(theirs.entries[1]["keywords"], query.lower()) == 2
    assert ours("nothing")["results"][0]["text"] == "No relevant medical knowledge found."


@pytest.mark.slow
def test_knowledge_is_found_as_the_authors_tool_finds_it():
    path = require_clone("Schuture/DeepTumorVQA") / "src" / "deeptumorvqa" / "eval" / "tools.py"
    theirs: dict = {"__name__": "tools"}
    exec(compile(path.read_text(), str(path), "exec"), theirs)  # noqa: S102
    ours, authors = KnowledgeLookup(str(path), any_case=False), theirs["KnowledgeLookupTool"]()
    words = sorted({word for entry in theirs["KNOWLEDGE_BASE"] for word in entry["keywords"]})
    queries = [" ".join(words[place::step]) for step in (7, 31, 61) for place in range(step)] + words + ["", "x"]
    assert len(ours.entries) == 27
    assert all(ours(query) == authors.execute(query=query) for query in queries)
