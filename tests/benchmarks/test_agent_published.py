"""Denominators and means of the tables that were released of agents, and their files; skipped without clones."""

import re

import pytest

from medimg_eval.instantiate import build_task
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import composed

pytestmark = pytest.mark.slow


def table_rows(text, columns):
    """Rows of Markdown tables that begin with these columns: name -> numbers."""
    rows, inside = {}, False
    for line in text.splitlines():
        cells = [re.sub(r"</?u>|[*`]", "", cell).strip() for cell in line.strip().strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells == columns)
        if inside and all(re.fullmatch(r"\d+(\.\d+)?", cell) for cell in cells[-4:]):
            rows[cells[0]] = [float(cell) for cell in cells if re.fullmatch(r"\d+(\.\d+)?", cell)]
    return rows


def fitting(values, denominators):
    """Denominators of which every value, in per cent with two decimals, is a share."""
    return [
        of
        for of in denominators
        if all(any(f"{100 * (whole + up) / of:.2f}" == f"{value:.2f}" for up in (0, 1)) for value in values
               for whole in [int(value / 100 * of)])
    ]  # fmt: skip


def test_medctas_table_has_the_denominators_of_341_calls_and_107_answers():
    """No rollouts were released, so that the counts are all that can be checked of its 18 rows."""
    text = (require_clone("IVUL-KAUST/MedCTA") / "README.md").read_text(encoding="utf-8")
    rows = table_rows(text, ["Model", "Developer", "Inst", "Tool", "Arg", "Summ", "Facc", "Cs", "Scomp", "Gacc"])
    assert len(rows) == 18
    assert fitting([row[1] for row in rows.values()], range(100, 500)) == [341]
    assert fitting([row[2] for row in rows.values()], range(100, 500)) == [341]
    assert fitting([row[0] for row in rows.values()], range(200, 700)) == [448]
    answered = [row[3] for row in rows.values() if row[3] not in (35.51, 34.24)]
    assert fitting(answered, [448 - 341]) == [107]


def test_medmaslabs_average_is_the_mean_of_its_columns():
    """Avg-V is the mean of the 11 columns as printed, to the rounding of each: two of them have one decimal."""
    text = (require_clone("NUS-Project/MedMASLab") / "README.md").read_text(encoding="utf-8")
    columns = ["PubMedQA", "MedQA", "MedBullets", "MMLU", "VQA-RAD", "SLAKE-En", "MedVidQA", "MedCMR"]
    rows = table_rows(text, ["Method", *columns, "MedXpertQA-MM", "DxBench", "M3CoTBench", "Avg-V"])
    assert len(rows) >= 8
    means = {name: sum(row[:-1]) / 11 for name, row in rows.items() if len(row) == 12}
    assert len(means) >= 8
    off = {name: round(rows[name][-1] - mean, 3) for name, mean in means.items() if abs(rows[name][-1] - mean) > 0.101}
    assert off == {}


@pytest.mark.parametrize(
    ("task", "file", "count"),
    [
        ("agentclinic_medqa", "agentclinic_medqa.jsonl", 107),
        ("agentclinic_medqa", "agentclinic_medqa_extended.jsonl", 214),
        ("agentclinic_nejm", "agentclinic_nejm.jsonl", 15),
        ("agentclinic_nejm", "agentclinic_nejm_extended.jsonl", 120),
    ],
)
def test_agentclinics_released_cases_are_read_each(task, file, count):
    clone = require_clone("SamuelSchmidgall/AgentClinic")
    config = composed(task)
    config["layout"] |= {"root": str(clone), "records": {"test": file}}
    config.pop("expected", None)
    config["patient"] = config["reader"] = None
    cases = build_task(config).cases("test")
    assert len(cases) == count
    assert all(case.question is not None for case in cases)
