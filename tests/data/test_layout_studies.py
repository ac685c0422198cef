"""Studies: views in their order, sections, and the study before, out of tables in any order."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.data.layouts import Questions, Studies
from medimg_eval.data.studies.order import UNKNOWN, Views, priors, ranks
from medimg_eval.data.studies.tables import read_openi
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.instantiate import build, build_task
from tests.helpers.catalogue import picture, task_of, write_json
from tests.helpers.samples.reports_studies import MIMIC, mimic, table

DOCS = (Path(medimg_eval.__file__).parents[1] / "docs" / "data" / "reports.md").read_text()
FILE = "files/p{subject_id:.2}/p{subject_id}/s{study_id}"


@pytest.fixture
def root(tmp_path):
    """MIMIC-CXR's files."""
    mimic(tmp_path)
    return tmp_path


def studies(root, **settings):
    given = {
        "records": "mimic-cxr-2.0.0-metadata.csv.gz",
        "join": [{"join": "mimic-cxr-2.0.0-split.csv.gz", "on": "dicom_id"}],
        "study": "study_id",
        "patient": "subject_id",
        "split": "split",
        "image": f"{FILE}/{{dicom_id}}.jpg",
        "view": "ViewPosition",
        "views": ["PA", "AP", ["LATERAL", "LL"], "*"],
        "report": {"zip": "mimic-cxr-reports.zip", "member": f"{FILE}.txt"},
        "when": ["StudyDate", "StudyTime"],
        **settings,
    }
    return Studies(root=str(root), **given)


def names(case):
    return [image.files[0].stem for image in case.images]


def by_id(layout, split="test"):
    return {case.id: case for case in layout.cases(split)}


def test_views_come_in_the_order_that_is_asked_for_and_others_last(root):
    cases = by_id(studies(root))
    assert names(cases["51"]) == ["51-1", "51-0"]
    assert names(cases["52"]) == ["52-0", "52-2", "52-1"]
    assert cases["52"].attributes["views"] == "AP, AP"
    assert cases["52"].question.fields["views"] == "AP, AP"
    assert names(by_id(studies(root, views=[]))["51"]) == ["51-0", "51-1"]
    assert names(by_id(studies(root, views=["AP", "PA"], most_images=1))["52"]) == ["52-0"]


def test_a_study_without_what_is_asked_for_is_left_out_and_named(root):
    layout = studies(root, views=["PA"])
    assert [case.id for case in layout.cases("test")] == ["54", "51", "61"]
    assert layout.left_out() == {"52": "has no image of the views PA", "53": "has no image of the views PA"}
    layout = studies(root, sections=["impression"], needs=["findings", "technique"])
    assert [case.id for case in layout.cases("test")] == ["51"]
    assert layout.left_out()["53"] == "has no findings and no technique"
    with pytest.raises(UserError, match=r"no study of split 'test' is left; the first has no addendum"):
        studies(root, sections=["addendum"]).cases("test")


def test_the_split_is_that_of_the_joined_table_whatever_its_order(root):
    assert [case.id for case in studies(root).cases("train")] == ["71"]
    with pytest.raises(SplitError, match="no study of split 'validate'"):
        studies(root).cases("validate")
    assert {Path(path).name for path in studies(root).split_source()} == {
        "mimic-cxr-2.0.0-metadata.csv.gz",
        "mimic-cxr-2.0.0-split.csv.gz",
    }


def test_the_prior_study_is_the_last_strictly_earlier_one_of_the_same_patient(root):
    cases = by_id(studies(root, prior=True))
    # 51 was at half past nine (93014.5), 52 at nine in the evening of the same day; 54 follows 53, which is asked about
    # nowhere, for it has no findings.
    assert {name: case.attributes["prior"] for name, case in cases.items()} == {
        "51": "no",
        "52": "yes",
        "54": "yes",
        "61": "no",
    }
    assert names(cases["52"]) == ["52-0", "52-2", "52-1", "51-1", "51-0"]
    assert names(cases["54"]) == ["54-0", "53-0"]
    assert names(cases["61"]) == ["61-0"]
    fields = cases["52"].question.fields
    assert fields["current_images"] == "<image 1> <image 2> <image 3>"
    assert fields["prior_images"] == "<image 4> <image 5>"
    assert fields["prior_views"] == "PA, LATERAL"
    assert fields["prior_findings"] == "The heart is large. There is a small left pleural effusion."
    assert fields["indication"] == "Follow-up."
    assert cases["54"].question.fields["prior_impression"] == "Tube in the stomach."
    assert cases["61"].question.fields["prior_report"] == ""


def test_without_prior_nothing_of_it_is_told(root):
    case = by_id(studies(root))["52"]
    assert not [name for name in case.question.fields if name.startswith("prior")]
    assert "prior" not in case.attributes


