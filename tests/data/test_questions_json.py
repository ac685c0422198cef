"""K3: questions in JSON, JSON lines and CSV, whose images lie in folders and zip files, as their authors write them."""

import base64
import json
import pickle
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import Questions
from medimg_eval.data.questions.records import About
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError


def picture(path, level, size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.full(size[::-1], level, np.uint8)).save(path)


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def levels(case):
    return [int(image.read().array.max()) for image in case.images]


def key(case):
    return case.target.read().value


def test_a_right_text_is_found_among_two_to_four_options_as_in_omnimedvqa(tmp_path):
    picture(tmp_path / "Images" / "ACRIMA" / "a.png", 3)
    rows = [
        {"gt_answer": "Fundus photo", "option_A": "CT", "option_B": "Fundus photo", "option_C": "MR", "option_D": "US"},
        {"gt_answer": "no", "option_A": "Yes", "option_B": "No."},
        {"gt_answer": "Maybe", "option_A": "Yes", "option_B": "No"},
    ]
    more = {"question": "q", "image_path": "Images/ACRIMA/a.png", "question_type": "Modality Recognition"}
    rows = [row | more | {"question_id": f"ACRIMA_{place}"} for place, row in enumerate(rows)]
    write_json(tmp_path / "QA_information" / "Open-access" / "ACRIMA.json", rows)
    cases = Questions(
        root=str(tmp_path),
        records="QA_information/Open-access/*.json",
        id="question_id",
        options={"columns": ["option_A", "option_B", "option_C", "option_D"]},
        answer={"text": "gt_answer"},
        images="image_path",
        attributes={"type": "question_type"},
    ).cases("test")
    assert [key(case) for case in cases[:2]] == ["B", "B"]
    assert cases[1].question.options == {"A": "Yes", "B": "No."}
    assert cases[0].patient == cases[1].patient
    assert levels(cases[0]) == [3]
    words = r"ACRIMA\.json, item 3: the answer 'Maybe' is not among the options \(A: Yes, B: No\); mend the record"
    with pytest.raises(CaseError, match=words):
        cases[2].target.read()
    assert (cases[2].question, cases[2].images) == (None, ())


