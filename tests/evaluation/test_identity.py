"""What makes a run the same run."""

from medimg_eval.evaluation.identity import model_identity, placeless


def test_files_count_by_content_wherever_in_the_config_they_are_named(tmp_path):
    one, other = tmp_path / "one.pt", tmp_path / "other.pt"

    def identity():
        return model_identity(
            {
                "name": "Ensemble",
                "checkpoint": [str(one), str(other)],
                "models": [{"_target_": "X", "checkpoint": str(one), "size": 3}, {"_target_": "Y"}],
                "flips": [0, 1],
            },
            ("checkpoint",),
        )

    one.write_bytes(b"weights")
    other.write_bytes(b"weights")
    first = identity()
    assert first == {
        "checkpoint": [first["checkpoint"][0]] * 2,
        "models": [{"_target_": "X", "checkpoint": first["checkpoint"][0], "size": 3}, {"_target_": "Y"}],
        "flips": [0, 1],
    }
    other.write_bytes(b"other weights")
    assert identity()["checkpoint"][1] != first["checkpoint"][1]
    one.write_bytes(b"new weights")
    assert identity()["models"][0]["checkpoint"] != first["models"][0]["checkpoint"]


def test_where_the_data_of_layouts_within_layouts_lie_makes_no_other_run():
    def blend(place):
        volumes = {"_target_": "medimg_eval.data.layouts.Volumes", "root": f"{place}/real", "image": "a.nii"}
        made = {
            "_target_": "medimg_eval.data.layouts.Generated",
            "run": f"{place}/run",
            "prompts": volumes,
            "classes": [],
        }
        return {
            "_target_": "medimg_eval.data.layouts.MixedDataset",
            "real": volumes,
            "synthetic": made,
            "fraction": 0.5,
        }

    kept = {"_target_": "medimg_eval.data.layouts.Volumes", "image": "a.nii"}
    assert (
        placeless(blend("/one"))
        == placeless(blend("/other"))
        == {
            "_target_": "medimg_eval.data.layouts.MixedDataset",
            "real": kept,
            "synthetic": {"_target_": "medimg_eval.data.layouts.Generated", "prompts": kept, "classes": []},
            "fraction": 0.5,
        }
    )


def test_of_ordinary_layouts_the_root_alone_is_a_place():
    layout = {"_target_": "mine.Layout", "root": "/a", "run": "1", "target": {"_target_": "mine.Masks", "root": "/b"}}
    assert placeless(layout) == {key: value for key, value in layout.items() if key != "root"}
    assert placeless(None) is None
