"""Tables of set metrics: nothing is compared that n alone could explain."""

import math
from dataclasses import replace

import numpy as np
import pytest

from medimg_eval.metrics.fidelity import (
    SetError,
    SetValue,
    compare,
    conditional_table,
    frechet_distance,
    kernel_distance,
    tracks_n,
)
from tests.metrics.fidelity.test_frechet import normal

SIZES = (400, 300, 200, 120, 80, 60, 40, 30)
NAMES = [f"finding {size}" for size in SIZES]
PLAIN = {"floor": False, "interval": False}


def findings(rows=400):
    return np.stack([np.arange(rows) < size for size in SIZES], axis=1)


def test_a_table_of_one_pair_of_distributions_tracks_n_as_the_published_one_does():
    found = conditional_table(
        frechet_distance,
        normal(400, 32, 1),
        normal(400, 32, 2),
        findings(),
        findings(),
        NAMES,
        allow_unequal_n=True,
        **PLAIN,
    )
    assert found.spearman == pytest.approx(-1)
    assert "track n (Spearman -1.00, n from 30 to 400)" in found.warning
    assert found.values["finding 30"].value > 3 * found.values["finding 400"].value


def test_it_is_refused_unless_asked_for_and_the_error_says_what_to_do():
    given = (normal(400, 32, 1), normal(400, 32, 2), findings(), findings(), NAMES)
    with pytest.raises(SetError, match=r"drifts with n .* 30 real and 30 generated rows and 400 and 400; .*n=\.\.\."):
        conditional_table(frechet_distance, *given, **PLAIN)
    equal = conditional_table(frechet_distance, *given, n=30, **PLAIN)
    assert {one.n_real for one in equal.values.values()} == {30}
    assert (math.isnan(equal.spearman), equal.warning) == (True, "")
    assert len(conditional_table(kernel_distance, *given, **PLAIN).values) == 8


def test_rows_are_drawn_by_the_seed_and_patients_go_with_them():
    patients = np.arange(400) // 2
    given = (normal(400, 4, 1), normal(400, 4, 2), findings(), findings(), NAMES)
    one, again, other = (
        conditional_table(kernel_distance, *given, n=30, patients=patients, seed=seed, **PLAIN) for seed in (0, 0, 1)
    )
    assert one.values == again.values
    assert one.values["finding 400"] != other.values["finding 400"]
    assert one.values["finding 30"].value == other.values["finding 30"].value


def test_a_finding_that_one_side_lacks_has_no_value_and_a_reason():
    has, lacks = findings(), findings()
    lacks[1:, 2] = False
    given = (normal(400, 4, 1), normal(400, 4, 2), has, lacks, NAMES)
    value = conditional_table(kernel_distance, *given, **PLAIN).values["finding 200"]
    assert math.isnan(value.value)
    assert value.flags == ("absent: 200 real and 1 generated rows have finding 200, 2 of each are needed",)
    assert math.isnan(conditional_table(kernel_distance, *given, n=50, **PLAIN).values["finding 30"].value)


def test_findings_that_do_not_fit_are_refused():
    with pytest.raises(SetError, match=r"bool of the shape \(400, 8\), got int64"):
        conditional_table(kernel_distance, normal(400, 4), normal(400, 4, 1), findings().astype(int), findings(), NAMES)


def value(number, n, **changes):
    found = SetValue("frechet_distance", number, n, n, 16, depends_on_n=True)
    return replace(found, **changes)


def test_models_are_compared_at_one_n_of_one_extractor_only():
    same = {"a": value(3.0, 100), "b": value(4.0, 100)}
    assert compare(same).values == same
    with pytest.raises(SetError, match="different extractor cannot be compared: inception and rad-dino"):
        compare({"a": value(3.0, 100, extractor="inception"), "b": value(4.0, 100, extractor="rad-dino")})
    with pytest.raises(SetError, match="different metric"):
        compare({"a": value(3.0, 100), "b": value(4.0, 100, metric="kernel_distance")})
    with pytest.raises(SetError, match="different d cannot be compared: 16 and 8"):
        compare({"a": value(3.0, 100), "b": value(4.0, 100, d=8)})
    unequal = {"a": value(3.0, 100), "b": value(4.0, 90)}
    with pytest.raises(SetError, match="90 real and 90 generated rows and 100 and 100"):
        compare(unequal)
    assert compare(unequal, allow_unequal_n=True).warning == ""
    compare({name: replace(one, depends_on_n=False) for name, one in unequal.items()})


def test_correlation_with_n_needs_four_values_that_differ_in_n():
    def table(*pairs):
        return {str(at): value(number, n) for at, (number, n) in enumerate(pairs)}

    assert math.isnan(tracks_n(table((1, 10), (2, 20), (3, 30)))[0])
    assert math.isnan(tracks_n(table((1, 10), (2, 10), (3, 10), (4, 10)))[0])
    assert math.isnan(tracks_n(table((1, 10), (1, 20), (1, 30), (1, 40)))[0])
    spearman, said = tracks_n(table((1, 10), (3, 20), (2, 30), (4, 40)))
    assert spearman == pytest.approx(0.8)
    assert said.startswith("The 4 values of frechet_distance track n (Spearman +0.80, n from 10 to 40)")
    assert tracks_n(table((1, 10), (4, 20), (2, 30), (3, 40)))[1] == ""
    assert tracks_n(table((1, 10), (1, 20), (3, 30), (3, 40)))[0] == pytest.approx(0.894427, rel=1e-5)
    assert math.isnan(tracks_n({**table((1, 10), (2, 20), (3, 30)), "x": value(math.nan, 40)})[0])
