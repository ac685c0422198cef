"""Benchmarks of agents: their tools on files in the authors' layouts, whole sessions, and the authors' own tools."""

import json
import random
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from agent_tools import Scripted, ask, call
from asking import Known, Says

import medimg_eval as me
from medimg_eval.errors import CaseError, UserError
from medimg_eval.metrics import get
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Key
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.lookups import KnowledgeLookup
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import AGENTS, answered, composed, task_of, worth
from tests.helpers.samples import ALL
from tests.helpers.samples.agents import RECORDED

assert ALL is not None


EACH = pytest.mark.parametrize("name", sorted(AGENTS))


@EACH
def test_the_authors_files_are_read_and_the_first_question_is_put_word_for_word(name, tmp_path):
    sample, task = AGENTS[name], task_of(name, tmp_path)
    cases = task.cases("test")
    assert [case.id for case in cases] == sample.cases
    assert len(task.read_images(cases[0])) == sample.images
    assert task.prompt(cases[0], task.read_images(cases[0])).text == sample.text


@pytest.mark.slow
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


def agent_of(name, root, changes=None, **settings):
    """The task of a sample with its tools' files below the root."""
    changes = changes or {}
    tools = {key: dict(one) for key, one in composed(name)["tools"].items()}
    for key, one in tools.items():
        one["file"] = str(root) + one["file"].removeprefix(composed(name)["layout"]["root"])
        one.update(changes.get(key, {}))
    return task_of(name, root, tools=tools, **settings)


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
    (reply, *_) = ask(agent_of("deeptumorvqa_v2_vision", tmp_path, {"crop_organ": {"shown": False}}), blind)
    assert "<inline_image>" in steps_of(reply)[0]["result"]
    assert {len(prompt.images) for prompt in blind.prompts} == {0}


def test_a_file_that_tools_look_into_must_be_there(tmp_path):
    task = agent_of("deeptumorvqa_v2_agent", tmp_path)
    (tmp_path / "tool_cache" / "benchmark_oracle_tool_cache.json").unlink()
    with pytest.raises(UserError, match=r"benchmark_oracle_tool_cache\.json is not there"):
        ask(task, Scripted(["A"]))


@pytest.mark.slow
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


class Steps(Scripted):
    """Says by case what it is told to."""

    def __init__(self, replies):
        super().__init__([""])
        self.replies = replies

    def generate(self, prompts, decoding):
        self.prompts += prompts
        return [self.replies[prompt.case_id] for prompt in prompts]


STEPS = {
    "0/1": say(("OCR", {"image": "image/a.png"})),  # right
    "0/2": say(("Calculator", {"expression": "5+7"})),  # other arguments
    "0/3": "It is 12 mm.",
    "1/1": say(("OCR", {"image": "image/a.png"})),  # another tool
    "1/2": "It is gout.",  # too early
    "1/3": say(("GoogleSearch", {"query": "tophi", "k": 1})),  # no answer
}


def scored(task, replies):
    found = {}
    for case, reply in zip(task.cases("test"), replies, strict=True):
        for row in task.score(case, reply):
            found.setdefault(row.metric, {})[case.id] = row.value
    return found


def test_medctas_steps_are_counted_as_its_denominators_are(tmp_path):
    task = agent_of("medcta_steps", tmp_path)
    found = scored(task, ask(task, Steps(STEPS)))
    assert found["step_kind_accuracy"] == {"0/1": 1, "0/2": 1, "0/3": 1, "1/1": 1, "1/2": 0, "1/3": 0}
    assert found["step_tool_accuracy"] == {"0/1": 1, "0/2": 1, "1/1": 0, "1/2": 0}  # of steps where a call was due
    assert found["step_argument_accuracy"] == {"0/1": 1, "0/2": 0, "1/1": 0, "1/2": 0}
    assert found["listed_answer"] == {"0/3": 1, "1/3": 0}


@pytest.mark.parametrize("calling", ["hermes", "react"])
def test_a_step_is_asked_for_after_all_that_was_recorded(tmp_path, calling):
    task = agent_of("medcta_steps", tmp_path, calling=calling)
    model = Steps(STEPS)
    ask(task, model)
    second, last = model.prompts[1], model.prompts[2]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]
    assert "image/a.png" in second.messages[2].text
    assert "5 mm and 7 mm" in second.messages[3].text
    told = second.messages[0].text
    assert ("OCR" in told, "Calculator" in told, "GoogleSearch" in told) == (True, True, False)
    assert "no more tools" in last.messages[-1].text  # GTA says when an answer is due
    free = agent_of("medcta_steps", tmp_path, calling=calling, offered="all", announced=False)
    model = Steps(STEPS)
    ask(free, model)
    assert "GoogleSearch" in model.prompts[1].messages[0].text
    assert "no more tools" not in model.prompts[2].messages[-1].text