def test_reports_may_lie_packed_or_unpacked_and_say_the_same(root):
    packed = by_id(studies(root))
    with zipfile.ZipFile(root / "mimic-cxr-reports.zip") as archive:
        archive.extractall(root)
    (root / "mimic-cxr-reports.zip").unlink()
    for layout in (studies(root), studies(root, report=f"{FILE}.txt")):
        for name, case in by_id(layout).items():
            assert case.target.read() == packed[name].target.read()
            assert case.question == packed[name].question
    (root / "files/p10/p10000032/s52.txt").unlink()
    layout = studies(root, report=f"{FILE}.txt")
    lost = by_id(layout)["52"]
    with pytest.raises(CaseError, match=r"study '52': .*s52\.txt: cannot be read"):
        lost.target.read()
    assert lost.question is None
    assert "52" not in layout.left_out()


def test_a_report_is_told_apart_by_its_content_and_not_by_where_it_lies(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(root, other, dirs_exist_ok=True)
    assert data_fingerprint(studies(root).cases("test")) == data_fingerprint(studies(other).cases("test"))
    assert data_fingerprint(studies(root).cases("test")) != data_fingerprint(studies(root, prior=True).cases("test"))


def test_a_study_of_two_patients_or_a_patient_of_two_splits_is_refused(root):
    rows = [
        {"dicom_id": f"{study}-{number}", "study_id": study, "subject_id": patient, "split": split}
        for number, (study, patient, split) in enumerate(
            [("1", "a", "test"), ("2", "a", "train"), ("3", "b", "test"), ("3", "c", "test")]
        )
    ]
    for number, row in enumerate(rows):
        picture(root / f"{row['dicom_id']}.png", number)
    settings = {"join": [], "image": "{dicom_id}.png", "view": "", "views": [], "when": []}
    settings |= {"report": {"columns": {"findings": "dicom_id"}}, "records": "t.csv"}
    table(root / "t.csv", rows[:2])
    with pytest.raises(UserError, match=r"t\.csv, row 2: patient 'a' lies in the splits 'test' and 'train'"):
        studies(root, **settings).cases("test")
    assert len(studies(root, **settings, allow_overlap="they are phantoms").cases("test")) == 1
    table(root / "t.csv", rows[2:])
    with pytest.raises(UserError, match=r"row 2: patient or split of study '3' differs: .*row 1 says otherwise"):
        studies(root, **settings).cases("test")
    table(root / "t.csv", [{**rows[0], "study_id": ""}])
    with pytest.raises(UserError, match=r"row 1: says no study"):
        studies(root, **settings).cases("test")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"report": {"file": "x"}}, "expected the pattern of a text file"),
        ({"image": {"zip": "x"}}, "expected a pattern or"),
        ({"sections": "findings"}, "expected a list of sections"),
        ({"prior": True, "when": []}, "prior needs `patient` and `when`"),
        ({"view": ""}, "views needs `view`"),
        ({"join": [{"join": "x.csv"}]}, r"expected \{join: table, on: column\}"),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(root, settings, message):
    with pytest.raises(UsageError, match=message):
        studies(root, **settings).cases("test")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"records": "none.csv"}, "none.csv: no such file"),
        ({"study": "studyid"}, "no column 'studyid' of task.layout.study.*did you mean 'study_id'"),
        ({"image": "{dicom}.jpg"}, "no column 'dicom' of task.layout.image"),
        ({"join": [{"join": "mimic-cxr-2.0.0-split.csv.gz", "on": "dicom"}]}, "no column 'dicom' of task.layout.join"),
        ({"study": r"{dicom_id~^(x)}"}, "does not fit"),
        ({"explode": ["ViewPosition"], "records": {"train": "t.csv"}}, "names no split 'test'"),
    ],
)
def test_what_the_files_do_not_hold_is_named(root, settings, message):
    with pytest.raises(UserError, match=message):
        studies(root, **settings).cases("test")
    with pytest.raises(UserError, match="no such folder"):
        studies(root / "none").cases("test")


def test_rows_of_a_joined_table_that_say_the_same_count_once_and_others_are_refused(root):
    rows = [{"dicom_id": f"{study}-0", "split": home} for study, (_, home, *_) in MIMIC.items()]
    table(root / "twice.csv", rows + rows)
    layout = studies(root, join=[{"join": "twice.csv", "on": "dicom_id"}], split="split", only="54")
    with pytest.raises(UserError, match="says otherwise"):  # the other images of 52 are in no split
        layout.cases("test")
    table(root / "twice.csv", [*rows, {"dicom_id": "51-0", "split": "train"}])
    with pytest.raises(UserError, match=r"twice\.csv, row 7: says another thing of '51-0' than .*row 1"):
        layout.cases("test")


