"""How metrics are declared, found and named."""

import sys
from pathlib import Path

import numpy as np
import pytest

import medimg_eval.metrics as package
from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available, get, metric, parse, registry, summary, title
from medimg_eval.metrics.own_metrics import import_own, is_ours

NEW_METRIC = '''
from medimg_eval.metrics import metric

@metric(kind="mask", title="Hits", higher_is_better=True, best=1.0, worst=0.0, source="this test")
def {name}(pair):
    """Whether the masks touch.

    More about it.
    """
    return float(pair.overlap_size > 0)
'''


@pytest.fixture
def afresh(monkeypatch):
    """Look-ups search for modules anew, and forget afterwards what they found."""
    monkeypatch.setattr(registry, "_METRICS", available())
    modules = set(sys.modules)
    registry._import_metrics.cache_clear()
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def declare(name, **changes):
    def function(pair):
        return 0.0

    function.__name__ = name
    fields = {
        "kind": "mask",
        "title": "T",
        "higher_is_better": True,
        "best": 1.0,
        "worst": 0.0,
        "source": "s",
    }
    return metric(**fields | changes)(function)


def test_the_metrics_of_masks():
    assert {"assd", "dice", "hd", "hd95", "iou", "nsd"} <= set(available("mask"))
    assert list(available()) == sorted(available())
    assert available("no such kind") == {}
    for found in available("mask").values():
        assert found.definition.endswith(".")
        assert "\n" not in found.definition
        assert found.source
        assert found.worst != "diagonal" or (found.unit == "mm" and not found.higher_is_better)


def test_what_a_metric_says_of_itself():
    found = get("hd95")
    assert (found.name, found.title, found.unit, found.best, found.worst) == (
        "hd95",
        "HD95",
        "mm",
        0,
        "diagonal",
    )
    assert found.definition.startswith("The larger of the two directed 95th percentiles")
    assert get("nsd@2") is get("nsd")


def test_every_metric_is_documented():
    docs = Path(__file__).parents[2] / "docs" / "definitions"
    rows = "".join(page.read_text() for page in docs.glob("*.md"))
    for name, found in available().items():
        assert f"| `{name}" in rows  # with what stands after the "@", if anything
        assert found.definition.removesuffix(".") in rows.replace("\\|", "|")


@pytest.mark.parametrize(
    ("name", "header"), [("dice", "Dice"), ("hd95", "HD95"), ("nsd@2", "NSD@2"), ("nsd@0.50", "NSD@0.5")]
)
def test_titles(name, header):
    assert title(name) == header


def test_parameters():
    assert parse("dice") == (get("dice"), None)
    assert parse("nsd@2") == (get("nsd"), 2.0)
    assert parse("nsd@0") == (get("nsd"), 0.0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dcie", r"got 'dcie'; did you mean 'dice'\?"),
        ("hd59@1", r"got 'hd59'; did you mean 'hd95'\?"),
        ("", "got ''"),
        ("dice@2", "'dice' takes no parameter, got 'dice@2'"),
        ("dice@", "'dice' takes no parameter, got 'dice@'"),
        ("nsd@", r"Metric 'nsd' needs a parameter \(tolerance in mm\), for example 'nsd@2'"),
        ("nsd@two", "a number of at least 0, got 'nsd@two'"),
        ("nsd@-1", "a number of at least 0, got 'nsd@-1'"),
        ("nsd@nan", "a number of at least 0, got 'nsd@nan'"),
        ("nsd@inf", "a number of at least 0, got 'nsd@inf'"),
    ],
)
def test_names_that_are_refused(name, words):
    with pytest.raises(UsageError, match=words):
        parse(name)