def test_a_model_that_calls_tools_itself_is_given_recorded_calls(tmp_path):
    class Native(Steps):
        calls_tools = True

    model = Native(STEPS)
    ask(agent_of("medcta_steps", tmp_path), model)
    assert [tool.name for tool in model.prompts[1].tools] == ["OCR", "Calculator"]
    called, result = model.prompts[1].messages[-2:]
    assert (called.calls[0].name, called.calls[0].id) == ("OCR", result.call_id)
    assert model.prompts[2].tools == ()


def test_a_step_that_was_taken_is_not_asked_for_again(tmp_path):
    task, journal = agent_of("medcta_steps", tmp_path), StepJournal()
    first = ask(task, Steps(STEPS), journal)
    assert ask(task, Scripted(["never asked"]), journal) == first


SESSIONS = {
    "0": [say(("OCR", {"image": "image/a.png"})), say(("Calculator", {"expression": "7+5"})), "12 mm"],
    "1": [say(("GoogleSearch", {"query": "tophi", "k": 1})), "Gout"],
}


def test_medctas_route_is_told_where_that_is_asked_for(tmp_path):
    system = "The related files are at {files}\nCall these tools in this order: {route}"
    task = agent_of("medcta", tmp_path, template={"system": system, "user": "{question}"})
    told = [task.prompt(case, ()).messages[0].text.rpartition(": ")[2] for case in task.cases("test")]
    assert told == ["OCR, Calculator", "GoogleSearch, GoogleSearch"]
    assert "GoogleSearch" not in agent_of("medcta", tmp_path).prompt(task.cases("test")[1], ()).messages[0].text


def test_medctas_tools_give_what_was_recorded(tmp_path):
    class Talks(Steps):
        def generate(self, prompts, decoding):
            turns = [sum(message.role == "assistant" for message in prompt.messages) for prompt in prompts]
            return [self.replies[prompt.case_id][turn] for prompt, turn in zip(prompts, turns, strict=True)]

    task = agent_of("medcta", tmp_path)
    replies = ask(task, Talks(SESSIONS))
    assert steps_of(replies[0])[0]["result"] == "5 mm and 7 mm"
    assert "no call of Calculator with these arguments" in steps_of(replies[0])[1]["error"]["message"]
    found = scored(task, replies)
    assert found["listed_answer"] == {"0": 1, "1": 1}
    assert found["tool_recall"] == {"0": 1, "1": 1 / 2}
    assert found["argument_accuracy"] == {"0": 1 / 2, "1": 1 / 2}


def gta_evaluator(mode):
    path = require_clone("open-compass/GTA") / "opencompass" / "opencompass" / "datasets" / "gta_bench.py"
    registry = SimpleNamespace(register_module=lambda: lambda made: made)
    names = load_functions(
        path, "GTABenchEvaluator", json=json, re=re, np=np, BaseEvaluator=object, ICL_EVALUATORS=registry
    )
    made = object.__new__(names["GTABenchEvaluator"])
    made.mode = mode
    return made


def as_theirs(reply):
    said = []
    for step in reply.trace:
        if step["kind"] == "model" and step["calls"]:
            function = {key: step["calls"][0][key] for key in ("name", "arguments")}
            said.append({"role": "assistant", "tool_calls": [{"type": "function", "function": function}]})
        elif step["kind"] == "model":
            said.append({"role": "assistant", "content": step["answer"]})
    return said


