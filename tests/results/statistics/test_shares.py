"""Which intervals a table takes for values that are shares."""

from medimg_eval.results import build_table, load_runs


def rows(values, metric):
    return [(f"c{i}", f"p{i}", "a", metric, float(value), "present") for i, value in enumerate(values)]


def test_only_metrics_that_declare_it_are_shares(write_run):
    right = [1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    folder = write_run(
        "m",
        [row for name in ("accuracy", "exact_match", "dice", "mine") for row in rows(right, name)]
        + rows([0] * 12, "hd95"),
    )
    table = build_table(load_runs([folder]), resamples=50)
    frame = table.frame().set_index("metric")
    assert frame["interval"].to_dict() == {
        "accuracy": "wilson",
        "exact_match": "wilson",
        "dice": "percentile",
        "mine": "percentile",
        "hd95": "all equal",
    }
    notes = "\n".join(table.footnotes)
    assert (
        "Accuracy and Exact match: Wilson interval of a proportion, of values that are 0 or 1, one for each of the pat"
        in notes
    )


def test_the_footnote_names_no_bootstrap_where_none_was_made(write_run):
    table = build_table(load_runs([write_run("m", rows([1, 0, 1, 1, 0, 1], "accuracy"))]), resamples=50)
    assert table.footnotes[:2] == [
        "Mean over cases [95 % interval]; a case counts with the mean over its labels (case-macro).",
        (
            "Accuracy: exact interval (Clopper and Pearson) of a proportion, of values that are 0 or 1, where these "
            "are all the same or of at most 10 patients."
        ),
    ]