def test_letters_of_a_list_and_images_of_a_zip_as_in_medxpertqa(tmp_path):
    picture(tmp_path / "MM-1-a.jpeg", 200)
    picture(tmp_path / "b.png", 9)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.write(tmp_path / "MM-1-a.jpeg", "images/MM-1-a.jpeg")
        archive.write(tmp_path / "b.png", "images/b.png", zipfile.ZIP_DEFLATED)
    text = "Which? Answer Choices: (A) one (B) two (C) three"
    row = {"id": "MM-1", "question": text, "options": {"A": "one", "B": "two", "C": "three"}, "label": "C"}
    rows = [row | {"images": ["MM-1-a.jpeg", "b.png"]}, row | {"id": "MM-2", "images": ["MM-1-b.jpeg"]}]
    (tmp_path / "MM").mkdir()
    (tmp_path / "MM" / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    settings = {
        "root": str(tmp_path),
        "records": {"test": "MM/test.jsonl"},
        "id": "id",
        "answer": {"letter": "label"},
        "images": {"zip": "images.zip", "member": "images/{images}"},
    }
    first, second = Questions(**settings, options={"dict": "options"}).cases("test")
    assert (levels(first), key(first), first.question.text) == ([200, 9], "C", text)
    assert first.images[0].files == (tmp_path / "images.zip",)
    assert pickle.loads(pickle.dumps(first.images[1])).geometry().shape == (4, 6)
    words = r"holds no 'images/MM-1-b\.jpeg', which line 2 names; did you mean 'images/MM-1-a\.jpeg'\? \(2 members\)"
    with pytest.raises(CaseError, match=words):
        second.images[0].read()
    inside = Questions(**settings, options={"inside": "question", "remove": True}).cases("test")[0]
    assert (inside.question.text, inside.question.options) == ("Which?", {"A": "one", "B": "two", "C": "three"})
    own = [{"letter": "A", "content": "x"}, {"letter": "B", "content": "y"}]
    write_json(tmp_path / "own.json", [row | {"options": own, "label": ["B"], "images": [{"image_path": "b.png"}]}])
    (case,) = Questions(
        **settings | {"records": "own.json", "options": {"list": "options"}, "images": "{images.*.image_path}"}
    ).cases("test")
    assert (key(case), case.question.options, levels(case)) == ("B", {"A": "x", "B": "y"}, [9])


def test_an_archive_that_was_unpacked_serves_as_well_and_a_damaged_one_is_named(tmp_path):
    picture(tmp_path / "figures" / "x.png", 5)
    (tmp_path / "test_2.csv").write_text(
        "index,Figure_path,Question,Choice A,Choice B,Answer_label\n1,x.png,q, A:left , B:A: right,B\n"
    )
    made = Questions(
        root=str(tmp_path),
        records={"test": "test_2.csv"},
        id="index",
        question="Question",
        options={"columns": ["Choice A", "Choice B"], "strip": True},
        answer={"letter": "Answer_label"},
        images={"zip": "images_2.zip", "member": "figures/{Figure_path}"},
    )
    (case,) = made.cases("test")
    assert (levels(case), case.question.options, key(case)) == ([5], {"A": "left", "B": "A: right"}, "B")
    with zipfile.ZipFile(tmp_path / "images_2.zip", "w") as archive:
        archive.write(tmp_path / "figures" / "x.png", "figures/x.png", zipfile.ZIP_DEFLATED)
    data = bytearray((tmp_path / "images_2.zip").read_bytes())
    data[60] ^= 255
    (tmp_path / "images_2.zip").write_bytes(data)
    with pytest.raises(CaseError, match=r"images_2\.zip, member 'figures/x\.png' \(line 2\): is damaged"):
        made.cases("test")[0].images[0].read()


def test_a_pair_of_images_makes_two_questions_of_a_set_as_in_mediconfusion(tmp_path):
    for number in (11, 22):
        picture(tmp_path / "images" / f"{number}.png", number)
    record = {"question": "q", "option_A": "x", "option_B": "y", "im_1_local": 11, "im_2_local": 22}
    record |= {"im_1_correct": "B", "im_2_correct": "A", "category_1": ["lung"], "category_2": ["bone", "joint"]}
    write_json(tmp_path / "dataset.json", {"p0": record, "p1": record})
    cases = Questions(
        root=str(tmp_path),
        records="dataset.json",
        expand=[
            {
                "pair": [
                    {"image": "im_1_local", "correct": "im_1_correct", "category": "category_1"},
                    {"image": "im_2_local", "correct": "im_2_correct", "category": "category_2"},
                ]
            }
        ],
        id="{key1}-{member}",
        options={"columns": ["option_A", "option_B"]},
        answer={"letter": "correct"},
        images="images/{image}.png",
        attributes={"category": "category"},
        set="key1",
    ).cases("test")
    assert [case.id for case in cases] == ["p0-1", "p0-2", "p1-1", "p1-2"]
    assert [key(case) for case in cases[:2]] == ["B", "A"]
    assert [levels(case) for case in cases[:2]] == [[11], [22]]
    assert cases[1].attributes == {"category": "bone, joint", "set": "p0", "member": "2"}
    assert [case.patient for case in cases] == ["p0", "p0", "p1", "p1"]


def test_records_lie_below_keys_at_two_depths_as_in_pathmmu(tmp_path):
    for name in "ab":
        picture(tmp_path / "images" / f"{name}.png", ord(name))

    def item(number, name):
        options = ["A) Gland (left)", "B) B) cell", "C) 3.5 mm"]
        return {"No": number, "img": f"{name}.png", "question": "q", "options": options, "answer": "C) 3.5 mm"}

    write_json(
        tmp_path / "data.json",
        {
            "PubMed": {"val": [item(0, "a")], "test": [item(0, "a"), item(1, "b")]},
            "Atlas": {"test": [item(0, "b")]},
        },
    )
    made = Questions(
        root=str(tmp_path),
        records="data.json",
        at={"val": "*.val", "test": "*.test"},
        id="{key1}-{split}-{No}",
        options={"list": "options", "strip": True},
        answer={"text": "answer"},
        images="images/{img}",
        attributes={"subset": "key1"},
    )
    assert [case.id for case in made.cases("test")] == ["PubMed-test-0", "PubMed-test-1", "Atlas-test-0"]
    (case,) = made.cases("val")
    assert case.question.options == {"A": "Gland (left)", "B": "B) cell", "C": "3.5 mm"}
    assert (key(case), case.attributes, levels(case)) == ("C", {"subset": "PubMed"}, [97])
    with pytest.raises(SplitError, match=r"task\.layout\.at names no split 'train'"):
        made.cases("train")


def test_a_right_option_and_distractors_have_letters_of_their_own_as_in_medbookvqa(tmp_path):
    picture(tmp_path / "figures" / "f.png", 8)
    record = {"_id": 5, "Question": "q", "Answer": "right", "Distractors": ["w1", "w2", "w3"], "correct_choice": "C"}
    record |= {"other_choices": ["D", "A", "B"], "image_path": "../figures/f.png", "LABEL": {"Modality": ["X", "CR"]}}
    write_json(tmp_path / "data.json", [record])
    (case,) = Questions(
        root=str(tmp_path),
        records="data.json",
        id="_id",
        question="Question",
        options={
            "answer": "Answer",
            "letter": "correct_choice",
            "distractors": "Distractors",
            "letters": "other_choices",
        },
        answer={"letter": "correct_choice"},
        images={"path": "image_path", "strip": "../"},
        attributes={"modality": "LABEL.Modality", "first": "LABEL.Modality.0"},
    ).cases("test")
    assert list(case.question.options.items()) == [("A", "w2"), ("B", "w3"), ("C", "right"), ("D", "w1")]
    assert (key(case), levels(case)) == ("C", [8])
    assert case.attributes == {"modality": "X, CR", "first": "X"}


def test_a_dictionary_of_lists_gives_the_task_and_an_index_the_answer_as_in_chexbench(tmp_path):
    picture(tmp_path / "a.png", 4)
    row = {"question": "q", "option_0": "x", "option_1": "y", "option_2": float("nan"), "image_path": ["a.png"]}
    write_json(tmp_path / "data.json", {"View": [row | {"answer": 1}], "Disease": [row | {"answer": 2}]})
    first, second = Questions(
        root=str(tmp_path),
        records="data.json",
        id="{key1}-{row_number}",
        options={"columns": ["option_0", "option_1", "option_2"]},
        answer={"index": "answer", "from": 0},
        images="image_path",
        attributes={"task": "key1"},
    ).cases("test")
    assert (first.id, key(first), first.question.options) == ("View-1", "B", {"A": "x", "B": "y"})
    assert second.id == "Disease-2"
    with pytest.raises(CaseError, match=r"data\.json, item 1 of 'Disease': the answer '2' is not among the options"):
        second.target.read()


def test_two_visits_a_list_of_questions_and_those_that_were_selected_as_in_temmed(tmp_path):
    for number in (1, 2):
        picture(tmp_path / f"{number}.png", number)
    asked = [{"VQA_question": f"q{place}", "VQA_answer": answer} for place, answer in enumerate(("Yes", "no."))]
    pair = {"image_path": "2.png", "historical_image_path": "1.png"}
    rows = [pair | {"VQA_Final": asked}, pair | {"VQA_Final": []}, pair | {"VQA_Final": asked}]
    write_json(tmp_path / "TestSet.json", rows)
    write_json(tmp_path / "Selected.json", [{"img_id": 0, "question_id": 1}, {"img_id": 2, "question_id": 0}])
    (tmp_path / "reports.csv").write_text('path,section_impression,x\n2.png,"Better,\nmuch",1\n')
    settings = {
        "root": str(tmp_path),
        "records": "TestSet.json",
        "images": ["historical_image_path", "image_path"],
    }
    cases = Questions(
        **settings,
        expand=[
            {"explode": "VQA_Final"},
            {"listed": "Selected.json", "on": {"row_index": "img_id", "VQA_Final_index": "question_id"}},
        ],
        kind="yes_no",
        question="VQA_Final.VQA_question",
        answer={"value": "VQA_Final.VQA_answer"},
    ).cases("test")
    assert [(case.id, case.question.text, key(case)) for case in cases] == [
        ("TestSet-1-2", "q1", "no"),
        ("TestSet-3-1", "q0", "yes"),
    ]
    assert levels(cases[0]) == [1, 2]
    assert cases[0].patient == cases[1].patient
    reports = Questions(
        **settings,
        expand=[{"join": "reports.csv", "on": {"image_path": "path"}, "keep": ["section_impression"]}],
        kind="open",
        question="Report on {image_path}.",
        answer={"value": "section_impression"},
    ).cases("test")
    assert (reports[0].question.text, key(reports[0])) == ("Report on 2.png.", "Better,\nmuch")


def test_adversarial_pairs_of_an_image_are_a_set_as_in_probmed(tmp_path):
    picture(tmp_path / "a.png", 4)
    kinds = ("entity_gt_1", "modality_gt", "entity_hallu_1", "modality_hallu")
    rows = [
        {
            "id": 3,
            "i": place,
            "image": "a.png",
            "qa_type": one,
            "question": "?",
            "answer": "no" if "hallu" in one else "yes",
        }
        for place, one in enumerate(kinds)
    ]
    write_json(tmp_path / "test.json", rows)
    cases = Questions(
        root=str(tmp_path),
        records="test.json",
        id="{id}-{qa_type}",
        kind="yes_no",
        answer={"value": "answer"},
        images="image",
        set="{id}-{qa_type~^[a-z]+}",
        order="i",
    ).cases("test")
    assert [case.id for case in cases] == ["3-entity_gt_1", "3-entity_hallu_1", "3-modality_gt", "3-modality_hallu"]
    assert [case.attributes["set"] for case in cases] == ["3-entity"] * 2 + ["3-modality"] * 2
    assert [key(case) for case in cases] == ["yes", "no", "yes", "no"]


def test_a_box_comes_with_the_size_of_its_image_as_in_medsg_bench(tmp_path):
    picture(tmp_path / "Task1" / "a.png", 4, (60, 40))
    picture(tmp_path / "Task1" / "b.png", 4, (80, 20))
    row = {"task": "concept", "images": ["Task1/a.png", "Task1/b.png"], "question": "Where?", "answer": [1, 2, 30, 20]}
    write_json(tmp_path / "Task1.json", [row])
    settings = {"root": str(tmp_path), "records": "Task*.json", "kind": "box", "images": "images"}
    (case,) = Questions(**settings, answer={"value": "answer"}, more={"size": "image 2", "task": "task"}).cases("test")
    found = case.target.read()
    assert (found.value, found.more) == ((1.0, 2.0, 30.0, 20.0), {"size": (80, 20), "task": "concept"})
    assert sound(tmp_path, more={"size": "image"}).cases("test")[0].target.read().more == {"size": (6, 4)}
    scaled = Questions(**settings, answer={"value": "answer", "box": "xywh", "scale": "percent"}).cases("test")[0]
    assert key(scaled) == pytest.approx((0.6, 0.8, 18.6, 8.8))


def test_several_right_boxes_in_a_list_or_a_text(tmp_path):
    picture(tmp_path / "a.png", 4, (100, 50))
    rows = [
        {"answer": [[1, 2, 3, 4], [5, 6, 7, 8]]},
        {"answer": "<box>[[.1, 0.2, 0.3, 0.4]]</box>"},
        {"answer": "1, 2"},
    ]
    write_json(tmp_path / "t.json", [row | {"question": "?", "image": "a.png"} for row in rows])
    settings = {"root": str(tmp_path), "records": "t.json", "kind": "box", "images": "image"}
    cases = Questions(**settings, answer={"value": "answer"}).cases("test")
    assert key(cases[0]) == ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0))
    assert key(cases[1]) == (0.1, 0.2, 0.3, 0.4)
    with pytest.raises(CaseError, match=r"t\.json, item 3: the box '1, 2' is not of four numbers"):
        cases[2].target.read()
    cases = Questions(**settings, answer={"value": "answer", "scale": "unit"}).cases("test")
    assert key(cases[1]) == pytest.approx((10, 10, 30, 20))


