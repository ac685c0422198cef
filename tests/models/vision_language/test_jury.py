"""A jury as judge: what is asked, kept and made of it; how far its judges agree, and what they cost."""

import json

import pytest
from asking import Quiz, Says
from omegaconf import OmegaConf

import medimg_eval as me
from medimg_eval.case import Prompt
from medimg_eval.commands import agree
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.judges import read_ballots
from medimg_eval.models import Jury, VisionLanguageModel
from medimg_eval.question import Decoding, Message, Turn, Usage
from medimg_eval.results import calibration_table, jury_table, numbers_of, rated_cases, read_ballots_file, read_verdicts
from medimg_eval.tasks import QuestionTask

JUDGE = {"points": {"prompt": {"user": "{question} {output}"}, "pattern": r"(\d+)"}}
RIGHT = {"points": {**JUDGE["points"], "values": {"1": 1, "0": 0}}}


class Points(VisionLanguageModel):
    """Gives points by the number in an answer, by the repeat, and by how strict it is."""

    file_arguments = ()

    def __init__(self, add=0, spread=0, cost=None):
        self.add, self.spread, self.cost, self.asked = add, spread, cost, []

    def generate(self, prompts, decoding):
        self.asked.append((len(prompts), decoding.seed, decoding.temperature))
        numbers = [int(prompt.messages[-1].text.split()[-1]) for prompt in prompts]
        points = [max(0, number + self.add + self.spread * (decoding.seed % 2)) for number in numbers]
        return [Turn(str(one), usage=Usage(input=7, output=2, cost=self.cost)) for one in points]


def prompts(*numbers):
    return [Prompt(f"c{n}", (), messages=(Message("user", (f"How many? {n}",)),)) for n in numbers]


def test_every_judge_is_asked_as_often_as_was_said_and_each_ballot_is_kept():
    strict, kind = Points(-1), Points(1, cost=0.5)
    jury = Jury({"strict": strict, "kind": kind}, repeats=2, temperature=0.7)
    replies = jury.generate(prompts(3, 5), Decoding(seed=4))
    ballots = read_ballots(replies[1])
    assert [(one.judge, one.repeat, one.reply) for one in ballots] == [
        ("strict", 0, "4"), ("strict", 1, "4"), ("kind", 0, "6"), ("kind", 1, "6"),
    ]  # fmt: skip
    assert strict.asked == kind.asked == [(2, 4, 0.7), (2, 5, 0.7)]
    assert ballots[2].usage == {"input": 7, "output": 2, "cost": 0.5}
    assert (replies[0].usage.input, replies[0].usage.output, replies[0].usage.cost) == (28, 8, None)


def test_a_judge_alone_is_asked_as_the_question_says():
    judge = Points()
    Jury({"only": judge}).generate(prompts(1), Decoding())
    assert judge.asked == [(1, 0, 0.0)]


def test_what_is_no_jury_is_refused():
    for settings, message in [
        ({"judges": {}}, "holds by name"),
        ({"judges": {"a": Points()}, "repeats": 0}, "at least 1"),
        ({"judges": {"a": "gpt"}}, "no model that writes"),
        ({"judges": {"a": Points()}, "repeats": 3}, "set judge.temperature"),
    ]:
        with pytest.raises(UsageError, match=message):
            Jury(**settings)


