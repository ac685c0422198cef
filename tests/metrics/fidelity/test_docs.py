"""docs/definitions/image_sets.md: a row for each public metric of sets, with the first sentence of its docstring."""

import inspect
import re
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval.metrics import fidelity, privacy

PAGE = (Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "image_sets.md").read_text(encoding="utf-8")
NO_VALUES = (
    "closest_pairs",
    "compare",
    "conditional_table",
    "frechet_distance_of_moments",
    "lira_scores",
    "memorisation_curve",
    "near_copies",
    "precision_recall_density_coverage",
    "tracks_n",
)
METRICS = [
    (module, name)
    for module in (fidelity, privacy)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
    and "SetValue" in str(inspect.signature(getattr(module, name)).return_annotation)
    and name not in NO_VALUES
]


@pytest.mark.parametrize(("module", "name"), METRICS, ids=[name for _, name in METRICS])
def test_each_metric_of_sets_has_its_row(module, name):
    first = inspect.getdoc(getattr(module, name)).split("\n\n")[0].replace("\n", " ")
    assert first.endswith(".")
    assert "|" not in first
    assert f"| `{name}` | {first} |" in PAGE


@pytest.mark.parametrize("name", NO_VALUES)
def test_functions_that_give_no_value_are_documented_too(name):
    assert re.search(rf"\b{name}\b", PAGE)


def test_each_flag_that_is_raised_is_explained():
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(medimg_eval.__file__).parent / "metrics").resolve().glob("fidelity/*.py")
    )
    for key in ("rank_deficient", "parts", "dropped_features", "absent", "no_interval"):
        assert f'"{key}: ' in source
        assert f"`{key}`" in PAGE