def test_questions_without_images_and_texts_only(tmp_path):
    row = {"id": 1, "question": "Hỏi?", "options": ["một", "hai"], "answer": "B", "medical_topic": ["a", "b"]}
    (tmp_path / "vm14k.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    (case,) = Questions(
        root=str(tmp_path),
        records={"test": "vm14k.jsonl"},
        id="id",
        options={"list": "options"},
        answer={"letter": "answer"},
        attributes={"topic": "medical_topic"},
    ).cases("test")
    assert (case.images, case.question.text, key(case)) == ((), "Hỏi?", "B")
    assert case.attributes == {"topic": "a, b"}


def test_the_language_and_type_of_a_question_as_in_slake(tmp_path):
    picture(tmp_path / "imgs" / "xmlab1" / "source.jpg", 90)
    rows = [
        {"qid": 1, "question": "What?", "answer": "Lung, liver", "answer_type": "OPEN", "q_lang": "en"},
        {"qid": 2, "question": "正常吗?", "answer": "不是", "answer_type": "CLOSED", "q_lang": "zh"},
        {"qid": 3, "question": "Which is bigger?", "answer": "Liver", "answer_type": "CLOSED", "q_lang": "en"},
        {"qid": 4, "question": "Odd?", "answer": "x", "answer_type": "OTHER", "q_lang": "en"},
    ]
    rows = [row | {"img_name": "xmlab1/source.jpg"} for row in rows]
    write_json(tmp_path / "test.json", rows)
    made = Questions(
        root=str(tmp_path),
        records={"test": "test.json"},
        id="qid",
        kind={"column": "answer_type", "kinds": {"OPEN": "open", "CLOSED": "by_answer"}},
        answer={"value": "answer"},
        images="imgs/{img_name}",
        attributes={"language": "q_lang"},
    )
    cases = made.cases("test")
    assert [case.question.kind for case in cases[:3]] == ["open", "yes_no", "open"]
    assert [key(case) for case in cases[:3]] == ["Lung, liver", "no", "Liver"]
    with pytest.raises(CaseError, match=r"item 4: column 'answer_type' holds 'OTHER', of which no kind is known"):
        cases[3].target.read()
    assert cases[0].patient == cases[2].patient
    assert made.split_source().keys() == {str(tmp_path / "test.json")}


