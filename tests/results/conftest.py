"""Run folders on disk, as `test` leaves them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAN = float("nan")


class WriteRun(Protocol):
    """Writes one run folder and returns it; anything left out gets a plain value."""

    def __call__(
        self,
        name: str,
        rows: list[tuple[Any, ...]] | None = ...,
        attributes: dict[str, dict[str, str]] | None = ...,
        **manifest: Any,
    ) -> Path: ...


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Rows are (case, patient, label, metric, value, status); `attributes` are those of each case."""

    def write(
        name: str,
        rows: list[tuple[Any, ...]] | None = None,
        attributes: dict[str, dict[str, str]] | None = None,
        **manifest: Any,
    ) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        rows = [("c1", "p1", "a", "dice", 0.5, "present")] if rows is None else rows
        cases = len({row[0] for row in rows})
        facts = {
            "schema": 1,
            "run": name,
            "command": "test",
            "task": "organs",
            "task_title": "Organs",
            "model": name.title(),
            "settings": "5e77",
            "status": "finished",
            "cases": cases,
            "predicted": cases,
            "failed_cases": len({row[0] for row in rows if row[5] == "failed"}),
            "data_fingerprint": "f00d",
            "signature": "surface=surfel",
            "resampled": "patients",
            "notes": [],
            "started": "2026-11-21T10:00:00+00:00",
            "ended": "2026-11-21T10:05:00+00:00",
        } | manifest
        (folder / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
        if facts["status"] != "finished":
            lines = [json.dumps({"case": f"c{index}", "file": "x"}) + "\n" for index in range(facts["predicted"])]
            failed = json.dumps({"case": "odd", "stage": "answer", "failure": "no"}) + "\n"
            (folder / "predictions-0.jsonl").write_text("".join([*lines, failed, '{"case": "torn']))
        else:
            frame = pd.DataFrame(rows, columns=["case", "patient", "label", "metric", "value", "status"])
            frame["value"] = frame["value"].astype("float64")
            said = [json.dumps((attributes or {}).get(case, {})) for case in frame["case"]]
            frame.assign(run=name, task=facts["task"], model=facts["model"], attributes=said).to_parquet(
                folder / "scores.parquet"
            )
        return folder

    return write


@pytest.fixture
def three_cases() -> list[tuple[Any, ...]]:
    """Three cases of three patients with two labels; c2 has one undefined value, c3 no HD95 at all."""
    return [
        ("c1", "p1", "a", "dice", 0.9, "present"),
        ("c1", "p1", "b", "dice", 0.7, "present"),
        ("c2", "p2", "a", "dice", 0.6, "present"),
        ("c2", "p2", "b", "dice", NAN, "absent"),
        ("c3", "p3", "a", "dice", 0.0, "missed"),
        ("c3", "p3", "b", "dice", 0.4, "present"),
        ("c1", "p1", "a", "hd95", 1.0, "present"),
        ("c1", "p1", "b", "hd95", 2.0, "present"),
        ("c2", "p2", "a", "hd95", 4.5, "present"),
        ("c2", "p2", "b", "hd95", NAN, "absent"),
        ("c3", "p3", "a", "hd95", NAN, "missed"),
        ("c3", "p3", "b", "hd95", NAN, "present"),
    ]


@pytest.fixture
def vary(write_run: WriteRun) -> Any:
    """Writes a run from (case, repeat, condition, value) under one metric, patient by case unless told."""

    def write(
        rows: list[tuple[str, int, str, float]],
        metric: str = "accuracy",
        name: str = "net",
        patients: dict[str, str] | None = None,
        status: str = "present",
        **manifest: Any,
    ) -> Path:
        plain = [(case, (patients or {}).get(case, case), "all", metric, value, status) for case, _, _, value in rows]
        folder = write_run(name, plain, metrics=[metric], **manifest)
        frame = pd.read_parquet(folder / "scores.parquet")
        repeat, condition = zip(*[(repeat, condition) for _, repeat, condition, _ in rows], strict=True)
        frame.assign(repeat=repeat, condition=condition).to_parquet(folder / "scores.parquet")
        return folder

    return write
