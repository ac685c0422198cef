"""RadBERT-CT, SRR-BERT and classifiers alike, on tiny ones with random weights."""

from __future__ import annotations

import json

import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.reports.labels.taxonomies import Taxonomy
from medimg_eval.models.annotators.text_classifiers import (
    ReportClassifier,
    SrrBert,
    punkt_of,
    radeval_sentences,
    sentences,
)
from tests.helpers.tiny_bert import save_vocabulary

TEXTS = ["Mild pulmonary edema is seen. The heart is enlarged. Stable.", "No effusion", "", "lungs are clear " * 40]


@pytest.fixture(scope="module")
def save(tmp_path_factory):
    """Writes a classifier with random weights as transformers does; returns its folder."""
    import torch
    from transformers import AutoConfig, BertForSequenceClassification

    def write(labels, names=None, **config):
        folder = save_vocabulary(tmp_path_factory.mktemp("classifier"), **config)
        torch.manual_seed(labels)
        named = {} if names is None else {"id2label": dict(enumerate(names))}
        network = BertForSequenceClassification(AutoConfig.from_pretrained(folder, num_labels=labels, **named))
        torch.nn.init.normal_(network.classifier.weight, std=5)
        network.save_pretrained(folder)
        return folder

    return write


def named(annotator, name="radbert_ct"):
    annotator.name = name
    annotator.check_ready()
    return annotator


def test_labels_are_those_whose_own_probability_is_above_the_threshold(save):
    import torch
    from transformers import BertForSequenceClassification, BertTokenizer

    names = ["Mass", "Cyst", "Edema", "Fracture", "Nodule"]
    folder = save(5, names)
    network, tokens = (
        BertForSequenceClassification.from_pretrained(folder).eval(),
        BertTokenizer.from_pretrained(folder),
    )
    with torch.inference_mode():
        chances = torch.sigmoid(network(**tokens(TEXTS[0], return_tensors="pt")).logits)[0].tolist()
    middle = sorted(chances)[2]
    expected = {name for name, chance in zip(names, chances, strict=True) if chance > middle}
    found = named(ReportClassifier(str(folder), threshold=middle)).annotate(TEXTS[:1])
    assert set(found[0]) == expected
    assert set(found[0].values()) == {1}


def test_unnamed_outputs_take_the_published_order_and_none_of_them_is_no_finding(save):
    folder = save(18)
    some = named(ReportClassifier(str(folder), taxonomy="radbert_ct", none="No finding", threshold=0)).annotate(TEXTS)
    assert set(some[0]) == set(Taxonomy.load("radbert_ct").labels) - {"No finding"}
    none = named(ReportClassifier(str(folder), taxonomy="radbert_ct", none="No finding", threshold=1)).annotate(TEXTS)
    assert none == [{"No finding": 1}, {"No finding": 1}, {}, {"No finding": 1}]


@pytest.mark.parametrize(
    ("name", "labels"),
    [("leaves", 55), ("upper", 25), ("leaves_statuses", 163), ("upper_statuses", 73)],
)
def test_srr_berts_taxonomies_fit_their_outputs(save, name, labels):
    taxonomy = Taxonomy.load(f"srr_bert_{name}")
    assert len(taxonomy.labels) == labels
    assert set(taxonomy.averaged) >= {"all", str(labels), str(labels - 1)}
    assert taxonomy.averaged[str(labels - 1)] == tuple(one for one in taxonomy.labels if one != "No Finding")


def test_srr_bert_unites_the_labels_of_sentences(save):
    folder = save(25)
    annotator = named(SrrBert(str(folder), str(folder), taxonomy="srr_bert_upper"))
    parts = annotator.annotate(["Mild pulmonary edema is seen.", "The heart is enlarged.", "Stable."])
    assert set(annotator.annotate(TEXTS[:1])[0]) == set().union(*parts)
    assert annotator.annotate([""]) == [{}]


def test_what_is_read_does_not_depend_on_the_batch_and_is_json(save):
    folder = save(25)
    for size in (1, 4):
        annotator = named(SrrBert(str(folder), str(folder), taxonomy="srr_bert_upper", preferred_batch=size))
        together = annotator.annotate(TEXTS)
        assert together == [annotator.annotate([text])[0] for text in TEXTS]
        assert json.loads(json.dumps(together)) == together


def test_a_text_of_more_tokens_than_the_model_has_places_for_is_cut(save):
    folder = save(5, list("abcde"), max_position_embeddings=64)
    annotator = named(ReportClassifier(str(folder)))
    assert [one.get("cut", False) for one in annotator.annotate(TEXTS)] == [False, False, False, True]