def sound(tmp_path, **more):
    picture(tmp_path / "a.png", 1)
    row = {"id": 1, "question": "q", "A": "x", "B": "y", "answer": "A", "image": "a.png"}
    rows = [row | change for change in more.pop("rows", [{}])]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = {
        "root": str(tmp_path),
        "records": "test.jsonl",
        "id": "id",
        "options": {"columns": ["A", "B"]},
        "answer": {"letter": "answer"},
        "images": "image",
    }
    return Questions(**config | more)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer": "F"}, r"line 2: the answer 'F' is not among the options \(A: x, B: y\); mend the record"),
        ({"answer": None}, r"line 2: the answer 'answer' is empty"),
        ({"question": " "}, r"line 2: the question 'question' is empty"),
        ({"image": ""}, r"line 2: 'image' gives 0 images, expected at least 1"),
        ({"B": None}, r"line 2: has 1 options to choose from, expected at least 2"),
        ({"answer": ["A", "B"]}, r"line 2: names 2 right options, expected one; set kind: choices"),
        ({"id": 1}, r"line 2: the id '1' is that of line 1 too; give it one of its own"),
    ],
)
def test_a_wrong_record_is_a_failed_case_that_names_file_and_place_and_the_rest_goes_on(tmp_path, change, words):
    cases = sound(tmp_path, rows=[{}, {"id": 2} | change, {"id": 3}]).cases("test")
    assert [case.id for case in cases] == ["1", "1#2" if "id" in change else "2", "3"]
    assert cases[1].question is None
    assert cases[1].files == (tmp_path / "test.jsonl",)
    with pytest.raises(CaseError, match=rf"test\.jsonl, {words}"):
        cases[1].target.read()
    assert [key(case) for case in (cases[0], cases[2])] == ["A", "A"]