def test_lists_of_images_are_taken_apart_and_unequal_ones_refused(tmp_path):
    for name in ("a", "b"):
        picture(tmp_path / f"{name}.png")
    one = {"s": "1", "image": ["a.png", "b.png"], "view": ["L", "F"], "text": "Clear."}
    write_json(tmp_path / "t.json", [one, {**one, "s": "2", "image": [], "view": []}])
    layout = Studies(
        root=str(tmp_path),
        records="t.json",
        explode=["image", "view"],
        study="s",
        image="image",
        view="view",
        views=["F", "L"],
        report={"columns": {"findings": "text"}},
    )
    (case,) = layout.cases("any")
    assert names(case) == ["b", "a"]
    assert layout.left_out() == {"2": "has no image"}
    write_json(tmp_path / "t.json", [{**one, "view": ["L"]}])
    with pytest.raises(UserError, match=r"t\.json, item 1: lists are of different lengths: 'image' 2, 'view' 1"):
        layout.cases("any")


def test_images_may_lie_in_an_archive(root):
    with zipfile.ZipFile(root / "images.zip", "w") as archive:
        for path in sorted((root / "files").rglob("*.jpg")):
            archive.write(path, path.relative_to(root).as_posix())
    shutil.rmtree(root / "files")
    case = by_id(studies(root, image={"zip": "images.zip", "member": f"{FILE}/{{dicom_id}}.jpg"}))["51"]
    assert case.images[0].read().array.shape[1:] == (32, 32)


def test_a_report_of_openi_is_read_by_its_labels_and_bombs_are_refused(tmp_path):
    path = tmp_path / "1.xml"
    path.write_text(
        '<eCitation><uId id="CXR1"/><AbstractText Label="FINDINGS">Clear.</AbstractText>'
        '<AbstractText Label="IMPRESSION"/><parentImage id="CXR1_b"/><parentImage id="CXR1_a"/></eCitation>'
    )
    found = read_openi(path)
    assert (found["uid"], found["findings"], found["impression"]) == ("CXR1", "Clear.", "")
    assert found["images"] == ["CXR1_b", "CXR1_a"]
    path.write_text("<eCitation>")
    with pytest.raises(UserError, match=r"1\.xml: is no XML"):
        read_openi(path)
    path.write_text("<eCitation/>")
    with pytest.raises(UserError, match="names no uId"):
        read_openi(path)
    path.write_text('<!DOCTYPE a [<!ENTITY b "c">]><eCitation>&b;</eCitation>')
    with pytest.raises(UserError, match="defines entities"):
        read_openi(path)
    path.write_text(path.read_text(), encoding="utf-16")
    with pytest.raises(UserError, match="defines entities"):
        read_openi(path)


def test_times_are_ranked_as_numbers_where_all_are_and_blank_ones_are_unknown():
    # 93014.5 is before 213000 as a number, and would be after it as a text.
    assert ranks([["20200101", "20200101", "20191231", ""], ["213000", "93014.5", "0", "1"]]).tolist() == [2, 1, 0, -1]
    assert ranks([["2024-05-31", "2023-12-01", "2024-05-31"]]).tolist() == [1, 0, 1]
    assert ranks([["", ""]]).tolist() == [UNKNOWN, UNKNOWN]


def test_findings_and_impression_in_one_count_where_both_are_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("FINDINGS AND IMPRESSION: Clear lungs.\n")
    (tmp_path / "b.txt").write_text("FINDINGS: Edema.\n\nCONCLUSION: Failure.\n")
    table(tmp_path / "t.csv", [{"s": "a"}, {"s": "b"}])
    layout = {"root": str(tmp_path), "records": "t.csv", "study": "s", "report": "{s}.txt"}
    both = by_id(Studies(**layout, sections=["findings", "impression"]))
    assert [case.target.read().value for case in both.values()] == ["Clear lungs.", "Edema. Failure."]
    assert list(by_id(Studies(**layout, sections=["impression"]))) == ["b"]
    assert by_id(Studies(**layout, sections=["conclusion"]))["b"].target.read().value == "Failure."


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-1, 4)), max_size=12))
def test_the_prior_is_what_a_search_through_all_studies_finds(rows):
    patients = {str(place): patient for place, (patient, _) in enumerate(rows)}
    times = {str(place): time for place, (_, time) in enumerate(rows)}
    wanted = {}
    for study, time in times.items():
        earlier = [
            (times[other], place, other)
            for place, other in enumerate(times)
            if patients[other] == patients[study] and UNKNOWN < times[other] < time
        ]
        if earlier:
            wanted[study] = max(earlier)[2]
    assert priors(patients, times) == wanted


