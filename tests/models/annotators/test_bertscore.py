"""BERTScore's annotator, on tiny encoders with random weights and real tokenizers."""

from __future__ import annotations

import json
import math

import pytest
import torch
import yaml

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.reports.token_matching import DISTILBERT_5, DISTILROBERTA_5, bertscore_of
from medimg_eval.models.annotators.bertscore import BertScore
from tests.helpers.tiny_bert import save_vocabulary
from tests.test_house import CONFIGS

PAIRS = [
    TextPair("Mild pulmonary edema is seen.", "Pulmonary edema is seen."),
    TextPair("No pleural effusion or pneumothorax.", "No pleural effusion or pneumothorax."),
    TextPair("The heart is enlarged. Lungs are clear.", ""),
    TextPair("Stable  cardiomegaly with a pacemaker.\nNo consolidation.", "clear " * 9),
]
CORPUS = Corpus([(pair.reference,) for pair in PAIRS])
BASELINE = {"precision": 0.5, "recall": 0.6, "f1": 0.7}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a BERT with three layers that reads 64 tokens."""
    from transformers import AutoConfig, BertModel

    folder = save_vocabulary(
        tmp_path_factory.mktemp("bertscore") / "bert", num_hidden_layers=3, max_position_embeddings=64
    )
    torch.manual_seed(2)
    BertModel(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """The folder of a RoBERTa whose tokens are bytes."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import RobertaConfig, RobertaModel

    folder = tmp_path_factory.mktemp("bertscore") / "roberta"
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=len(names), max_position_embeddings=66, initializer_range=0.5, **sizes)
    RobertaModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({name: place for place, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    settings = {"tokenizer_class": "RobertaTokenizer", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def annotator(folder, layer=2, **settings):
    made = BertScore(str(folder), layer, **settings)
    made.name = "bertscore"
    made.check_ready()
    return made


def values(reading):
    return reading["precision"], reading["recall"], reading["f1"]


def test_scores_are_those_of_the_layers_embeddings(bert):
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(bert), AutoModel.from_pretrained(bert).eval()

    def embedded(text):
        with torch.inference_mode():
            found = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[2][0].numpy()
        return found, [0, *[1] * (len(found) - 2), 0]  # special tokens weigh nothing

    readings = annotator(bert).compare(PAIRS, CORPUS)
    for pair, reading in zip(PAIRS, readings, strict=True):
        (due, due_weights), (said, said_weights) = embedded(pair.reference), embedded(pair.prediction)
        assert values(reading) == pytest.approx(bertscore_of(due, said, due_weights, said_weights), abs=1e-5)
    assert json.loads(json.dumps(readings)) == readings


@pytest.mark.parametrize("idf", [False, True])
def test_identical_texts_have_1_and_empty_ones_0_before_rescaling(bert, idf):
    plain = annotator(bert, idf=idf).compare(PAIRS, CORPUS)
    assert values(plain[1]) == pytest.approx((1, 1, 1), abs=1e-5)
    assert values(plain[2]) == (0, 0, 0)
    scaled = annotator(bert, idf=idf, baseline=BASELINE).compare(PAIRS, CORPUS)
    assert values(scaled[1]) == pytest.approx((1, 1, 1), abs=1e-5)
    assert values(scaled[2]) == pytest.approx((-1, -1.5, -0.7 / 0.3))
    for one, other in zip(plain, scaled, strict=True):
        assert other["f1"] == pytest.approx((one["f1"] - 0.7) / 0.3)


@pytest.mark.parametrize("idf", [False, True])
def test_batches_and_their_order_do_not_matter(bert, idf):
    made = annotator(bert, idf=idf)
    together = made.compare(PAIRS, CORPUS)
    assert [made.compare([pair], CORPUS)[0] for pair in PAIRS] == together
    assert made.compare(PAIRS[::-1], CORPUS) == together[::-1]
    shuffled = Corpus(CORPUS.references[::-1])
    assert annotator(bert, idf=idf).compare(PAIRS, shuffled) == together


def test_with_idf_the_whole_set_counts_and_the_harness_is_told(bert):
    weighed, plain = annotator(bert, idf=True), annotator(bert)
    assert weighed.uses_corpus
    assert not plain.uses_corpus
    more = Corpus([*CORPUS.references, ("Edema is seen.",), ("Edema.", "No edema.")])
    assert weighed.compare(PAIRS[:1], CORPUS) != weighed.compare(PAIRS[:1], more)
    assert plain.compare(PAIRS[:1], CORPUS) == plain.compare(PAIRS[:1], more)
    assert weighed.compare(PAIRS[:1], CORPUS) != plain.compare(PAIRS[:1], CORPUS)


def test_a_set_of_one_report_leaves_idf_nothing_to_judge_by(bert):
    (reading,) = annotator(bert, idf=True, baseline=BASELINE).compare(PAIRS[1:2], Corpus([(PAIRS[1].reference,)]))
    assert values(reading) == (None, None, None)


def test_an_empty_reference_leaves_nothing_to_judge_by(bert):
    for text in ("", " \n"):
        (reading,) = annotator(bert).compare([TextPair(text, "clear")], CORPUS)
        assert values(reading) == (None, None, None)


def test_long_texts_are_cut_and_told(bert):
    long = "the lungs are clear " * 30
    made = annotator(bert)
    readings = made.compare([TextPair("clear", "clear"), TextPair(long, "clear"), TextPair("clear", long)], CORPUS)
    assert [reading.get("cut", False) for reading in readings] == [False, True, True]
    assert made.compare([TextPair(long, f"{long} no effusion")], CORPUS)[0]["f1"] == pytest.approx(1, abs=1e-5)


def test_words_of_a_roberta_are_read_alike_at_the_beginning_and_after_a_blank(roberta):
    made = annotator(roberta)
    blank = made._encoder.tokenizer.convert_tokens_to_ids("Ġ")
    assert made._encoder.tokens("edema").ids[1] == blank
    assert made._encoder.tokens("").ids == (0, 2)
    readings = made.compare([TextPair("edema", " edema "), TextPair("a  b", "a b")], CORPUS)
    assert readings[0]["f1"] == pytest.approx(1, abs=1e-5)
    assert readings[1]["f1"] < 1
    (collapsed,) = annotator(roberta, collapse_blanks=True).compare([TextPair("a  b", "a b")], CORPUS)
    assert collapsed["f1"] == pytest.approx(1, abs=1e-5)


def test_the_revision_says_what_moves_the_numbers(bert):
    assert annotator(bert).revision == "bert (layer 2, no idf, not rescaled)"
    scaled = annotator(bert, 1, idf=True, baseline=BASELINE)
    assert scaled.revision == "bert (layer 1, idf of all references, rescaled by 0.7)"


def test_what_cannot_be_used_is_told_in_a_sentence(tmp_path, bert):
    from safetensors.torch import load_file, save_file

    with pytest.raises(UsageError, match="layer is 0"):
        BertScore("x", 0)
    with pytest.raises(UsageError, match="expected precision, recall and f1, each below 1"):
        BertScore("x", baseline={"f1": 0.5})
    with pytest.raises(UsageError, match="each below 1"):
        BertScore("x", baseline={**BASELINE, "f1": 1.0})
    with pytest.raises(UserError, match=r"annotators\.bertscore\.weights"):
        annotator(tmp_path / "nowhere")
    with pytest.raises(UserError, match="layer is 4, and .* has 3 layers"):
        annotator(bert, 4).compare(PAIRS, CORPUS)
    part = save_vocabulary(tmp_path / "part", num_hidden_layers=3, max_position_embeddings=64)
    tensors = load_file(bert / "model.safetensors")
    lost = "encoder.layer.0.output.dense.weight"
    save_file({k: v for k, v in tensors.items() if k != lost}, part / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"lack 1 tensors of .*, such as '{lost}'"):
        annotator(part).compare(PAIRS, CORPUS)
    odd = tmp_path / "odd"
    odd.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (odd / name).write_text("{}")
    with pytest.raises(UserError, match="holds no encoder"):
        annotator(odd).compare(PAIRS, CORPUS)


@pytest.mark.parametrize(
    ("name", "model", "layer", "idf", "baseline"),
    [
        ("bertscore", "roberta-large", 17, False, None),
        ("bertscore_radeval", "distilbert-base-uncased", 5, False, DISTILBERT_5),
        ("bertscore_radcliq", "distilroberta-base", 5, True, DISTILROBERTA_5),
    ],
)
def test_the_configs_are_the_named_presets(name, model, layer, idf, baseline):
    text = (CONFIGS / "annotator" / f"{name}.yaml").read_text()
    settings = yaml.safe_load(text)
    assert text.startswith("# description: ")
    assert settings.pop("_target_") == "medimg_eval.models.BertScore"
    made = BertScore(**settings)
    assert made.weights.endswith(f"/{model}")
    assert (made.layer, made.idf, made.uses_corpus, made.baseline) == (layer, idf, idf, baseline)
    assert math.isclose(1.0, 1.0 if baseline is None else (1 - baseline.f1) / (1 - made.baseline.f1))
