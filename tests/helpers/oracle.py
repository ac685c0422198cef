"""Score rows of the fixtures, as they were before the code was moved: they stay equal, but for committed maps.

A test hands its finished run to `check_rows`. To write the rows anew, after a change that is meant to move numbers:

    rm -rf rows && MEDIMG_EVAL_WRITE_ROWS=rows pytest -m "" && python -m tests.helpers.oracle rows

Rows of new fixtures, written by their tests alone, go into a file of their own beside the others:

    rm -rf rows && MEDIMG_EVAL_WRITE_ROWS=rows pytest FILE -k NAME && python -m tests.helpers.oracle rows NAME
"""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from medimg_eval.metrics import present_name

FOLDER = Path(__file__).parent
COLUMNS = ["case", "label", "metric", "value", "status"]


def check_rows(name: str, folder: Path, rtol: float = 1e-9) -> None:
    """Compares the Score rows of a run with the stored ones of that name.

    Args:
        name: of the fixture; the same name in every revision.
        folder: of the finished run.
        rtol: relative tolerance of values; wider where a float32 network made them.
    """
    rows = pd.read_parquet(folder / "scores.parquet")[COLUMNS]
    rows = rows.sort_values(COLUMNS[:3], kind="stable", ignore_index=True)
    if written := os.environ.get("MEDIMG_EVAL_WRITE_ROWS"):
        Path(written).mkdir(parents=True, exist_ok=True)
        rows.assign(fixture=name).to_parquet(Path(written, name.replace("/", "+") + ".parquet"))
        return
    stored = _stored()
    assert name in stored, f"{name} has no stored rows; tests/helpers/oracle.py says how they are written"
    wanted = stored[name]
    pd.testing.assert_frame_equal(rows[[*COLUMNS[:3], "status"]], wanted[[*COLUMNS[:3], "status"]])
    np.testing.assert_allclose(rows["value"], wanted["value"], rtol=rtol, atol=1e-12)


@cache
def _stored() -> dict[str, pd.DataFrame]:
    rows = pd.concat([pd.read_parquet(path) for path in sorted(FOLDER.glob("score_rows*.parquet"))])
    rows["metric"] = rows["metric"].map({name: present_name(name) for name in rows["metric"].unique()})
    return {
        str(name): part[COLUMNS].sort_values(COLUMNS[:3], kind="stable", ignore_index=True)
        for name, part in rows.groupby("fixture")
    }


if __name__ == "__main__":
    parts = [pd.read_parquet(path) for path in sorted(Path(sys.argv[1]).glob("*.parquet"))]
    name = "_".join(["score_rows", *sys.argv[2:]])
    if name == "score_rows":  # all of them, so that no other file holds a fixture twice
        for path in FOLDER.glob("score_rows_*.parquet"):
            path.unlink()
    pd.concat(parts, ignore_index=True).to_parquet(FOLDER / f"{name}.parquet", compression="zstd", index=False)
