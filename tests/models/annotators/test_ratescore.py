"""RaTEScore's annotator, on tiny models of the same architectures that label words as the test says."""

import time

import numpy as np
import pytest

from medimg_eval.errors import UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics import get
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.reports.ratescore_entities import TYPES
from medimg_eval.models.annotators.ratescore import Entity, RaTEScore, entities_of

WORDS = {
    "no": "O",
    "the": "O",
    ".": "O",
    "effusion": "B-DISEASE",
    "edema": "B-DISEASE",
    "pleural": "B-DISEASE",
    "fluid": "I-DISEASE",
    "opacity": "B-ABNORMALITY",
    "clear": "B-NON-ABNORMALITY",
    "absent": "B-NON-DISEASE",
    "lungs": "B-ANATOMY",
    "base": "I-ANATOMY",
}
"""How the model below labels each word, whatever stands beside it."""

LABELS = ["O", *(f"{mark}-{kind.upper()}" for kind in TYPES for mark in "BI")]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: number for number, word in enumerate([*MARKS, *WORDS])}
    made = Tokenizer(models.WordLevel(known, unk_token=MARKS[1]))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])]
    )
    marks = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], MARKS, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder)
    return known


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A DeBERTa that labels words by themselves, and an MPNet of random weights."""
    import torch
    from transformers import DebertaV2Config, DebertaV2ForTokenClassification, MPNetConfig, MPNetModel

    finder, names = tmp_path_factory.mktemp("finder"), tmp_path_factory.mktemp("names")
    known = write_tokenizer(finder)
    write_tokenizer(names)
    size = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": len(known)}
    config = DebertaV2Config(
        **size,
        hidden_size=20,
        max_position_embeddings=600,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
    torch.manual_seed(0)
    network = DebertaV2ForTokenClassification(config)
    with torch.no_grad():
        for name, tensor in network.named_parameters():  # what is left is a table from words to labels
            tensor.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        for word, number in known.items():
            network.deberta.embeddings.word_embeddings.weight[number, number] = 1
            network.classifier.weight[LABELS.index(WORDS.get(word, "O")), number] = 1
    network.save_pretrained(finder)
    MPNetModel(MPNetConfig(**size, hidden_size=16, pad_token_id=0), add_pooling_layer=False).save_pretrained(names)
    return str(finder), str(names)


@pytest.fixture(scope="module")
def model(folders):
    made = RaTEScore(*folders, device="cpu")
    made.name = "ratescore"
    made.check_ready()
    return made


def compared(model, *pairs):
    return model.compare([TextPair(*pair) for pair in pairs], Corpus([]))


def score(read):
    pair = AnsweredQuestion("report", "x", "x", readings={"ratescore": read})
    return get("ratescore").function(pair)


def test_entities_are_runs_of_labels_with_their_names(model):
    read = model._read(["No pleural fluid.", "The lungs base clear.", "no . the no"])
    assert [entities for entities, _ in read.values()] == [
        [],
        [Entity("pleural fluid", "disease")],
        [Entity("lungs base", "anatomy"), Entity("clear", "non-abnormality")],
    ]
    assert compared(model, ("", "no"))[0]["entities"] == [0, 0]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O", []),
        ("B-A", [(0, 1, "a")]),
        ("B-A I-A O B-B", [(0, 2, "a"), (3, 4, "b")]),
        ("B-A B-A I-A", [(0, 1, "a"), (1, 3, "a")]),
        ("I-A O B-B I-A", [(2, 4, "b")]),
        ("I-A I-A", []),
    ],
)
def test_labels_become_entities_as_in_the_authors_code(labels, expected):
    named = labels.split()
    assert entities_of(["t"] * len(named), named) == expected


def test_a_pair_is_matched_by_hand(model):
    (read,) = compared(model, ("Pleural fluid. Lungs clear.", "Effusion absent."))
    vectors = model._vectors.of(["pleural fluid", "lungs", "clear", "effusion", "absent"])
    cosines = vectors[:3] @ vectors[3:].T
    kinds, others = ["disease", "anatomy", "non-abnormality"], ["disease", "non-disease"]
    best = cosines.argmax(1)
    expected = [[kinds[n], others[best[n]], cosines[n, best[n]]] for n in range(3)]
    assert [[*match[:2], pytest.approx(match[2], abs=1e-5)] for match in expected] == read["reference"]
    assert [match[0] for match in read["prediction"]] == others
    assert read["entities"] == [3, 2]
    assert "cut" not in read


def test_equal_reports_have_the_best_score_and_empty_ones_shift_nothing(model):
    report = "Pleural fluid. The lungs base clear. Edema absent."
    read = compared(model, ("", report), (report, report), ("No.", "no"), (report, ""))
    assert [score(one) for one in read] == [0.5, pytest.approx(1, abs=1e-5), 0.5, 0.5]
    assert [one["entities"] for one in read] == [[0, 5], [5, 5], [0, 0], [5, 0]]


def test_nothing_depends_on_the_batch_or_the_order(model):
    reports = ["Effusion.", "Lungs clear. No edema.", "", "Pleural fluid absent. Opacity.", "The lungs base clear."]
    pairs = [(one, other) for one in reports for other in reports[::2]]
    whole = [score(read) for read in compared(model, *pairs)]
    turned = [score(read) for read in compared(model, *pairs[::-1])][::-1]
    alone = [score(compared(model, pair)[0]) for pair in pairs]
    fours = [score(read) for n in range(0, len(pairs), 4) for read in compared(model, *pairs[n : n + 4])]
    for other in (turned, alone, fours):
        np.testing.assert_allclose(whole, other, atol=1e-5)
    assert len(set(np.round(whole, 3))) > 4


def test_a_sentence_that_is_too_long_is_told(model):
    (read, short) = compared(model, ("effusion " * 600, "Edema."), ("effusion " * 100, "Edema."))
    assert read["cut"] is True
    assert read["entities"] == [510, 1]
    assert "cut" not in short


def test_what_is_read_is_small(model):
    import json

    (read,) = compared(model, ("Pleural fluid. Lungs clear. " * 20, "Effusion absent. " * 20))
    assert len(json.dumps(read)) < 6000


def test_missing_weights_are_said_at_once(folders, tmp_path):
    for settings, part in (
        ({"weights": None, "names": folders[1]}, "Angelakeke/RaTE-NER-Deberta"),
        ({"weights": folders[0], "names": "nobody/nothing"}, "FremyCompany/BioLORD-2023-C"),
    ):
        made = RaTEScore(**settings)
        made.name = "ratescore"
        begun = time.perf_counter()
        with pytest.raises(UserError, match=part):
            made.check_ready()
        assert time.perf_counter() - begun < 1


def test_folders_of_something_else_are_named(folders, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="holds no model that transformers can load as AutoModelForTokenClassification"):
        RaTEScore(str(tmp_path), folders[1]).compare([TextPair("Edema.", "Edema.")], Corpus([]))
    with pytest.raises(UserError, match="lack .* tensors of"):
        RaTEScore(folders[1], folders[1]).compare([TextPair("Edema.", "Edema.")], Corpus([]))


def test_a_model_of_other_entities_is_refused(folders, tmp_path):
    from transformers import DebertaV2ForTokenClassification

    network = DebertaV2ForTokenClassification.from_pretrained(folders[0])
    network.config.id2label = {number: label.replace("DISEASE", "DRUG") for number, label in enumerate(LABELS)}
    network.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with pytest.raises(UserError, match="its model labels 'B-DRUG', expected O, and B- and I- of abnormality"):
        RaTEScore(str(tmp_path), folders[1]).compare([TextPair("Edema.", "Edema.")], Corpus([]))