@pytest.mark.slow
def test_steps_and_classes_are_counted_as_gta_counts_them(tmp_path):
    draw = random.Random(0)  # noqa: S311 - no secret
    calls = [(one["function"]["name"], one["function"]["arguments"]) for item in RECORDED.values()
             for message in item["dialogs"] for one in message.get("tool_calls", ())]  # fmt: skip
    choices = ["It is gout.", "12 mm", "12 cm", "", *(say(one) for one in calls), say(("Plot", {}))]
    steps, gold = agent_of("medcta_steps", tmp_path / "steps"), list(RECORDED.values())
    keys = [json.dumps(item["gt_answer"]) for item in gold]
    due = [[message for message in item["dialogs"] if message["role"] == "assistant"] for item in gold]
    for _ in range(20):
        replies = ask(steps, Steps({case.id: draw.choice(choices) for case in steps.cases("test")}))
        said = [[as_theirs(reply)[0] for reply in replies[:3]], [as_theirs(reply)[0] for reply in replies[3:]]]
        theirs = gta_evaluator("every_with_gt").score(said, keys, due)
        ours = {name: 100 * np.mean(list(values.values())) for name, values in scored(steps, replies).items()}
        assert ours["step_kind_accuracy"] == pytest.approx(theirs["inst_align"])
        assert ours["step_tool_accuracy"] == pytest.approx(theirs["tool_acc"])
        assert ours["step_argument_accuracy"] == pytest.approx(theirs["arg_acc"])
        assert ours["listed_answer"] == pytest.approx(theirs["answer_acc"])
    whole = agent_of("medcta", tmp_path / "whole", limits={"turns": 4, "repeated": None})
    cases = whole.cases("test")
    for _ in range(20):
        replies = ask(whole, Scripted([draw.choice(choices[4:]) for _ in range(3)] + ["gout 12 mm"]))
        theirs = gta_evaluator("every").score([[as_theirs(reply)] for reply in replies], keys, [[one] for one in due])
        rows = [
            (n, row.metric, row.label, row.value)
            for n, case in enumerate(cases)
            for row in whole.score(case, replies[n])
        ]
        for ours, name in (("perception_f1", "p_f1"), ("operation_f1", "o_f1"), ("logic_f1", "l_f1")):
            needs = [row for row in rows if row[1] in get(ours).needs]
            case, metric, label, value = (np.array(column) for column in zip(*needs, strict=True))
            table = ScoreTable(case, metric, label, value, np.full(len(value), "ok"), {}, len(cases), {})
            assert 100 * get(ours).function(table) == pytest.approx(theirs[name])


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


class Patient(Steps):
    """Says how often it was asked, and what."""

    def generate(self, prompts, decoding):
        self.prompts += prompts
        return [f"{'RESULTS: white' if 'measurement' in prompt.messages[0].text else 'I cough'}" for prompt in prompts]

    def check_ready(self):
        pass


def clinic(root, name="agentclinic_medqa", turns=3, **settings):
    patient = Patient({})
    return task_of(name, root, patient=patient, turns=turns, **settings), patient


def see(task, *script):
    """The doctor's model, and the replies of all visits."""

    class Doctor(Steps):
        def generate(self, prompts, decoding):
            self.prompts += prompts
            number = len(self.prompts) // len(task.cases("test")) - 1
            return [script[min(number, len(script) - 1)]] * len(prompts)

    doctor = Doctor({})
    prompts = [task.prompt(case, task.read_images(case)) for case in task.cases("test")]
    return doctor, task.ask(doctor, prompts)


def test_a_doctor_hears_patient_and_reader_as_agentclinic_tells_them(tmp_path):
    task, patient = clinic(tmp_path)
    doctor, replies = see(task, "Since when?", "REQUEST TEST: X-ray", "DIAGNOSIS READY: Pneumonia")
    first, second, third = doctor.prompts[::2]
    assert "only allowed to ask 3 questions total before you must make a decision. You have asked 0" in first.text
    assert "You have asked 2 questions so far" in third.text
    assert second.messages[-1].text == (
        "\nHere is a history of your dialogue: \n\nSince when?\n\n\n Here was the patient response: "
        "I coughNow please continue your dialogue\nDoctor: "
    )
    assert (
        "RESULTS: whiteThis is the final question. Please provide a diagnosis.\nNow please" in third.messages[-1].text
    )
    asked, tested = patient.prompts[::2]
    assert "'Symptoms': ['a cough']" in asked.messages[0].text
    assert "'X-ray': 'white'" in tested.messages[0].text
    assert "I cough" in tested.messages[1].text  # the reader has heard the patient
    assert [step.get("agent") for step in replies[0].trace] == ["doctor", "patient", "doctor", "reader", "doctor", None]
    (case, _) = task.cases("test")
    packed = replies[0].as_record()
    assert task.told_to_judge(case, packed).text == "DIAGNOSIS READY: Pneumonia"
    scores = {row.metric: row.value for row in task.score(case, replies[0])}
    assert (scores["answer_contains_reference"], scores["model_steps"], scores["protocol_failure"]) == (1, 3, 0)


def test_no_diagnosis_after_the_last_turn_is_no_answer(tmp_path):
    task, patient = clinic(tmp_path)
    _, (reply, _) = see(task, "Could it be Pneumonia?")
    scores = {row.metric: row.value for row in task.score(task.cases("test")[0], reply)}
    assert (reply.text, scores["unanswered"], scores["protocol_failure"]) == ("", 1, 1)
    assert len(patient.prompts) == 2 * 2  # after the last turn of each nobody is asked