def test_summaries_say_what_they_are_computed_from(afresh):
    @summary(needs=("dice",), title="Range", higher_is_better=False, best=0.0, source="this test")
    def dice_range(rows):
        """How far the best and the worst case are apart."""
        found = rows.of("dice").value
        return float(np.ptp(found))

    @summary(
        needs=("dice",),
        title="Gap",
        higher_is_better=False,
        best=0.0,
        source="this test",
        parameter="attribute",
        parameter_is_text=True,
    )
    def dice_gap(rows, attribute):
        """How far groups are apart."""
        means = [rows.value[rows.attributes[attribute] == group].mean() for group in set(rows.attributes[attribute])]
        return float(np.ptp(means))

    assert (get("dice_range").kind, get("dice_range").needs) == ("run", ("dice",))
    assert parse("dice_gap@sex") == (get("dice_gap"), "sex")
    assert title("dice_gap@sex") == "Gap (sex)"
    with pytest.raises(UsageError, match=r"'dice_gap' needs a parameter \(attribute\)$"):
        parse("dice_gap")
    rows = ScoreTable(
        case=np.array([0, 1, 2, 2]),
        metric=np.array(["dice", "dice", "dice", "iou"]),
        label=np.array(["liver"] * 4),
        value=np.array([0.5, 1.0, 0.9, 0.1]),
        status=np.array(["present"] * 4),
        attributes={"sex": np.array(["F", "M", "M", "M"])},
        cases=3,
        facts={},
    )
    assert get("dice_range").function(rows) == 0.5
    assert get("dice_gap").function(rows.of("dice"), "sex") == pytest.approx(0.45)
    assert rows.where(np.array([3])).cases == 3


def test_a_name_belongs_to_one_function(afresh):
    with pytest.raises(
        ValueError, match=r"one metric named 'dice', got medimg_eval\.metrics\.segmentation\.overlap\.dice"
    ):
        declare("dice")
    # The same function again, as when its module is loaded anew, replaces itself.
    declare("novel", title="Old")
    declare("novel", title="New")
    assert title("novel") == "New"


def test_a_new_module_is_found(afresh, tmp_path, monkeypatch):
    (tmp_path / "hits.py").write_text(NEW_METRIC.format(name="hits"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    found = get("hits")
    assert found.definition == "Whether the masks touch."
    assert (found.unit, found.parameter) == ("", None)
    assert "hits" in available("mask")


def install_plugin(folder, module):
    info = folder / "hits_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hits-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[medimg_eval.metrics]\nhits = {module}\n")


def test_a_plugin_is_found(afresh, tmp_path, monkeypatch):
    install_plugin(tmp_path, "hits_plugin_metrics")
    (tmp_path / "hits_plugin_metrics.py").write_text(NEW_METRIC.format(name="plugged_hits"))
    monkeypatch.syspath_prepend(tmp_path)
    assert get("plugged_hits").title == "Hits"


def test_a_metric_of_ones_own_is_named_with_its_module(afresh, tmp_path, monkeypatch):
    (tmp_path / "own_hits.py").write_text(NEW_METRIC.format(name="mine"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="got 'own_hits.mine'"):
        get("own_hits.mine")  # a look-up runs no module
    assert "own_hits" not in sys.modules
    import_own("own_hits.mine")
    assert (get("own_hits.mine").name, title("own_hits.mine")) == ("own_hits.mine", "Hits")
    assert not is_ours("own_hits.mine")
    assert is_ours("nsd@2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_place.mine", "no_such_place cannot be imported"),
        ("own_hits.other", r"own_hits declares no metric of that name \(available: mine\); put @metric"),
        ("own_hits.minne", "of that name; did you mean 'mine'?"),
    ],
)
def test_a_metric_of_ones_own_that_is_not_there_is_told_of(afresh, tmp_path, monkeypatch, name, message):
    (tmp_path / "own_hits.py").write_text(NEW_METRIC.format(name="mine"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=message):
        import_own(name)


def test_a_plugin_that_cannot_be_imported_is_named(afresh, tmp_path, monkeypatch):
    install_plugin(tmp_path, "no_such_module_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"Metrics plugin 'hits' .*no_such_module_anywhere"):
        get("dice")


def test_the_former_name_of_score_tables_goes_on_working_and_says_the_present_one():
    with pytest.warns(DeprecationWarning, match="Rows is now called ScoreTable; the former name goes on working"):
        from medimg_eval.metrics import Rows
    assert Rows is ScoreTable
