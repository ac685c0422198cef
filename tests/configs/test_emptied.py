"""`KEY={}` on the command line, and an empty mapping from Python, empty what a config holds there."""

from medimg_eval.configs.overrides import composed, plain, with_changes


def test_a_grid_in_braces_is_empty_and_the_head_stays():
    assert plain(composed("fit", ["model=probe"]))["model"]["grid"]
    model = plain(composed("fit", ["model=probe", "model.grid={}"]))["model"]
    assert model["grid"] == {}
    assert model["head"]["name"] == "logistic"


def test_what_comes_later_is_put_into_it():
    words = ["model=probe", "model.grid={}", "+model.grid.balanced=[true,false]"]
    assert plain(composed("fit", words))["model"]["grid"] == {"balanced": [True, False]}


def test_python_empties_it_too_and_merges_all_else():
    config = composed("fit", ["model=probe"])
    with_changes(config, {"model.head": {"C": 2}})
    with_changes(config, {"model.grid": {}})
    model = plain(config)["model"]
    assert (model["grid"], model["head"]["C"], model["head"]["name"]) == ({}, 2, "logistic")
