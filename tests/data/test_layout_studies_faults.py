"""Studies of odd tables: nobody is shown a wrong prior study, or told what is to be written."""

from __future__ import annotations

import pytest

from medimg_eval.data.layouts import Studies
from medimg_eval.data.studies.order import ranks
from medimg_eval.data.studies.texts import unspoilt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import config_of, picture
from tests.helpers.samples.reports_studies import table

REPORT = "INDICATION: Cough {n}.\n\nFINDINGS\nClear {n}.\n\nIMPRESSION: Normal {n}.\n"


def studies(root, rows, **settings):
    """Studies of a table of images, each with a text and a picture, unless those are there."""
    filled = [{"split": "test", "view": "PA", "time": "1", "patient": "p", **row} for row in rows]
    table(root / "t.csv", filled)
    for number, row in enumerate(filled):
        if row["file"] and not (root / f"{row['file']}.png").is_file():
            picture(root / f"{row['file']}.png", number)
        if not (root / f"{row['study']}.txt").is_file():
            (root / f"{row['study']}.txt").write_text(REPORT.format(n=row["study"]))
    given = {"study": "study", "patient": "patient", "image": "{file}.png", "when": ["time"], "report": "{study}.txt"}
    return Studies(root=str(root), records="t.csv", view="view", **{**given, **settings})


def test_lines_that_end_as_on_windows_have_the_sections_of_others(tmp_path):
    for name, ends in (("a", "\r\n"), ("b", "\r"), ("c", "\n")):
        (tmp_path / f"{name}.txt").write_bytes(REPORT.format(n=1).replace("\n", ends).encode())
    cases = studies(tmp_path, [{"study": name, "file": name} for name in "abc"]).cases("test")
    assert [case.target.read().value for case in cases] == ["Clear 1."] * 3
    assert [case.question.fields["indication"] for case in cases] == ["Cough 1."] * 3


def test_a_study_of_no_split_is_of_none_and_bars_no_other(tmp_path):
    rows = [{"study": "a", "file": "a"}, {"study": "b", "file": "b", "split": "", "time": "0"}]
    (case,) = studies(tmp_path, rows, split="split", prior=True).cases("test")
    assert case.id == "a"
    assert case.question.fields["prior_findings"] == "Clear b."
    rows.append({"study": "c", "file": "c", "split": "train"})
    with pytest.raises(UserError, match="patient 'p' lies in the splits 'test' and 'train'"):
        studies(tmp_path, rows, split="split").cases("test")


def test_an_image_without_a_time_does_not_take_it_from_its_study(tmp_path):
    rows = [
        {"study": "a", "file": "a1", "time": "5"},
        {"study": "a", "file": "a2", "time": ""},
        {"study": "b", "file": "b1", "time": ""},
        {"study": "b", "file": "b2", "time": "7"},
        {"study": "c", "file": "c", "time": ""},
    ]
    cases = {case.id: case for case in studies(tmp_path, rows, prior=True).cases("test")}
    assert cases["b"].question.fields["prior_report"].startswith("INDICATION: Cough a.")
    assert [cases[name].attributes["prior"] for name in "abc"] == ["no", "yes", "no"]


@pytest.mark.parametrize("times", [["93014.5", "half past ten"], ["9:30", "10:15"], ["31.12.2019"], ["12/31/19", "x"]])
def test_times_that_letters_do_not_put_in_order_are_refused(tmp_path, times):
    with pytest.raises(UserError, match=r"times? (is|are) '"):
        ranks([times])
    rows = [{"study": str(number), "file": str(number), "time": time} for number, time in enumerate(times)]
    with pytest.raises(UserError, match=r"task\.layout\.when names time: (a )?times? (is|are) '"):
        studies(tmp_path, rows, prior=True).cases("test")


def test_times_in_letters_of_one_form_are_put_in_order():
    assert ranks([["2024-05-31 09:10", "2024-05-31 10:10", "2023-12-01", ""]]).tolist() == [1, 2, 0, -1]
    assert ranks([["baseline", "follow-up"]]).tolist() == [0, 1]