def test_views_are_compared_without_case():
    views = Views.of(["pa", ["LATERAL", "ll"]], 0)
    assert [one.file for one in views.shown([("a", "LL"), ("b", "PA"), ("c", "SWIMMERS"), ("", "PA")])] == ["b", "a"]


def test_r2gens_references_are_cleaned_and_cut_and_the_plain_ones_untouched(tmp_path):
    plain, cut = (task_of(name, tmp_path / name).cases("test") for name in ("iu_xray", "iu_xray_r2gen"))
    assert plain[0].target.read().value == "1. No effusion. 2. The heart is large."
    assert cut[0].target.read().value == "no effusion . the heart is large ."
    assert plain[1].target.read().value.endswith("Edema.")
    assert len(cut[1].target.read().value.split()) == 59


def test_boxes_of_sentences_stay_beside_the_report(tmp_path):
    case = task_of("padchest_gr", tmp_path).cases("test")[0]
    key = case.target.read()
    assert key.value == "Left pleural effusion. Normal heart."
    assert key.more["grounding"][0]["boxes"] == [[0.1, 0.6, 0.4, 0.9]]
    assert case.patient == "p1"


def test_records_that_say_nothing_are_left_out_where_that_is_asked_for(tmp_path):
    write_json(tmp_path / "t.json", [{"n": "a", "text": "Clear."}, {"n": "b", "text": " "}, {"n": "c"}])
    settings = {"root": str(tmp_path), "records": "t.json", "id": "n", "kind": "report", "question": {"text": "Write."}}
    layout = Questions(**settings, answer={"value": "text", "absent": "leave_out"})
    assert [case.id for case in layout.cases("test")] == ["a"]
    assert layout.left_out() == {"b": "says nothing of 'text'", "c": "says nothing of 'text'"}
    assert layout.cases("test")[0].question.text == "Write."
    failing = Questions(**settings, answer={"value": "text"}).cases("test")
    assert [case.question is None for case in failing] == [False, True, True]
    with pytest.raises(UsageError, match="answer.absent is invalid: .*got 'drop'"):
        Questions(**settings, answer={"value": "text", "absent": "drop"})


def test_a_split_that_a_column_names_is_kept_by_its_name(tmp_path):
    write_json(tmp_path / "t.json", [{"n": "a", "split": "test"}, {"n": "b", "split": "train"}])
    layout = Questions(
        root=str(tmp_path),
        records="t.json",
        id="n",
        kind="report",
        question={"text": "Write."},
        answer={"value": "n"},
        expand=[{"filter": {"split": "{split}"}}],
    )
    assert [case.id for case in layout.cases("train")] == ["b"]


def test_the_examples_of_the_guide_are_what_hydra_takes(root, tmp_path):
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        config = OmegaConf.create(block)
        if "defaults" in config:
            continue
        layout = config.get("layout", config)
        layout.root = str(root)
        if layout.records == "mimic-cxr-2.0.0-metadata.csv.gz":
            made = build_task(config) if "layout" in config else build(config)
            (made.layout if "layout" in config else made).cases("test")
        else:
            build_task(config) if "layout" in config else build(config)


def test_the_guide_names_every_setting_of_the_layout():
    for name in Studies.__dataclass_fields__:
        assert f"`{name}`" in DOCS, name
    assert not [line for line in DOCS.splitlines() if len(line) > 150 and not line.startswith("|")]


@pytest.mark.slow
def test_two_hundred_thousand_studies_are_read_in_seconds(tmp_path):
    import time

    rng = np.random.default_rng(0)
    count = 200_000
    patients = np.sort(rng.integers(10_000_000, 10_060_000, count)).tolist()
    homes = ["train" if patient % 70 else "test" for patient in patients]
    dates = rng.integers(21000101, 22000101, count).tolist()
    rows = zip(range(count), patients, homes, dates, strict=True)
    lines = (f"s{n},{patient},{home},PA,{date},1200.5,Clear lungs.\n" for n, patient, home, date in rows)
    (tmp_path / "t.csv").write_text("study,patient,split,view,date,time,findings\n" + "".join(lines))
    layout = Studies(
        root=str(tmp_path),
        records="t.csv",
        study="study",
        patient="patient",
        split="split",
        image="{patient}/{study}.jpg",
        view="view",
        when=["date", "time"],
        prior=True,
        report={"columns": {"findings": "findings"}},
    )
    start = time.process_time()
    cases = layout.cases("test")
    assert time.process_time() - start < 10
    assert len(cases) == homes.count("test")


def test_json_of_the_task_is_plain(root):
    """What a report's fingerprint is made of can be stored."""
    assert json.dumps(studies(root).cases("test")[0].target.content)
