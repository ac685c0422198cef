"""CheXbert's loading, states and vectors, on a network of its architecture with random weights."""

from __future__ import annotations

import json

import pytest

from medimg_eval.errors import UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.reports.labels.taxonomies import CHEXPERT_14
from tests.helpers.tiny_bert import save_vocabulary

TEXTS = [
    "Mild pulmonary edema is seen.",
    "No pleural effusion or pneumothorax",
    "",
    "heart is enlarged\nwith a pacemaker . lungs are clear of consolidation",
    " ",
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The folder of a vocabulary, and a checkpoint as it was published, of random weights."""
    import torch
    from transformers import AutoConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    save_vocabulary(folder)
    torch.manual_seed(0)
    bert = BertModel(AutoConfig.from_pretrained(folder))
    state = {f"module.bert.{name}": tensor for name, tensor in bert.state_dict().items()}
    state["module.bert.embeddings.position_ids"] = torch.arange(512)[None]
    for place in range(14):
        head = torch.nn.Linear(bert.config.hidden_size, 2 if place == 13 else 4)
        torch.nn.init.normal_(head.weight, std=3)
        state |= {f"module.linear_heads.{place}.{name}": tensor.detach() for name, tensor in head.state_dict().items()}
    torch.save({"epoch": 3, "model_state_dict": state}, folder / "chexbert.pth")
    return folder


def made(kind, folder, **settings):
    from medimg_eval.models.annotators import chexbert

    settings = {"weights": str(folder / "chexbert.pth"), "vocabulary": str(folder), "device": "cpu", **settings}
    annotator = getattr(chexbert, kind)(**settings)
    annotator.name = "chexbert"
    return annotator


def test_states_are_those_of_the_published_heads_by_hand(weights):
    import torch
    from transformers import AutoConfig, BertModel, BertTokenizer

    saved = torch.load(weights / "chexbert.pth", weights_only=True)["model_state_dict"]
    bert = BertModel(AutoConfig.from_pretrained(weights)).eval()
    bert.load_state_dict(
        {k.removeprefix("module.bert."): v for k, v in saved.items() if "bert" in k and "position_ids" not in k}
    )
    tokens = BertTokenizer.from_pretrained(weights)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        vector = bert(**tokens).last_hidden_state[0, 0]
    expected = {
        name: int(
            (saved[f"module.linear_heads.{n}.weight"] @ vector + saved[f"module.linear_heads.{n}.bias"]).argmax().item()
        )
        for n, name in enumerate(CHEXPERT_14)
    }
    assert made("CheXbert", weights).annotate(TEXTS[:1]) == [expected]
    assert len(set(expected.values())) > 1


def test_what_is_read_does_not_depend_on_the_batch_and_is_json(weights):
    annotator, pairs = made("CheXbert", weights), [TextPair(a, b) for a in TEXTS for b in TEXTS]
    together = annotator.annotate(TEXTS)
    assert together == [annotator.annotate([text])[0] for text in TEXTS]
    similarity = made("CheXbertSimilarity", weights)
    alike = [one["cosine"] for one in similarity.compare(pairs, Corpus([]))]
    alone = [similarity.compare([pair], Corpus([]))[0]["cosine"] for pair in pairs]
    assert alike == pytest.approx(alone, abs=1e-5)
    assert json.loads(json.dumps(together)) == together


def test_an_empty_text_is_not_read(weights):
    assert made("CheXbert", weights).annotate(["", " \n"]) == [dict.fromkeys(CHEXPERT_14, 0)] * 2
    assert made("CheXbertSimilarity", weights).compare([TextPair("edema", "")], Corpus([])) == [{"cosine": 0.0}]


def test_identical_texts_have_a_cosine_of_one_and_line_breaks_do_not_matter(weights):
    found = made("CheXbertSimilarity", weights).compare(
        [TextPair(TEXTS[0], TEXTS[0]), TextPair(TEXTS[3], " ".join(TEXTS[3].split()))], Corpus([])
    )
    assert found == [{"cosine": 1.0}, {"cosine": 1.0}]


def test_a_text_of_more_than_512_word_pieces_is_cut_and_said_to_be(weights):
    long, rest = "edema " * 510, "no effusion"
    read = made("CheXbert", weights).annotate([long, long + rest])
    assert "cut" not in read[0]
    assert read[1] == {**read[0], "cut": True}
    assert made("CheXbertSimilarity", weights).compare([TextPair(rest, long + rest)], Corpus([]))[0]["cut"] is True


def test_a_folder_that_holds_the_checkpoint_will_do(weights):
    whole = made("CheXbert", weights)
    assert made("CheXbert", weights, weights=str(weights)).annotate(TEXTS) == whole.annotate(TEXTS)
    assert whole.revision == f"chexbert.pth, {weights.name}"


def test_the_class_and_its_readiness_take_no_torch(weights):
    import subprocess
    import sys

    code = (
        "import sys\nfrom medimg_eval.models.annotators.chexbert import CheXbert\n"
        f"made = CheXbert({str(weights / 'chexbert.pth')!r}, {str(weights)!r})\nmade.check_ready()\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda saved: {"state": 1}, "no CheXbert checkpoint"),
        (lambda saved: saved["model_state_dict"].pop("module.linear_heads.13.bias") is None or saved, "lacks linear_h"),
        (lambda saved: saved["model_state_dict"].update({"module.more": saved["x"]}) or saved, "holds more"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_its_name(weights, tmp_path, change, said):
    import torch

    saved = torch.load(weights / "chexbert.pth", weights_only=True)
    torch.save(change({**saved, "x": torch.ones(2)}), tmp_path / "bad.pth")
    with pytest.raises(UserError, match=said) as caught:
        made("CheXbert", weights, weights=str(tmp_path / "bad.pth")).annotate(["edema"])
    assert "bad.pth" in str(caught.value)


def test_a_file_that_is_no_checkpoint_and_a_network_of_another_size_are_refused(weights, tmp_path):
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(UserError, match="no CheXbert checkpoint"):
        made("CheXbert", weights, weights=str(tmp_path / "text.pth")).annotate(["edema"])
    save_vocabulary(tmp_path / "other", hidden_size=32)
    with pytest.raises(UserError, match="does not fit"):
        made("CheXbert", weights, vocabulary=str(tmp_path / "other")).annotate(["edema"])


def test_a_folder_that_lacks_a_file_is_said_at_once(weights, tmp_path):
    with pytest.raises(UserError, match=r"holds no config\.json") as caught:
        made("CheXbert", weights, vocabulary=str(tmp_path)).check_ready()
    assert "annotators.chexbert.vocabulary" in str(caught.value)
    with pytest.raises(UserError, match=r"chexbert\.pth"):
        made("CheXbert", weights, weights=str(tmp_path / "none.pth")).check_ready()
