"""Samples of the benchmarks whose questions stand in JSON or CSV files beside their images: the second half of them."""

import zipfile

from tests.helpers.catalogue import picture, png, sample, write_json, write_lines


# Right: 11984, 11985, and 12002; 11986 says a word more, which token F1 gives 2 x (1 x 1/2) / (1 + 1/2) = 2/3.
# 12001 is answered No and Yes is right. Open ones: 11985 and 11986, and 12002.
# By the published rules "The answer is no" is not the text "no".
SLAKE_REPLIES = {
    "11984": "The answer is no",
    "11985": "Heart.",
    "11986": "left lung",
    "12001": "否",
    "12002": "磁共振",
}


def slake(root):
    """Two languages in a file; closed questions that yes and no do not answer; images in a zip file."""
    common = {"img_id": 1, "img_name": "xmlab1/source.jpg", "location": "Chest", "modality": "CT", "base_type": "vqa"}
    other = common | {"img_id": 2, "img_name": "xmlab2/source.jpg", "location": "Head", "modality": "MRI"}
    records = [
        *(
            {**common, "qid": qid, "question": question, "answer": answer, "q_lang": "en", "answer_type": form}
            for qid, question, answer, form in (
                (11984, "Is the liver shown?", "No", "CLOSED"),
                (11985, "Which organ is it?", "Heart", "OPEN"),
                (11986, "Left or right?", "Left", "CLOSED"),
            )
        ),
        *(
            {**other, "qid": qid, "question": question, "answer": answer, "q_lang": "zh", "answer_type": form}
            for qid, question, answer, form in (
                (12001, "图中有异常吗？", "是", "CLOSED"),
                (12002, "这是什么模态？", "磁共振", "OPEN"),
            )
        ),
    ]
    for place, record in enumerate(records):
        record |= {"content_type": ["Organ", "Organ", "Position", "Abnormality", "Modality"][place], "triple": ["vhead", "_", "_"]}
    write_json(root / "test.json", records)
    write_json(root / "train.json", [records[1] | {"qid": 0}])
    write_json(root / "validate.json", [records[0] | {"qid": 9835}])
    with zipfile.ZipFile(root / "imgs.zip", "w") as archive:
        for number in (1, 2):
            archive.writestr(f"imgs/xmlab{number}/source.jpg", png(number))


SLAKE_CASES = list(SLAKE_REPLIES)

sample(
    "slake",
    cases=SLAKE_CASES,
    replies=SLAKE_REPLIES,
    scores={"accuracy_or_exact_match": 3 / 5, "accuracy": 1 / 2, "exact_match": 2 / 3, "token_f1": (1 + 2 / 3 + 1) / 3},
    authors={"accuracy_or_exact_match": 2 / 5, "accuracy": 0, "exact_match": 2 / 3},
    text="Is the liver shown?\nAnswer the question using a single word or phrase.",
)(slake)

sample(
    "slake_lmms_eval",
    cases=SLAKE_CASES,
    replies=SLAKE_REPLIES,
    scores={"accuracy_or_exact_match": 3 / 5, "accuracy": 1 / 2, "exact_match": 2 / 3},
    authors={"accuracy_or_exact_match": 2 / 5, "accuracy": 0, "exact_match": 2 / 3},
    text="Is the liver shown?\nAnswer the question using a single word or phrase.",
)(slake)