def test_a_line_that_is_cut_short_is_a_failed_case(tmp_path):
    made = sound(tmp_path)
    with (tmp_path / "test.jsonl").open("a") as stream:
        stream.write('{"id": 2, "ques')
    cases = made.cases("test")
    assert [case.id for case in cases] == ["1", "test-2"]
    with pytest.raises(CaseError, match=r"test\.jsonl, line 2: is no JSON"):
        cases[1].target.read()


def test_a_wrong_member_is_missed_in_its_set_and_subgroup(tmp_path):
    rows = [{"pair": "p", "answer": one, "id": place, "sex": "F"} for place, one in enumerate("AFB")]
    rows[1]["question"] = None
    cases = sound(tmp_path, rows=rows, set="pair", order="id", attributes={"sex": "sex"}).cases("test")
    assert [case.question is None for case in cases] == [False, True, False]
    assert [case.attributes for case in cases] == [
        {"sex": "F", "set": "p", "order": str(place), "member": str(place + 1)} for place in range(3)
    ]
    assert {case.patient for case in cases} == {"p"}
    turned = sound(tmp_path, rows=rows, expand=["rotate_options"]).cases("test")
    assert [case.id for case in turned] == ["0.0", "0.1", "1", "2.0", "2.1"]
    assert turned[2].attributes == {"set": "1", "member": "1"}


