"""LUNGUAGESCORE's annotator, on tiny models of the same architectures with random weights."""

import json
import time

import numpy as np
import pytest

from medimg_eval.errors import CaseError, UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.reports.lunguage import lunguage_of
from medimg_eval.models.annotators.lunguage import Lunguage, LunguageTimeline

ROWS = {
    "Small left effusion.": [{"entity": "effusion", "dx_status": "positive", "location": "left", "severity": "small"}],
    "Large effusion, no edema.": [
        {"entity": "effusion", "dx_status": "positive", "severity": "large"},
        {"entity": "edema", "dx_status": "negative"},
    ],
    "No edema.": [{"entity": "edema", "dx_status": "negative"}],
    "Portable film.": [],
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "effusion", "edema", "left", "small", "large", "##s"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An MPNet and a BERT, as BioLORD and MedCPT are, and the rows."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer, MPNetConfig, MPNetModel

    torch.manual_seed(0)
    size = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": len(WORDS)}
    folders = [tmp_path_factory.mktemp(name) for name in ("biolord", "medcpt")]
    MPNetModel(MPNetConfig(**size, hidden_size=16, pad_token_id=0)).save_pretrained(folders[0])
    BertModel(BertConfig(**size, hidden_size=12)).save_pretrained(folders[1])
    for folder in folders:
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    rows = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows.write_text("".join(json.dumps({"report": text, "rows": known}) + "\n" for text, known in ROWS.items()))
    return str(rows), *map(str, folders)


@pytest.fixture(scope="module")
def model(files):
    made = Lunguage(*files, device="cpu")
    made.name = "lunguage"
    made.check_ready()
    return made


def compared(model, *pairs):
    return model.compare([TextPair(*pair) for pair in pairs], Corpus([]))


def test_equal_reports_score_one_and_missing_ones_nothing(model):
    said = list(ROWS)[:3]
    found = compared(model, *((text, text) for text in said), *((text, " \n") for text in said))
    assert [one["f1"] for one in found] == pytest.approx([1, 1, 1, 0, 0, 0], abs=1e-5)
    (none, invented) = compared(model, ("Portable film.", ""), ("Portable film.", "No edema."))
    assert none == dict.fromkeys(("f1", "precision", "recall"))
    assert invented["f1"] == 0


def test_a_pair_is_worth_what_the_two_models_say_by_hand(model, files):
    import torch
    from transformers import AutoModel, AutoTokenizer

    def embedded(folder, texts, mean):
        network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        vectors = []
        for text in texts:
            inputs = tokenizer(text, return_tensors="pt")
            with torch.inference_mode():
                hidden = network(**inputs).last_hidden_state[0]
            vectors.append((hidden.mean(0) if mean else hidden[0]).double().numpy())
        return [vector / np.linalg.norm(vector) for vector in vectors]

    def similarity(first):
        def judge(ones, others):
            tables = []
            for folder, mean in ((files[1], first), (files[2], False)):
                tables.append(np.array(embedded(folder, ones, mean)) @ np.array(embedded(folder, others, mean)).T)
            return sum(tables) / 2

        return judge

    one, other = list(ROWS)[:2]
    expected = lunguage_of(ROWS[one], ROWS[other], similarity(False), similarity(True))
    (found,) = compared(model, (one, f" {other}\n"))
    assert list(found.values()) == pytest.approx(list(expected), abs=1e-4)
    assert 0 < found["f1"] < 1


def test_nothing_depends_on_the_batch_or_the_order(model):
    pairs = [(one, other) for one in list(ROWS)[:3] for other in (*ROWS, "")]
    whole = compared(model, *pairs)
    turned = compared(model, *pairs[::-1])[::-1]
    alone = [compared(model, pair)[0] for pair in pairs]
    fours = [one for n in range(0, len(pairs), 4) for one in compared(model, *pairs[n : n + 4])]
    for others in (turned, alone, fours):
        for one, other in zip(whole, others, strict=True):
            assert list(one.values()) == pytest.approx(list(other.values()), abs=1e-4)


def test_a_report_without_rows_in_the_file_fails_by_itself(model):
    with pytest.raises(CaseError, match=r"rows.jsonl: has no rows of the report that begins 'Unheard of\.'"):
        compared(model, ("No edema.", "Unheard of."))


def test_missing_rows_and_weights_are_said_at_once(files):
    for settings, part in (
        ({"rows": None}, "annotators.lunguage.rows"),
        ({"rows": files[0], "biolord": "nobody/nothing"}, "FremyCompany/BioLORD-2023"),
        ({"rows": files[0], "biolord": files[1], "medcpt": None}, "ncbi/MedCPT-Query-Encoder"),
    ):
        made = Lunguage(**settings)
        made.name = "lunguage"
        begun = time.perf_counter()
        with pytest.raises(UserError, match=part):
            made.check_ready()
        assert time.perf_counter() - begun < 1


@pytest.mark.parametrize("text", ["{", '{"report": "x"}', '{"report": 1, "rows": []}', '{"report": "x", "rows": [1]}'])
def test_a_file_of_something_else_is_named(files, tmp_path, text):
    (tmp_path / "odd.jsonl").write_text(text)
    with pytest.raises(UserError, match=r"odd.jsonl: (cannot be read|expected lines)"):
        Lunguage(str(tmp_path / "odd.jsonl"), *files[1:]).compare([TextPair("x", "x")], Corpus([]))


def test_timelines_are_compared_by_group_study_and_course(files):
    made = LunguageTimeline(*files[1:], device="cpu")
    made.name = "lunguage_timeline"
    made.check_ready()
    row = {"entity": "effusion", "dx_status": "positive", "entity_group": "left effusion", "sequence": 1, "episode": 1}
    first = [row, {**row, "sequence": 2, "episode": 2}]
    later = [row, {**row, "sequence": 2, "episode": 1}]
    found = compared(made, *((json.dumps(first), json.dumps(said)) for said in (first, later, [])))
    assert found[0]["f1"] == pytest.approx(1)
    assert found[1]["f1"] == pytest.approx(0.75)  # of two rows one agrees in one of two times
    assert found[1]["f1_published"] == pytest.approx(1)
    assert found[2] == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "f1_published": 0.0}
    (nothing,) = compared(made, ("[]", "[]"))
    assert set(nothing.values()) == {None}
    with pytest.raises(CaseError, match="holds no rows as JSON"):
        compared(made, ("Small effusion.", "[]"))
    other = [{**row, "entity_group": "edema"}, first[1]]
    (renamed,) = compared(made, (json.dumps(first), json.dumps(other)))
    assert renamed["f1"] < 1
