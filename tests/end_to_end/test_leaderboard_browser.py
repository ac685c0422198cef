"""A leaderboard, and lists of many models, opened from disk in Chromium, as their readers use them."""

import json

import numpy as np
import pytest

from medimg_eval.results import build_table, load_scores
from medimg_eval.results.leaderboard import build_leaderboard, write_leaderboard
from medimg_eval.results.report import Report, by_task
from medimg_eval.results.table.table import named_runs
from tests.helpers.browsing import CHROMIUM, chromium, expect, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's"),
]

NAMES = [f"nnU-Net ResEnc {size}, 3d_fullres, {folds}" for size in "MLX" for folds in ("fold 0", "folds 0-4")]
NAMES += [f"Qwen/Qwen2.5-VL-{size}-Instruct" for size in ("3B", "7B", "72B")]
FACTS = {"liver": ("segmentation", ("ct",)), "chest": ("vqa", ("xray",)), "brain": ("segmentation", ("mri",))}


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Nine models on three tasks, of which the last lacks the last one."""
    rng = np.random.default_rng(5)
    lines = ["task,case,model,metric,value,site"]
    for task in FACTS:
        for place, model in enumerate(NAMES[:-1] if task == "brain" else NAMES):
            values = 0.5 + 0.02 * place + rng.normal(0, 0.05, 12)
            lines += [f'{task},c{n},"{model}",dice,{value:.4f},' for n, value in enumerate(values)]
    lines += [f'liver,c0,"{NAMES[0]}",assd,1.5,']
    file = tmp_path_factory.mktemp("scores") / "scores.csv"
    file.write_text("\n".join(lines) + "\n")
    return load_scores(file)


@pytest.fixture(scope="module")
def board(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board") / "out"
    write_leaderboard(build_leaderboard(runs, FACTS, resamples=200), folder)
    return folder


def standings(page):
    return page.locator("[data-table=standings-0] tbody tr")


def first_standing(page):
    return standings(page).first.inner_text().split("\t")


def test_what_pages_rank_is_what_the_json_says(browser, board):
    content = json.loads((board / "leaderboard.json").read_text(encoding="utf-8"))
    (group,) = content["standings"]
    with opened(browser, board) as page:
        expect(standings(page)).to_have_count(len(NAMES))
        shown = [line.split("\t") for line in standings(page).all_inner_texts()]
    for cells, row in zip(shown, group["rows"], strict=True):
        assert cells[0] == f"{row['place']} [{row['place_low']:.0f}, {row['place_high']:.0f}]"
        assert cells[1] == row["model"]
        assert cells[3] == f"{row['mean_rank']:.2f} [{row['mean_rank_low']:.2f}, {row['mean_rank_high']:.2f}]"
        assert cells[4] == f"{100 * row['wins']:.0f} %"
        assert cells[6] == f"{row['tasks']} of 3"


def test_a_reader_filters_sorts_and_opens_a_task(browser, board):
    with opened(browser, board) as page:
        expect(page.locator("#count")).to_have_text("9 of 9 models, 3 of 3 tasks")
        expect(page.get_by_text("Not every model has every task")).to_be_visible()
        dash = page.locator("[data-table=cells] tbody tr", has_text="72B").locator("td").nth(2)
        expect(dash).to_have_text("\N{EN DASH}")  # what was not scored
        page.get_by_label("Count brain").uncheck()
        expect(page.locator("#count")).to_have_text("9 of 9 models, 2 of 3 tasks")
        expect(page.get_by_text("Not every model has every task")).to_have_count(0)
        page.get_by_label("Family").select_option("vqa")
        page.get_by_label("Models", exact=True).fill("qwen, fold 0")
        expect(standings(page)).to_have_count(6)
        page.reload()  # the address holds the filters
        expect(standings(page)).to_have_count(6)
        assert first_standing(page)[0].startswith("1 ")
        page.locator("[data-table=standings-0]").get_by_role("button", name="Place").click()
        page.locator("[data-table=standings-0]").get_by_role("button", name="Place").click()
        expect(standings(page).first).to_contain_text("6 [")
        expect(page.locator("[data-table=standings-0] th[aria-sort]")).to_have_attribute("aria-sort", "descending")
        page.get_by_role("link", name="chest").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("chest")
        expect(page.locator("[data-table=task] tbody tr")).to_have_count(len(NAMES))
        expect(page.locator(".strip").first).to_be_visible()


def test_narrow_pages_scroll_within_and_names_stay_in_sight(browser, board, runs, tmp_path):
    cases = by_task(runs, named_runs(runs))
    report = Report(tmp_path / "out")
    for one in cases:
        report.add_task(one, None, [], title=one.task, card={})
    report.write_index(build_table(runs, resamples=10), "Many models")
    for folder, where, scroller in (
        (board, "", "[data-table=cells]"),
        (board, "tasks/liver.html", "[data-table=task]"),
        (tmp_path / "out", "#task=liver", ".rows"),
    ):
        with opened(browser, folder) as page:
            page.set_viewport_size({"width": 420, "height": 800})
            page.goto(page.address.replace("index.html", where) if where.endswith("html") else page.address + where)
            page.wait_for_selector(scroller)
            assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            inner = f"document.querySelector('{scroller}')"
            assert page.evaluate(f"{inner}.scrollWidth > {inner}.clientWidth")
            name = page.locator(f"{scroller} tbody th, {scroller} .cell.id").first
            page.evaluate(f"{inner}.scrollLeft = 300")
            assert 0 <= name.evaluate("one => one.getBoundingClientRect().x") < 60  # waits for it, as a box does not


def test_heads_of_many_models_are_short_and_tell_them_apart(browser, runs, tmp_path):
    cases = by_task(runs, named_runs(runs))
    report = Report(tmp_path / "out")
    for one in cases:
        report.add_task(one, None, [], title=one.task, card={})
    report.write_index(build_table(runs, resamples=10), "Many models")
    with opened(browser, tmp_path / "out") as page:
        page.goto(page.address + "#task=liver")
        page.wait_for_selector(".rows a.line")
        heads = page.locator(".heads button.number").all_inner_texts()[: len(NAMES)]
        assert len(set(heads)) == len(NAMES)
        assert "nnU-Net…L…folds 0-4" in heads
        assert all(len(head) <= 24 for head in heads)
        page.get_by_label("Metric").select_option("ASSD (mm)")
        cells = page.locator(".rows a.line", has_text="c1").first.locator(".cell.number").all_inner_texts()
        assert set(cells) == {"\N{EN DASH}"}
        names = ["UNet", "UNet", "a" * 40 + "x" + "b" * 40, "a" * 40 + "y" + "b" * 40, ""]
        short = page.evaluate("names => report.shortened(names)", names)
        assert short == names  # what cannot be told apart otherwise stays whole