def test_a_jury_leaves_the_machine_where_one_of_its_judges_does():
    away = Points()
    away.remote = True
    assert Jury({"a": Points(), "b": away}).remote
    assert not Jury({"a": Points()}).remote


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A run of thirty answers, 0 to 29, judged by a jury of three."""
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))

    def run(questions=JUDGE, number=30, **judges):
        items = [{"id": f"q{n}", "text": "How many?", "kind": "open", "right": "x"} for n in range(number)]
        task = QuestionTask(name="quiz", layout=Quiz(items), judge=questions, metrics=["judged@points"])
        jury = Jury(judges, repeats=2, temperature=0.5)
        model = Says({f"q{n}": str(n % 10) for n in range(number)}, str(tmp_path / "asked"))
        return me.test(task, model, judge=jury, runs=tmp_path / "runs")

    return run


@pytest.mark.slow
def test_a_run_is_judged_by_a_jury_and_each_of_its_judges_can_be_compared(judged, tmp_path):
    run = judged(strict=Points(-1), even=Points(), kind=Points(1, spread=3, cost=0.25))
    verdicts = [json.loads(line) for line in (run.folder / "verdicts.jsonl").read_text().splitlines()]
    value = {line["case"]: line["value"] for line in verdicts}
    assert value["q5"] == pytest.approx((4 + 5 + 7.5) / 3)
    ballots = read_ballots_file(run.folder)
    assert [(one.judge, len(one.cases)) for one in ballots] == [("strict", 30), ("even", 30), ("kind", 30)]
    assert ballots[2].cases["q5"] == [6.0, 9.0]
    assert ballots[2].costs == {"input": 420, "output": 120, "cost": 15.0}

    found = jury_table(ballots, "Quiz", resamples=30).frame().set_index(["judge", "statistic"])["value"]
    assert (found["strict", "unanimous"], found["strict", "alpha"]) == (1.0, 1.0)
    assert found["kind", "unanimous"] == 0.0
    assert found["all judges", "unanimous"] == 0.0
    assert found["kind", "cost"] == 15.0
    assert ("strict", "cost") not in found.index

    labels = tmp_path / "labels.csv"
    labels.write_text("case,human\n" + "".join(f"q{n},{n % 10}\n" for n in range(24)))
    compared = {one.judge.partition("/")[2]: one for one in read_verdicts(run.folder, labels)}
    assert set(compared) == {"", "strict", "even", "kind"}
    assert (compared["even"].said == compared["even"].human).all()

    config = OmegaConf.create(
        {"run": str(run.folder), "human": str(labels), "column": None, "judge": None, "calibrate": True,
         "out": str(tmp_path / "out"), "resamples": 20, "level": 0.95, "seed": 0}
    )  # fmt: skip
    agree.run(config)
    assert "Corrected mean" in (tmp_path / "out" / "agree_3.md").read_text()
    assert "Krippendorff" in (tmp_path / "out" / "agree_2.md").read_text()
    agree.run(OmegaConf.merge(config, {"human": None, "out": str(tmp_path / "jury")}))
    assert "beside" in (tmp_path / "jury" / "agree.md").read_text()


@pytest.mark.slow
def test_right_or_wrong_is_what_most_of_the_judges_say(judged):
    run = judged(RIGHT, 4, a=Points(), b=Points(1), c=Points(1))
    verdicts = [json.loads(line) for line in (run.folder / "verdicts.jsonl").read_text().splitlines()]
    # of 0 they say 0, 1, 1; of 1 they say 1 and twice 2, which is no verdict; of 2 and 3 nobody says a verdict
    assert [line["value"] for line in verdicts] == [1.0, 1.0, None, None]


def write_run(tmp_path, said, human):
    (tmp_path / "verdicts.jsonl").write_text(
        "".join(json.dumps({"case": f"c{n}", "judge": "j", "question": "q", "value": value}) + "\n"
                for n, value in enumerate(said))
    )  # fmt: skip
    labels = tmp_path / "labels.csv"
    labels.write_text("case,human\n" + "".join(f"c{n},{value}\n" for n, value in enumerate(human)))
    return rated_cases(read_verdicts(tmp_path, labels), numbers_of(tmp_path))


def test_shares_are_corrected_by_how_often_the_judge_errs(tmp_path):
    # Of 20 that are right the judge passes 18, of 20 that are wrong it passes 4; of 60 more it passes 30.
    said = [1] * 18 + [0] * 2 + [1] * 4 + [0] * 16 + [1] * 30 + [0] * 30
    (rated,) = write_run(tmp_path, [float(one) for one in said], [1] * 20 + [0] * 20)
    frame = calibration_table([rated], "t", resamples=200).frame().set_index("statistic")
    assert frame["value"].to_dict() == pytest.approx(
        {"judge_mean": 0.52, "bias": 0.05, "error": 0.15, "sensitivity": 0.9, "specificity": 0.8,
         "corrected": (0.52 + 0.8 - 1) / 0.7}
    )  # fmt: skip
    assert frame.loc["corrected", "low"] < frame.loc["corrected", "value"] < frame.loc["corrected", "high"]


@pytest.mark.slow
def test_a_generous_judge_is_calibrated_on_cases_that_the_map_never_saw(tmp_path):
    truth = [n % 5 for n in range(200)]
    (rated,) = write_run(tmp_path, [min(5.0, 2.0 + 0.5 * value) for value in truth], truth[:80])
    found = calibration_table([rated], "t", resamples=50).frame().set_index("statistic")["value"]
    assert found["bias"] == pytest.approx(1.0)
    assert found["held_out_error"] == pytest.approx(0.0, abs=1e-9)
    assert found["corrected"] == pytest.approx(2.0)  # the mean of people on all cases, of which they rated 80


def test_a_map_cannot_learn_noise_from_the_cases_that_judge_it(tmp_path):
    labels = [(n * 7919) % 11 for n in range(100)]  # which have nothing to do with what is said
    (rated,) = write_run(tmp_path, [float((n * 104729) % 13) for n in range(100)], labels)
    found = calibration_table([rated], "t", resamples=20).frame().set_index("statistic")["value"]
    assert found["held_out_error"] > 2.5  # the mean absolute deviation of 0 to 10 is 2.7
    assert found["corrected"] == pytest.approx(sum(labels) / 100, abs=1e-9)


def test_too_few_rated_cases_calibrate_nothing(tmp_path):
    with pytest.raises(UserError, match="20 rated cases or more"):
        write_run(tmp_path, [1.0] * 30, [1] * 19)