def test_images_are_shown_always_or_in_the_turn_after_they_were_requested(tmp_path):
    for on_request, shown in ((False, [1, 1, 1]), (True, [0, 1, 0])):
        task, _ = clinic(tmp_path, "agentclinic_nejm", images_on_request=on_request)
        doctor, _ = see(task, "REQUEST IMAGES", "Hm.")
        assert [len(prompt.images) for prompt in doctor.prompts] == shown


def test_a_bias_is_told_and_its_name_is_checked(tmp_path):
    task, patient = clinic(tmp_path, bias={"doctor": "recency", "patient": "race"})
    doctor, _ = see(task, "Since when?")
    assert "you learned that a doctor with similar symptoms" in doctor.prompts[0].text
    assert "a particular race and you do not trust" in patient.prompts[0].text
    assert "doctor biased by recency" in task.signature()
    with pytest.raises(UserError, match="tiredness"):
        clinic(tmp_path, bias={"doctor": "tiredness"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_a_visit_is_told_as_agentclinics_agents_tell_it(tmp_path):
    path = require_clone("SamuelSchmidgall/AgentClinic") / "agentclinic.py"
    heard = []

    def query_model(backend, prompt, system, image_requested=False, scene=None):
        heard.append((system, prompt))
        return next(script) if backend == "doctor" else {"patient": "I cough", "reader": "RESULTS: white"}[backend]

    names = load_functions(
        path, "ScenarioMedQA", "PatientAgent", "DoctorAgent", "MeasurementAgent", query_model=query_model
    )
    task, patient = clinic(tmp_path, bias={"doctor": "recency", "patient": "race"})
    record = json.loads((tmp_path / "agentclinic_medqa.jsonl").read_text().splitlines()[0])
    scenario, lines = (
        names["ScenarioMedQA"](record),
        ["Since when?", "REQUEST TEST: X-ray", "DIAGNOSIS READY: Pneumonia"],
    )
    script, said = iter(lines), ""
    reader = names["MeasurementAgent"](scenario, "reader")
    actor = names["PatientAgent"](scenario, "patient", "race")
    theirs = names["DoctorAgent"](scenario, "doctor", 3, "recency")
    for number in range(3):
        said += "This is the final question. Please provide a diagnosis.\n" if number == 2 else ""
        words = theirs.inference_doctor(said)
        if "READY" in words:
            break
        if "REQUEST TEST" in words:
            said = reader.inference_measurement(words)
            actor.add_hist(said)
        else:
            said = actor.inference_patient(words)
            reader.add_hist(said)
    doctor, _ = see(task, *lines)
    ours = [
        prompt
        for turn in zip(doctor.prompts[::2], [*patient.prompts[::2], None], strict=True)
        for prompt in turn
        if prompt
    ]
    told = [(prompt.messages[0].text, prompt.messages[1].text) for prompt in ours]
    # Findings and tests stand one after the other with us, in one object with them.
    assert [told[place] for place in (0, 1, 2, 4)] == [heard[place] for place in (0, 1, 2, 4)]
    assert told[3][1] == heard[3][1]


@pytest.mark.slow
def test_healthbench_is_judged_criterion_by_criterion_to_its_table(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))

    class Grader(VisionLanguageModel):
        """Finds a criterion met whose words are in the answer."""

        def generate(self, prompts, decoding):
            form = re.compile(r"# Answer\n(.*?)\n\n# Rubric item\n\[(-?\d+)\]", re.DOTALL)
            words = {"5": "help", "3": "signs", "-4": "Wait"}
            met = [words[points] in answer for prompt in prompts for answer, points in form.findall(prompt.text)]
            return [json.dumps({"explanation": "", "criteria_met": one}) for one in met]

    task = task_of("healthbench", tmp_path / "data")
    (first, second) = task.cases("test")
    assert [message.role for message in task.prompt(first, ()).messages] == ["user", "assistant", "user"]
    model = Says({"a1": "Call for help.", "b2": "Wait."}, str(tmp_path / "asked"))
    run = me.test(task, model, judge=Grader(), identity="grader", runs=tmp_path / "runs")
    # 5 of 8 points and -4 of 8: the mean is 0.0625; of accuracy 5 / 5 and -4 / 5
    assert run.summary.set_index("metric")["value"]["rubric_total"] == pytest.approx((5 / 8 - 4 / 8) / 2)
    tags = run.scores[run.scores["metric"] == "rubric_tags"].set_index(["case", "label"])["value"]
    assert tags["a1", "axis:accuracy"] == 1.0
    assert tags["b2", "axis:accuracy"] == pytest.approx(-4 / 5)
    with pytest.raises(CaseError, match="ends with the user's"):
        bad = replace(second, target=Known(Key("x", {"history": [{"role": "assistant", "content": "Hi."}]})))
        task.prompt(bad, ())
