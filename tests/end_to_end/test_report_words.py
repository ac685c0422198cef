"""What no page of a report may print: `undefined` and the like, whatever the scores lack."""

import re
from dataclasses import replace

import pytest

from medimg_eval.results import build_table, load_scores
from medimg_eval.results.report import Report, by_task
from medimg_eval.results.table.table import named_runs
from tests.helpers.browsing import CHROMIUM, chromium, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's"),
]

WRONG = re.compile(r"undefined|\bNaN\b|\[object|\bnull\b|cannot read propert|is not a function", re.IGNORECASE)

VISIT = """async places => {
  const page = document.getElementById("page"), shown = [];
  for (const where of places) {
    location.hash = `task=scores&${where}`;
    while (document.body.dataset.drawn !== location.hash) await new Promise((done) => setTimeout(done));
    for (const table of page.querySelectorAll(".results")) table.remove();
    shown.push(page.outerHTML + document.title);
  }
  return shown;
}"""
"""What stands on each page, without the task's own table, in which a number may be undefined and is explained."""

HEAD = "case,model,metric,value"

SCORES = {
    "values that are missing": (HEAD, "a,One,dice,", "b,One,dice,", "a,Two,dice,0.5"),
    "only evidence": (f"{HEAD},label,status", "a,One,probability,0.25,x,present", "b,One,probability,0.5,x,absent"),
    "a metric of one model": (HEAD, "a,One,dice,0.5", "b,One,dice,0.7", "a,Two,my_score,3", "b,Two,my_score,4"),
    "a case of one model": (f"{HEAD},site", "a,One,dice,0.5,north", "b,One,dice,0.7,", "c,Two,dice,1,south"),
    "odd names": (HEAD, "0,constructor,dice,0.5", "__proto__,toString,dice,0.7", "1,constructor,dice,0.1"),
}
"""Lines of CSV by what is odd of them."""

ODD = ("metric=none", "model=none", "status=none", "attr=none&is=x", "attr=site", "min=0.1&max=x", "case=none")


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.mark.parametrize("judged", [True, False], ids=["", "no metric of single cases"])
@pytest.mark.parametrize("lines", SCORES.values(), ids=SCORES)
def test_no_page_says_undefined(browser, tmp_path, lines, judged):
    file = tmp_path / "scores.csv"
    file.write_text("\n".join(lines))
    runs = load_scores(file)
    report = Report(tmp_path / "out")
    for cases in by_task(runs, named_runs(runs)):
        if not judged:  # as of metrics that judge a set of images together
            cases = replace(cases, columns=(), numbers=cases.numbers[:, :0])  # noqa: PLW2901
        report.add_task(cases, None, [], title="Scores", card={})
    report.write_index(build_table(runs, resamples=10), "Report")
    with opened(browser, tmp_path / "out") as page:
        models = ["", *sorted({run.model for run in runs})]
        ids = sorted({case for run in runs for case in run.scores["case"]})
        places = [f"model={model}&sort={sort}" for model in models for sort in ("", "v0", "v9", "name", "status")]
        places += [f"case={case}&model={model}&versus={other}" for case in ids for model in models for other in models]
        places += ODD
        for where, shown in zip(places, page.evaluate(VISIT, places), strict=True):
            assert not WRONG.search(shown), where
