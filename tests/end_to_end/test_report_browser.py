"""A report, made by the program and opened from disk in Chromium, as its readers use it."""

import json
import re

import numpy as np
import pytest

from medimg_eval.case import Image, Mask
from medimg_eval.imaging import write_image, write_mask
from medimg_eval.results import build_table, load_scores
from medimg_eval.results.report import Report, by_task
from medimg_eval.results.table.table import named_runs
from tests.conftest import AFFINE, HELPERS, ellipsoid, environment
from tests.helpers.browsing import CHROMIUM, chromium, expect, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's"),
]

ATTACK = "<script>alert(1)</script> The answer is B."

ELLIPSOIDS = """
_target_: medimg_eval.tasks.SegmentationTask
name: ellipsoids
title: Ellipsoids
labels: {{1: core, 2: rim}}
metrics: [dice]
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {root}
  image: "{{case}}.nii.gz"
  mask: "{{case}}_labels.nii.gz"
splits: {{test: test}}
card: {{description: Ellipsoids made by the tests.}}
"""

QUIZ = """
_target_: medimg_eval.tasks.QuestionTask
name: quiz
title: Quiz
layout:
  _target_: asking.Quiz
  items: {items}
template: {{user: "{{question}}\\n{{options}}"}}
splits: {{test: test}}
card: {{description: A quiz., may_leave: "no"}}
"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(starter, tmp_path_factory):
    """Two models on ellipsoids, of which one is worse, and one on a quiz, as a report in a folder."""
    place = tmp_path_factory.mktemp("report")

    def program(*words):
        done = starter.run(words, place, environment(HELPERS), 300)
        assert done.returncode == 0, done.stderr

    conf = place / "conf" / "task"
    conf.mkdir(parents=True)
    (conf / "ellipsoids.yaml").write_text(ELLIPSOIDS.format(root=place / "data"))
    (place / "data").mkdir()
    for number in range(6):
        labels = ellipsoid(number)
        write_mask(place / "data" / f"case{number:02d}_labels.nii.gz", Mask(labels, AFFINE))
        write_image(place / "data" / f"case{number:02d}.nii.gz", Image((100 * labels).astype(np.int16)[None], AFFINE))
    options = {letter: f"{letter.lower()} & <i>more</i>" for letter in "ABCD"}
    items = [
        {"text": f"Which is {n}?", "options": options, "right": "ABCD"[n % 4]}
        | {"attributes": {"organ": ["lung", "heart"][n % 2]}}
        for n in range(8)
    ]
    (conf / "quiz.yaml").write_text(QUIZ.format(items=json.dumps(items)))
    words = ["test", "--config-dir", str(conf.parent), "trainer.accelerator=cpu", "score_workers=0"]
    thresholds = [*words, "task=ellipsoids", "model._target_=answering.Thresholds"]
    program(*thresholds, "+model.levels=[50,150]", "+model.name=Good")
    program(*thresholds, "+model.levels=[101,201]", "+model.name=Bad")
    program(*words, "task=quiz", "model._target_=asking.Says", f"+model.replies={{q2: '{ATTACK}'}}")
    program("report", "out=report", "cases=[worst:2,case05,q2]", "resamples=100", "examples=1", "trust=true")
    return place / "report"


@pytest.fixture
def page(browser, report):
    with opened(browser, report) as first:
        yield first


def shown_cases(page):
    return page.locator(".rows a.line .id").all_inner_texts()


def test_a_reader_goes_from_the_table_to_a_list_and_filters_it(page, report):
    # The overview: the table with intervals, and the warning about data that may not be passed on.
    assert page.locator("#overview table").count() == 2
    assert "Good" in page.locator("#overview").inner_text()
    assert "may_leave: no" in page.locator("#overview").inner_text()
    assert (report / "examples" / "ellipsoids.pdf").is_file()

    # The list: worst first, filtered by words, sorted by a column, filtered by a range.
    page.get_by_role("link", name="Ellipsoids").click()
    page.wait_for_selector(".rows a.line")
    assert len(shown_cases(page)) == 6
    page.keyboard.press("/")
    page.keyboard.type("case03")
    expect(page.locator(".rows a.line")).to_have_count(1)
    assert shown_cases(page) == ["case03"]
    assert "q=case03" in page.url
    page.get_by_role("searchbox").fill("")
    page.get_by_role("columnheader", name=re.compile("^Case")).click()
    expect(page.locator(".rows a.line .id").first).to_have_text("case00")
    assert shown_cases(page) == sorted(shown_cases(page))
    page.get_by_label("Model").select_option("Bad")
    page.get_by_label("From").fill("0.5")
    expect(page.locator(".count")).to_have_text("0 of 6 cases")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".count")).to_have_text("6 of 6 cases")


def test_a_reader_goes_from_case_to_case_and_compares_two_models(page):
    # Keys: down and up in the list, open, next and back.
    page.goto(page.address + "#task=ellipsoids")
    page.wait_for_selector(".rows a.line")
    page.locator("#main").focus()
    first, second = shown_cases(page)[:2]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=second).wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", name=first).wait_for()
    page.keyboard.press("Escape")
    page.wait_for_selector(".rows a.line")

    # A deep link, to a comparison of a case: slices side by side, overlays that go and come.
    page.goto(page.address + "#task=ellipsoids&case=case05&model=Good&versus=Bad")
    page.wait_for_selector(".planes canvas[data-drawn]")
    assert page.locator(".planes").count() == 2
    assert page.locator(".scores td.worse").count() > 0
    plain = pixels(page)
    page.locator("#show-differ").check()
    before = pixels(page)
    assert before != plain
    page.locator("#show-answer").uncheck()
    assert pixels(page) != before
    page.keyboard.press("o")  # hides truth as well
    bare = pixels(page)
    page.keyboard.press("o")
    assert pixels(page) != bare
    page.keyboard.press("d")
    expect(page).not_to_have_url(re.compile("versus"))
    # One model: NiiVue where it was built, plain slices with a word about it where not.
    page.wait_for_selector(".niivue[data-drawn], .planes canvas[data-drawn]")
    if page.locator(".niivue").count():
        assert not page.evaluate("document.querySelector('.niivue canvas').getContext('webgl2').isContextLost()")
    else:
        assert "NiiVue" in page.locator(".says").inner_text()


def pixels(page):
    """The colours of the first picture, all together."""
    return page.evaluate("document.querySelector('.planes canvas').toDataURL()")


def test_what_a_model_wrote_is_text_and_dark_is_dark(page):
    page.goto(page.address + "#task=quiz&case=q2")
    page.get_by_text(ATTACK).wait_for()
    assert page.locator("#page script").count() == 0
    assert page.locator(".options li.right").inner_text().startswith("C")
    assert "c & <i>more</i>" in page.locator(".options").inner_text()
    assert page.locator("canvas[data-drawn]").count() == 1
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark or light").click()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (brightness(dark) < 60, brightness(light) > 200) == (True, True)
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector(".rows a.line")
    page.get_by_label("Status").select_option("wrong")
    page.get_by_label("Attribute").select_option("organ")
    page.get_by_label("Value").select_option("heart")
    expect(page.locator(".count")).to_have_text("4 of 8 cases")
    assert all(int(case[1:]) % 2 for case in shown_cases(page))


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


class Classes:
    """What can be shown of cases of a classification."""

    warnings = ()

    def key(self, case_id):
        return case_id

    def about(self, case_id):
        return ""

    def texts(self, case_id):
        return {"answers": [{"outputs": []}]}


def test_the_truth_of_each_class_stands_beside_its_probability_and_odd_ids_have_links(browser, tmp_path):
    file, case = tmp_path / "scores.csv", "../../a#b&c=d<img>%2e__proto__"
    head = "case,model,metric,value,label,status"
    file.write_text(f"{head}\n{case},M,probability,0.25,nodule,present\n{case},M,probability,0.5,edema,absent\n")
    runs = load_scores(file)
    (cases,) = by_task(runs, named_runs(runs))
    report = Report(tmp_path / "out")
    number = report.add_task(cases, Classes(), [0], title="Findings", card={})
    report.write_index(build_table(runs, resamples=10), "Findings")
    findings = [["nodule", 1.0], ["edema", 0.0], ["mass", float("nan")]]
    scene = {"pictures": [], "panels": [], "problems": [], "findings": findings}
    report.add_scene(number, 0, "key", lambda folder: scene)

    with opened(browser, tmp_path / "out") as page:
        page.goto(f"{page.address}#task=scores")
        page.locator(".rows a.line").first.click()
        expect(page.locator("#page h1")).to_have_text(case)
        page.reload()
        expect(page.locator("#page h1")).to_have_text(case)
        rows = page.locator("section[aria-label=Classes] tbody tr")
        assert rows.all_inner_texts() == ["nodule\tpresent\t0.250", "edema\tabsent\t0.500", "mass\tunknown\t–"]
        expect(page.get_by_label("Answers")).to_have_count(0)