def test_a_prior_report_that_cannot_be_read_fails_the_case_instead_of_being_left_untold(tmp_path):
    rows = [{"study": "a", "file": "a", "time": "1"}, {"study": "b", "file": "b", "time": "2"}]
    layout = studies(tmp_path, rows, prior=True)
    (tmp_path / "a.txt").unlink()
    case = {case.id: case for case in layout.cases("test")}["b"]
    assert case.question is None
    with pytest.raises(CaseError, match=r"prior study of 'b': .*a\.txt: cannot be read"):
        case.target.read()


def test_a_lost_image_of_the_prior_study_is_named_by_its_own_row(tmp_path):
    rows = [
        {"study": "a", "file": "a", "time": "1"},
        {"study": "b", "file": "b", "time": "2"},
    ]
    layout = studies(tmp_path, rows, prior=True)
    (tmp_path / "a.txt").write_text("IMPRESSION: No findings section, so it is asked about nowhere.")
    (tmp_path / "a.png").unlink()
    (case,) = layout.cases("test")
    with pytest.raises(CaseError, match=r"a\.png: no such file \(named by .*t\.csv, row 1\)"):
        case.images[1].read()


def test_a_study_without_any_image_is_not_said_to_have_other_views(tmp_path):
    rows = [{"study": "a", "file": "a"}, {"study": "b", "file": ""}, {"study": "c", "file": "c", "view": "AP"}]
    layout = studies(tmp_path, rows, views=["PA"])
    assert [case.id for case in layout.cases("test")] == ["a"]
    assert layout.left_out() == {"b": "has no image", "c": "has no image of the views PA"}


def test_findings_that_run_on_into_the_impression_are_told_without_it():
    held = {"findings": "Edema. Heart is large. IMPRESSION: Failure.", "impression": "Failure.", "indication": "Cough"}
    assert unspoilt(held, ["impression"]) == {**held, "findings": "Edema. Heart is large."}
    assert unspoilt(held, ["findings"]) == held
    assert unspoilt({"indication": "Cough.\nFindings: Edema."}, ["findings"]) == {"indication": "Cough."}
    assert unspoilt({"findings": "LUNGS: Clear.\nHEART: Normal  size."}, ["impression"]) == {
        "findings": "LUNGS: Clear.\nHEART: Normal  size."
    }


@pytest.mark.parametrize("name", ["chexpert_plus_summary", "iu_xray_summary"])
def test_no_summary_is_asked_for_with_the_impression_in_the_prompt(name, tmp_path):
    findings = "Edema of both lungs.\nIMPRESSION: Heart failure."
    told = {"findings": findings, "impression": "Heart failure.", "uid": "1", "Problems": "edema"}
    names = "path_to_image deid_patient_id frontal_lateral ap_pa section_clinical_history section_history sex"
    names += " section_comparison section_technique indication comparison"
    row = dict.fromkeys(names.split(), "") | told | {"split": "valid", "deid_patient_id": "p"}
    row |= {
        "section_findings": findings,
        "section_impression": "Heart failure.",
        "path_to_image": "valid/p/s/view1.jpg",
    }
    for file in ("df_chexpert_plus_240401.csv", "indiana_reports.csv"):
        table(tmp_path / file, [row])
    task = build_task(config_of(name, tmp_path))
    (case,) = task.cases("test")
    assert case.target.read().value == "Heart failure."
    prompt = task.prompt(case, task.read_images(case)).text
    assert "Edema of both lungs." in prompt
    assert "failure" not in prompt


@pytest.mark.parametrize("name", ["Findings", "Comparison", "Report", "Study", "Impression"])
def test_a_line_that_ends_with_the_first_word_of_a_sentence_begins_no_section(name, tmp_path):
    report = f"FINDINGS: Clear. {name}\n is made with the film before.\n\nIMPRESSION:\n \n Normal. {name}\n was told.\n"
    (tmp_path / "a.txt").write_text(report)
    (case,) = studies(tmp_path, [{"study": "a", "file": "a"}]).cases("test")
    assert case.target.read().value == f"Clear. {name} is made with the film before."
    assert case.question.fields["impression"] == f"Normal. {name} was told."
    assert case.question.fields["comparison"] == ""
    (tmp_path / "a.txt").write_text("FINDINGS\nThe heart is as in the prior\nstudy\nand large.\nImpression\nNormal.")
    (case,) = studies(tmp_path, [{"study": "a", "file": "a"}]).cases("test")
    assert case.target.read().value == "The heart is as in the prior study and large."