def bomb():
    """A PNG of few bytes whose header promises 60,000 rows and columns."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


def test_an_unreadable_image_and_a_bomb_name_the_file(tmp_path):
    names = {"broken": "cut short or damaged", "missing": "no such file", "bomb": "may be a decompression bomb"}
    rows = [{"id": place, "image": f"{name}.png"} for place, name in enumerate(names)]
    cases = sound(tmp_path, rows=rows).cases("test")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    (tmp_path / "bomb.png").write_bytes(bomb())
    for case, (name, words) in zip(cases, names.items(), strict=True):
        with pytest.raises(CaseError, match=rf"{name}\.png: .*{words}"):
            case.images[0].read()


def test_a_bomb_in_a_cell_or_an_archive_names_the_record(tmp_path):
    rows = [{"image": base64.b64encode(bomb()).decode()}]
    (case,) = sound(tmp_path, rows=rows, images={"base64": "image"}, more={"size": "image"}).cases("test")
    for look in (case.images[0].read, case.images[0].geometry, case.target.read):
        with pytest.raises(CaseError, match=r"test\.jsonl, line 1: column 'image': .*may be a decompression bomb"):
            look()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("b.png", bomb())
    (case,) = sound(tmp_path, rows=[{"image": "b.png"}], images={"zip": "x.zip", "member": "image"}).cases("test")
    with pytest.raises(CaseError, match=r"x\.zip, member 'b\.png' \(line 1\): .*may be a decompression bomb"):
        case.images[0].read()


def test_large_images_are_brought_down_and_small_ones_left(tmp_path):
    picture(tmp_path / "large.png", 7, (300, 90))
    made = sound(tmp_path, rows=[{"image": "large.png"}, {"id": 2}], max_side=100)
    large, small = made.cases("test")
    assert large.images[0].read().array.shape == (1, 30, 100)
    assert large.images[0].geometry().shape == (30, 100)
    assert small.images[0].read().array.shape == (1, 4, 6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": {"column": ["A"]}}, r"task\.layout\.options has the key 'column'.*did you mean 'columns'"),
        ({"options": {"list": "x", "strp": 1}}, r"options of 'list' have no key 'strp'; did you mean 'strip'"),
        ({"answer": {"leter": "x"}}, r"task\.layout\.answer has the key 'leter'.*did you mean 'letter'"),
        ({"answer": {"value": "x", "box": "yxyx"}}, r"got 'yxyx'"),
        ({"images": {"path": "x", "bellow": "y"}}, r"images of 'path' has no key 'bellow'; did you mean 'below'"),
        ({"images": {"zip": "x.zip"}}, r"`member`, the name within, is not set"),
        ({"expand": [{"explod": "x"}]}, r"task\.layout\.expand knows no step 'explod'; did you mean 'explode'"),
        ({"kind": "choise"}, r"got 'choise'; did you mean 'choice'"),
        ({"answer": {"value": "answer"}}, r"task\.layout\.answer\.value is for answers that are no choice"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(tmp_path, change, words):
    with pytest.raises(UsageError, match=words):
        sound(tmp_path, **change).cases("test")


def test_missing_files_and_splits_are_named(tmp_path):
    with pytest.raises(
        UserError, match=r"tset\.jsonl: no such file; task\.layout\.records names it; did you mean 'test"
    ):
        sound(tmp_path, records="tset.jsonl").cases("test")
    with pytest.raises(SplitError, match=r"names no split 'val'.*available: test"):
        sound(tmp_path, records={"test": "test.jsonl"}).cases("val")
    with pytest.raises(UserError, match="no such folder"):
        Questions(root=str(tmp_path / "no"), records="x.json").cases("test")


def test_several_right_letters_in_any_form(tmp_path):
    rows = [{"answer": one, "id": place} for place, one in enumerate((["A", "B"], "B,A", "AB", "B"))]
    cases = sound(tmp_path, rows=rows, kind="choices").cases("test")
    assert [key(case) for case in cases] == [("A", "B"), ("B", "A"), ("A", "B"), ("B",)]


def test_numbers_lose_their_units(tmp_path):
    rows = [{"answer": one, "id": place} for place, one in enumerate((3, "4.5 cm", "-1e3", "about 3"))]
    cases = sound(tmp_path, rows=rows, kind="number", options={}, answer={"value": "answer"}).cases("test")
    assert [key(case) for case in cases[:3]] == [3.0, 4.5, -1000.0]
    with pytest.raises(CaseError, match=r"line 4: the answer 'about 3' is no number"):
        cases[3].target.read()


def test_empty_fields_are_filled_and_values_are_sorted_into_groups(tmp_path):
    picture(tmp_path / "a.png", 3)
    rows = [{"kind": "Gaussian_Noise", "degree": "L1"}, {"kind": " ", "degree": None}, {"kind": "fog", "degree": "L2"}]
    more = {"image": "a.png", "question": "q", "answer": "x"}
    write_json(tmp_path / "all.json", [row | more for row in rows])
    settings = {
        "root": str(tmp_path),
        "records": "all.json",
        "kind": "open",
        "answer": {"value": "answer"},
        "images": "{image}",
        "attributes": {"degree": "degree", "group": "group"},
    }
    sort = {"sort": "kind", "into": {"Noise": ["gaussian noise"], "Clean": ["clean"]}, "as": "group"}
    fill = {"fill": {"kind": "clean", "degree": "L0"}}
    cases = Questions(**settings, expand=[fill, sort]).cases("test")
    assert [case.attributes["degree"] for case in cases] == ["L1", "L0", "L2"]
    assert [case.attributes["group"] for case in cases] == ["Noise", "Clean", "fog"]
    with pytest.raises(UsageError, match="sort needs `into`"):
        Questions(**settings, expand=[{"sort": "kind"}]).cases("test")
    with pytest.raises(UsageError, match=r"fill is 'kind', expected an object"):
        Questions(**settings, expand=[{"fill": "kind"}]).cases("test")


def test_what_a_file_tells_of_a_record_is_a_mapping_like_any_other():
    about = About({"path": "a/b.jsonl", "stem": "b"}, "b", 4, {"key1": "x", "stem": "own"})
    told = {"path": "a/b.jsonl", "stem": "own", "row_number": 5, "row_index": 4, "row": "b-5", "key1": "x"}
    assert {**about} == told
    assert len(about) == len(told)
    assert [name in about for name in (*told, "row_count")] == [True] * len(told) + [False]
    with pytest.raises(KeyError):
        about["row_count"]
    assert pickle.loads(pickle.dumps(about)) == about
