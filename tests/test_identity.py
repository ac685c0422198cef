"""What makes a run the same run."""

from medimg_eval.evaluation.identity import model_identity


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
