"""The pages of a report as far as they stand on Score rows: lists, pieces, the choice of cases, the folder."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.report import Report, by_task, check_wanted
from medimg_eval.results.report.folder import script
from medimg_eval.results.table.table import named_runs

NAN = float("nan")


@pytest.fixture
def cases(write_run, three_cases):
    """Three cases under two models, of which the second has no c3 and is worse on c1."""
    worse = [
        ("c1", "p1", "a", "dice", 0.2, "present"),
        ("c1", "p1", "b", "dice", 0.4, "hallucinated"),
        ("c2", "p2", "a", "dice", 0.9, "present"),
    ]
    attributes = {"c1": {"site": "north"}, "c2": {"site": "south"}, "c3": {}}
    runs = load_runs([write_run("first", three_cases, attributes), write_run("second", worse, attributes)])
    (found,) = by_task(runs, named_runs(runs))
    return found


def read_script(text):
    """What the page makes of a script: the JSON in the text that stands between quotes."""
    quoted = re.fullmatch(r"report\.take\('[\w/-]+','(.*)'\)\n", text, re.DOTALL)[1]
    unescaped = re.sub(r"\\(x3c|.)", lambda found: "<" if found[1] == "x3c" else found[1], quoted)
    return json.loads(unescaped)


def test_the_list_has_the_mean_over_labels_of_each_model_metric_and_case(cases):
    listing = cases.listing()
    assert listing["cases"] == ("c1", "c2", "c3")
    assert [one["title"] for one in listing["metrics"]] == ["Dice", "HD95 (mm)"]
    assert listing["values"][0][0] == [0.8, 0.6, 0.2]
    assert listing["values"][1][0] == [0.3, 0.9, None]
    assert listing["values"][1][1] == [None, None, None]
    assert listing["patients"] == ["p1", "p2", "p3"]
    (site,) = listing["attributes"]
    assert [site["values"][code] for code in site["codes"]] == ["north", "south", ""]


def test_the_worst_status_among_its_labels_stands_for_a_case(cases):
    listing = cases.listing()
    shown = [[listing["statuses"][code] if code >= 0 else "" for code in codes] for codes in listing["status"]]
    assert shown == [["present", "present", "missed"], ["hallucinated", "present", ""]]


def test_pieces_hold_every_row_of_every_case(cases):
    (rows,) = cases.pieces()
    assert rows[0][1] == [["a", "Dice", 0.2, "present", 0], ["b", "Dice", 0.4, "hallucinated", 0]]
    assert rows[2][1] == []
    assert ["b", "Dice", None, "absent", 0] in rows[1][0]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["all"], {"c1", "c2", "c3"}),
        (["none"], set()),
        (["worst:1"], {"c3", "c1"}),  # of the first model, and of the second, which has no c3
        (["best:1"], {"c1", "c2"}),
        (["median:1"], {"c2", "c1"}),
        (["c2"], {"c2"}),
        (["c2", "worst:9"], {"c1", "c2", "c3"}),
    ],
)
def test_cases_are_chosen_by_each_models_own_values(cases, wanted, expected):
    check_wanted(wanted, [cases])
    assert {cases.cases[place] for place in cases.chosen(wanted)} == expected


@pytest.mark.parametrize("wanted", ["worst", "worst:x", "c9", "wurst:3"])
def test_a_choice_that_means_nothing_is_refused(cases, wanted):
    with pytest.raises(UsageError, match=re.escape(wanted)):
        check_wanted([wanted], [cases])


def test_by_a_metric_that_falls_the_largest_is_the_worst(write_run):
    rows = [(f"c{n}", f"p{n}", "a", "hd95", float(n), "present") for n in range(4)]
    runs = load_runs([write_run("one", rows)])
    (found,) = by_task(runs, named_runs(runs))
    assert [found.cases[place] for place in found.chosen(["worst:2"])] == ["c3", "c2"]


def test_without_scores_of_cases_there_is_no_report(write_run):
    runs = load_runs([write_run("one", status="failed")])
    with pytest.raises(UserError, match="nothing to report"):
        by_task(runs, named_runs(runs))


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_script_holds_what_it_was_given_and_nothing_that_could_end_it(value):
    text = script("data/0", value)
    assert "<" not in text
    assert text.isascii()
    assert text.count("\n") == 1
    assert read_script(text) == json.loads(json.dumps(_known(value)))


def _known(value):
    """The value as JSON can hold it."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    return [_known(one) for one in value] if isinstance(value, list) else value


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run JavaScript with")
def test_javascript_reads_what_a_script_holds(tmp_path):
    value = {"__proto__": "</script>", "a": ["'\\", "\u2028\u2029", "\ud800", "\n\r\t`${1}", '"'], "n": [1.5, None]}
    (tmp_path / "data.js").write_text(script("x", value))
    code = (
        "globalThis.report = {take(name, text) { console.log(JSON.stringify(JSON.parse(text))) }}; require('./data.js')"
    )
    said = subprocess.run(["node", "-e", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == json.loads(json.dumps(value))


class Words:
    """What can be shown of cases: words."""

    warnings = ("Beware.",)

    def key(self, case_id):
        return f"key of {case_id}"

    def about(self, case_id):
        return f"about {case_id}"

    def texts(self, case_id):
        return {"answers": [{"outputs": ["<script>alert(1)</script>"]}, None]}


def write(folder, cases, wanted, scene=lambda folder: {"pictures": [], "panels": [], "problems": []}):
    runs = list(cases.runs.values())
    report = Report(folder)
    number = report.add_task(cases, Words(), wanted, title="Organs & <b>more", card={})
    report.write_index(build_table(runs, resamples=10), "A <i>title")
    drawn = [place for place in wanted if report.add_scene(number, place, f"key {place}", scene)]
    report.tidy()
    return drawn


def test_the_page_holds_the_table_and_escapes_what_it_did_not_write(cases, tmp_path):
    write(tmp_path / "out", cases, [])
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "<title>A &lt;i&gt;title</title>" in page
    assert "<table>" in page
    assert "Beware." in page
    assert "http:" not in page
    assert "https:" not in page
    listing = read_script((tmp_path / "out" / "data" / "0.js").read_text())
    assert listing["about"] == ["about c1", "about c2", "about c3"]
    details = read_script((tmp_path / "out" / "details" / "0" / "0.js").read_text())
    assert details[0]["texts"]["answers"][0]["outputs"] == ["<script>alert(1)</script>"]


def test_what_was_drawn_is_not_drawn_again_and_what_is_not_asked_for_goes(cases, tmp_path):
    def scene(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0.png").write_bytes(b"a picture")
        return {"pictures": [], "panels": [], "problems": []}

    out = tmp_path / "out"
    assert write(out, cases, [0, 2], scene) == [0, 2]
    assert write(out, cases, [0, 2], scene) == []
    assert write(out, cases, [2], scene) == []
    assert not (out / "cases" / "0" / "0.js").exists()
    assert not (out / "cases" / "0" / "0").exists()
    assert (out / "cases" / "0" / "2" / "0.png").exists()


def test_a_drawing_that_was_stopped_is_made_again(cases, tmp_path):
    def stopped(folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", cases, [1], stopped)
    assert (tmp_path / "out" / "index.html").is_file()
    assert write(tmp_path / "out", cases, [1]) == [1]


def test_a_folder_of_other_files_is_not_written_over(cases, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="no report"):
        Report(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mine.txt"]


@pytest.mark.parametrize("text", ['{"mine": 1}', "[]", "no JSON", '{"made_by": "medimg_evaluator"}'])
def test_a_folder_with_a_report_of_another_program_is_not_written_over(cases, tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(UserError, match="no report"):
        Report(tmp_path)
    assert (tmp_path / "report.json").read_text() == text


def test_a_case_that_could_not_be_read_is_tried_again(cases, tmp_path):
    def broken(folder):
        return {"pictures": [], "problems": ["an image is empty"]}

    assert write(tmp_path / "out", cases, [1], broken) == [1]
    assert write(tmp_path / "out", cases, [1]) == [1]
    assert write(tmp_path / "out", cases, [1]) == []