def test_settings_and_folders_that_do_not_fit_are_refused(save, tmp_path):
    with pytest.raises(UsageError, match="unit of an annotator"):
        ReportClassifier(unit="word")
    with pytest.raises(UsageError, match="threshold of an annotator"):
        ReportClassifier(threshold=2)
    with pytest.raises(UserError, match="names none of its 7 labels; set annotators.radbert_ct.taxonomy"):
        named(ReportClassifier(str(save(7)))).annotate(TEXTS)
    with pytest.raises(UserError, match="has 7 labels, and taxonomy radbert_ct 19"):
        named(ReportClassifier(str(save(7)), taxonomy="radbert_ct")).annotate(TEXTS)
    with pytest.raises(UserError, match=r"holds no config\.json"):
        named(ReportClassifier(str(tmp_path)))
    save_vocabulary(tmp_path)
    with pytest.raises(UserError, match=r"holds no model\.safetensors or pytorch_model\.bin"):
        named(ReportClassifier(str(tmp_path)))
    (tmp_path / "pytorch_model.bin").write_text("nothing")
    with pytest.raises(UserError, match="holds no classifier that transformers can load"):
        named(ReportClassifier(str(tmp_path))).annotate(TEXTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.Stable.2.No effusion", ["Stable.", "No effusion"]),
        ("1. Nodule of 3.5 cm. 2. No effusion.", ["Nodule of 3.5 cm.", "No effusion."]),
        ("Clear lungs.Normal heart.", ["Clear lungs.", "Normal heart."]),
        ("Clear  lungs\n\nseen at ___. Done", ["Clear lungs", "seen at ___.", "Done"]),
        ("T12 is collapsed", ["T12 is collapsed"]),
        (" \n. ", []),
        ("", []),
    ],
)
def test_sentences_are_split_at_their_ends_and_at_the_numbers_of_lists(text, expected):
    assert sentences(text) == expected


@pytest.fixture
def punkt(tmp_path):
    """Writes parameters of NLTK's Punkt as `punkt_tab` has them: a few abbreviations and how words are written."""
    (tmp_path / "abbrev_types.txt").write_text("dr\nvs\n")
    (tmp_path / "sent_starters.txt").write_text("there\n")
    (tmp_path / "collocations.tab").write_text("st\tlouis\n")
    (tmp_path / "ortho_context.tab").write_text("no\t46\nstable\t36\n")
    return tmp_path


@pytest.mark.parametrize(
    ("report", "expected"),  # of RadEval's own function, with these parameters
    [
        ("1. No acute process 2. sentence", ["No acute process.", "sentence."]),
        ("2.Crowding edema1.Hello", ["Crowding edema.", "Hello."]),
        ("1. PICC tip.2.    Mild congestion.3.Interval change.", ["PICC tip.", "Mild congestion.", "Interval change."]),
        ("A 3.5 cm mass vs. cyst! 2. Stable", ["A 3.5 cm mass vs. cyst!", "Stable."]),
        ("Seen by Dr. Who.No change", ["Seen by Dr. Who.", "No change."]),
    ],
)
def test_sentences_of_radeval(punkt, report, expected):
    pytest.importorskip("nltk")
    assert radeval_sentences(report, punkt_of(punkt)) == expected


def test_srr_bert_reads_sentences_of_radeval_where_it_is_told_to(save, punkt):
    pytest.importorskip("nltk")
    folder = str(save(25))
    annotator = named(SrrBert(folder, folder, unit="radeval", punkt=str(punkt), taxonomy="srr_bert_upper"))
    parts = [annotator._labels([part])[0][0] for part in ("Edema.", "The heart is enlarged.")]
    assert set(annotator.annotate(["1.Edema 2.The heart is enlarged"])[0]) == set().union(*parts)
    assert annotator.annotate([" "]) == [{}]
    assert annotator.revision.endswith("sentences by RadEval with NLTK's Punkt")


def test_what_punkt_lacks_is_named(save, punkt):
    pytest.importorskip("nltk")
    folder = str(save(25))
    (punkt / "ortho_context.tab").write_text("no\n")
    with pytest.raises(UserError, match="cannot be read as Punkt's parameters"):
        punkt_of(punkt)
    (punkt / "ortho_context.tab").unlink()
    with pytest.raises(UserError, match=r"holds no ortho_context.tab.*set annotators\.srr_bert_upper\.punkt=PATH"):
        named(SrrBert(folder, folder, unit="radeval", punkt=str(punkt)), "srr_bert_upper")
