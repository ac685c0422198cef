"""RadGraph's loader, on tiny archives with random weights of the real architecture."""

from __future__ import annotations

import json
import math
import tarfile

import pytest
import torch
import yaml

from medimg_eval.case import Case
from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics.reports.radgraph import FAMILIES, radgraph_f1
from medimg_eval.models.annotators.radgraph.model import ModernRadGraphXL, RadGraph, RadGraphXL
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Key, Question
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known
from tests.helpers.running import evaluate
from tests.helpers.tiny_bert import save_vocabulary
from tests.test_house import CONFIGS

LABELS = ("", "Observation::definitely present", "Anatomy::definitely present", "Observation::definitely absent")
KINDS = ("modify", "located_at", "suggestive_of")
WIDTH, FEATURES, HIDDEN, MOST_WORDS = 16, 5, 12, 3
SPAN = 2 * WIDTH + FEATURES
TEXTS = (
    "Mild pulmonary edema is seen. No pleural effusion or pneumothorax.",
    "clear",
    "Heart enlarged, stable (cardiomegaly): 3.5 cm; lungs/pleura clear!",
    "the heart of the lungs " * 6,
)
PREFIX = "_embedder.token_embedder_bert._matched_embedder.transformer_model."


def heads(name):
    """Random tensors of the heads, by the names that the authors' program gives them."""
    made = {"_endpoint_span_extractor._span_width_embedding.weight": torch.randn(MOST_WORDS, FEATURES)}

    def layers(first, last, inputs, outputs):
        for place, size in enumerate((inputs, HIDDEN)):
            made[f"{first}_linear_layers.{place}.weight"] = 2 * torch.randn(HIDDEN, size) / math.sqrt(size)
            made[f"{first}_linear_layers.{place}.bias"] = torch.randn(HIDDEN) / 4
        made[f"{last}weight"], made[f"{last}bias"] = torch.randn(outputs, HIDDEN), -torch.rand(outputs)

    ner = f"_ner._ner_scorers.{name}__ner_labels."
    layers(f"{ner}0._module.", f"{ner}1._module.", SPAN, len(LABELS) - 1)
    pruner = f"_relation._mention_pruners.{name}__relation_labels._scorer."
    layers(f"{pruner}0._module.", f"{pruner}1._module.", SPAN, 1)
    related = "_relation._relation_{}." + f"{name}__relation_labels."
    layers(related.format("feedforwards"), related.format("scorers"), 3 * SPAN, len(KINDS))
    made[f"{pruner}1._module.weight"] /= 9  # so that mentions are not all that counts for relations
    made["_coref._distance_embedding.weight"] = torch.randn(10, FEATURES)  # which RadGraph does not use
    return made


def archive(folder, encoder, name="radgraph-xl", *, longest=512, datasets=None, coref=0):
    """Writes an archive as a folder: config.json, weights.th and the vocabulary."""
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(12)
    bert = AutoModel.from_config(AutoConfig.from_pretrained(encoder))
    weights = {PREFIX + key: value for key, value in bert.state_dict().items()}
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "vocabulary" / "non_padded_namespaces.txt").write_text("*tags\n*labels\n")
    for dataset in datasets or [name]:
        weights |= heads(dataset)
        (folder / "vocabulary" / f"{dataset}__ner_labels.txt").write_text("\n".join(LABELS) + "\n")
        (folder / "vocabulary" / f"{dataset}__relation_labels.txt").write_text("\n".join(KINDS))
    torch.save(weights, folder / "weights.th")
    modules = {"ner": {}, "relation": {"spans_per_word": 0.5}, "coref": {"coref_prop": coref}}
    bert_settings = {"model_name": str(encoder), "max_length": longest}
    settings = {
        "dataset_reader": {"max_span_width": MOST_WORDS},
        "model": {
            "max_span_width": MOST_WORDS,
            "modules": modules,
            "embedder": {"token_embedders": {"bert": bert_settings}},
        },
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """An encoder's folder, and an archive that names it."""
    root = tmp_path_factory.mktemp("radgraph")
    encoder = save_vocabulary(root / "encoder")
    return encoder, archive(root / "archive", encoder)


def annotator(made, name="radgraph_xl"):
    made.name = name
    made.check_ready()
    return made


def compressed(folder, path):
    with tarfile.open(path, "w:gz") as tar:
        for name in ("config.json", "weights.th", "vocabulary"):
            tar.add(folder / name, arcname=name)
    return path


def naive(made, folder, encoder, words, longest=512):
    """What the architecture says, written down once more with whole tables."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    weights = torch.load(folder / "weights.th")
    bert = AutoModel.from_config(AutoConfig.from_pretrained(encoder)).eval()
    bert.load_state_dict({key.removeprefix(PREFIX): value for key, value in weights.items() if PREFIX in key})
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    pieces, owners = [], []
    for place, word in enumerate(words):
        found = tokenizer(word, add_special_tokens=False)["input_ids"]
        pieces += found
        owners += [place] * len(found)
    hidden = []
    for start in range(0, len(pieces), longest - 2):
        ids = [tokenizer.cls_token_id, *pieces[start : start + longest - 2], tokenizer.sep_token_id]
        hidden.append(bert(torch.tensor([ids])).last_hidden_state[0, 1:-1])
    hidden, owners = torch.cat(hidden), torch.tensor(owners)
    vectors = [hidden[owners == place].mean(0) for place in range(len(words))]
    spans = [(i, j) for i in range(len(words)) for j in range(i, min(i + MOST_WORDS, len(words)))]
    widths = weights["_endpoint_span_extractor._span_width_embedding.weight"]
    table = torch.stack([torch.cat([vectors[i], vectors[j], widths[j - i]]) for i, j in spans])

    def head(inputs, first, last):
        for layer in range(2):
            weight, bias = (weights[f"{first}_linear_layers.{layer}.{part}"] for part in ("weight", "bias"))
            inputs = (inputs @ weight.T + bias).clamp(min=0)
        return inputs @ weights[f"{last}weight"].T + weights[f"{last}bias"]

    name = made.dataset
    ner, pruner = (
        f"_ner._ner_scorers.{name}__ner_labels.",
        f"_relation._mention_pruners.{name}__relation_labels._scorer.",
    )
    scores = head(table, f"{ner}0._module.", f"{ner}1._module.")
    entities = {span: LABELS[1 + int(row.argmax())] for span, row in zip(spans, scores, strict=True) if row.max() > 0}
    mentions = head(table, f"{pruner}0._module.", f"{pruner}1._module.")[:, 0]
    kept = sorted(mentions.argsort(descending=True)[: math.ceil(len(words) / 2)].tolist())
    related = "_relation._relation_{}." + f"{name}__relation_labels."
    names = (related.format("feedforwards"), related.format("scorers"))
    relations = set()
    for one in kept:
        for other in kept:
            joined = torch.cat([table[one], table[other], table[one] * table[other]])
            row = head(joined, *names) + mentions[one] + mentions[other]
            if row.max() > 0 and spans[one] in entities and spans[other] in entities:
                relations.add((spans[one], spans[other], KINDS[int(row.argmax())]))
    return entities, relations


def as_sets(reading):
    places = {name: (entity["start_ix"], entity["end_ix"]) for name, entity in reading["entities"].items()}
    entities = {places[name]: entity["label"] for name, entity in reading["entities"].items()}
    relations = {
        (places[name], places[target], kind)
        for name, entity in reading["entities"].items()
        for kind, target in entity["relations"]
    }
    return entities, relations


@pytest.mark.parametrize("longest", [512, 16])
def test_what_it_reads_is_what_the_architecture_says_also_of_long_texts(tmp_path, places, longest):
    encoder, _ = places
    folder = archive(tmp_path / "archive", encoder, longest=longest)
    made = annotator(RadGraphXL(str(folder)))
    found_relations = 0
    with torch.inference_mode():
        for text, reading in zip(TEXTS, made.annotate(TEXTS), strict=True):
            words = made.split(text)
            assert reading["text"] == " ".join(words)
            assert as_sets(reading) == naive(made, folder, encoder, words, longest)
            found_relations += len(as_sets(reading)[1])
    assert found_relations


def test_the_published_format(places):
    _, folder = places
    (reading,) = annotator(RadGraphXL(str(folder))).annotate(TEXTS[:1])
    words = reading["text"].split()
    assert list(reading["entities"]) == [str(number + 1) for number in range(len(reading["entities"]))]
    for entity in reading["entities"].values():
        assert entity["tokens"] == " ".join(words[entity["start_ix"] : entity["end_ix"] + 1])
        assert entity["label"] in LABELS[1:]
        assert all(kind in KINDS and target in reading["entities"] for kind, target in entity["relations"])
    assert json.loads(json.dumps(reading)) == reading
    assert radgraph_f1(reading, reading, "complete") == 1.0


def test_a_tar_reads_as_its_folder_does_and_batches_do_not_matter(tmp_path, places):
    _, folder = places
    whole = annotator(RadGraphXL(str(folder))).annotate(TEXTS)
    packed = annotator(RadGraphXL(str(compressed(folder, tmp_path / "radgraph-xl.tar.gz")), device="cpu"))
    assert [packed.annotate([text])[0] for text in TEXTS] == whole
    assert packed.annotate(TEXTS[::-1]) == whole[::-1]
    assert packed.revision == "radgraph-xl.tar.gz, encoder"


def test_texts_without_words_have_no_entities_and_load_nothing():
    assert RadGraph("nowhere").annotate(["", " \n\t "]) == [{"text": "", "entities": {}}] * 2


def test_a_word_that_the_encoder_drops_is_still_a_word(places):
    _, folder = places
    (reading,) = annotator(RadGraphXL(str(folder))).annotate(["clear \x00 lungs"])
    assert reading["text"] == "clear \x00 lungs"


def test_words_of_radgraph():
    split = RadGraph().split
    assert " ".join(split("No edema.Clear (stable), 3.5cm/day!")) == "No edema . Clear ( stable ) , 3 . 5cm / day !"
    assert split("well-aerated; 5% ___") == ["well-aerated;", "5%", "___"]


@pytest.mark.parametrize("kind", [RadGraphXL, ModernRadGraphXL])
def test_words_of_radgraph_xl(kind):
    split = kind().split
    assert split("No edema.Clear\nwell-aerated") == ["No", "edema", ".", "Clear", "well", "-", "aerated"]
    assert " ".join(split("(30%). (5%), it is (so).")) == "( 30 % ) . ( 5 % ), it is ( so ) ."
    assert split("effusion.' ___ 胸部") == ["effusion", ".", "'", "___", "胸部"]
    assert split(r"one\ntwo") == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        (RadGraph, "radgraph.tar.gz"),
        (RadGraphXL, "radgraph-xl.tar.gz"),
        (ModernRadGraphXL, "modern-radgraph-xl.tar.gz"),
    ],
)
def test_missing_weights_are_named_with_where_they_are_had_and_on_which_terms(kind, file, tmp_path):
    made = kind(str(tmp_path / "nowhere"))
    made.name = "graphs"
    with pytest.raises(UserError) as caught:
        made.check_ready()
    for part in (f"StanfordAIMI/RRG_scorers:{file}", "PhysioNet", "annotators.graphs.weights", "nowhere"):
        assert part in str(caught.value)


def test_the_encoder_that_an_archive_names_is_asked_for(tmp_path, places):
    encoder, _ = places
    folder = archive(tmp_path / "archive", encoder)
    settings = json.loads((folder / "config.json").read_text())
    settings["model"]["embedder"]["token_embedders"]["bert"]["model_name"] = "an-organisation/an-encoder"
    (folder / "config.json").write_text(json.dumps(settings))
    made = RadGraphXL(str(compressed(folder, tmp_path / "a.tar.gz")))
    made.name = "radgraph_xl"
    with pytest.raises(UserError, match="tokenizer of an-organisation/an-encoder.*annotators.radgraph_xl.encoder"):
        made.check_ready()
    assert annotator(RadGraphXL(str(folder), encoder=str(encoder))).annotate(["clear"])[0]["text"] == "clear"


def test_the_head_is_that_of_the_model_or_the_only_one(tmp_path, places):
    encoder, folder = places
    other = annotator(ModernRadGraphXL(str(folder)))  # its archive has a single head, of another name
    assert other.annotate(TEXTS) == annotator(RadGraphXL(str(folder))).annotate(TEXTS)
    several = archive(tmp_path / "several", encoder, datasets=["radgraph-xl", "echograph"])
    assert annotator(RadGraphXL(str(several))).annotate(["clear"])
    with pytest.raises(UserError, match=r"2 heads \['echograph__ner_labels', 'radgraph-xl__ner_labels'\]"):
        annotator(RadGraph(str(several))).annotate(["clear"])


def test_archives_that_cannot_be_used_are_told_in_a_sentence(tmp_path, places):
    encoder, folder = places

    def refused(path, words, **settings):
        made = RadGraphXL(str(path), **settings)
        made.name = "radgraph_xl"
        with pytest.raises(UserError, match=words):
            made.annotate(["clear"])

    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(compressed(folder, tmp_path / "whole.tar.gz").read_bytes()[:2000])
    refused(broken, "broken.tar.gz: (cannot be read as|holds no)", encoder=str(encoder))
    part = archive(tmp_path / "part", encoder)
    (part / "weights.th").unlink()
    refused(part, "holds no weights.th")
    (part / "weights.th").write_bytes(b"no weights")
    refused(part, "cannot be read as an archive")
    refused(archive(tmp_path / "coref", encoder, coref=1), "coref_prop above 0")
    refused(folder, "do not fit its encoder", encoder=str(save_vocabulary(tmp_path / "wide", hidden_size=32)))
    refused(
        folder, "lack .* of its encoder, such as", encoder=str(save_vocabulary(tmp_path / "deep", num_hidden_layers=3))
    )
    weights = torch.load(folder / "weights.th")
    lost = archive(tmp_path / "lost", encoder)
    torch.save({key: value for key, value in weights.items() if "_span_width" not in key}, lost / "weights.th")
    refused(lost, "holds no '_endpoint_span_extractor")
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "config.json").write_text("{}")
    refused(odd, "names no encoder")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_configs_name_their_class_and_archive(name):
    text = (CONFIGS / "annotator" / f"{name}.yaml").read_text()
    settings = yaml.safe_load(text)
    kind = {"radgraph": RadGraph, "radgraph_xl": RadGraphXL, "modern_radgraph_xl": ModernRadGraphXL}[name]
    assert text.startswith("# description: ")
    assert settings.pop("_target_") == f"medimg_eval.models.{kind.__name__}"
    assert settings["weights"] in kind(**settings).archive.what


REPORTS = {"a": TEXTS[0], "b": TEXTS[2], "c": TEXTS[1]}


class Layout:
    """Three reports."""

    def cases(self, split):
        return [
            Case(id=name, images=(), target=Known(Key(text)), question=Question("Report.", "report"))
            for name, text in REPORTS.items()
        ]


class Writer(VisionLanguageModel):
    """Writes one report as it is, half of another, and nothing."""

    def generate(self, prompts, decoding):
        return [{"a": TEXTS[0], "b": TEXTS[2][:20], "c": ""}[prompt.case_id] for prompt in prompts]


def test_in_a_run_graphs_are_read_once_and_compared(tmp_path, places, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    encoder, folder = places
    settings = {"weights": str(folder), "encoder": str(encoder)}
    graphs = ModelSpec("RadGraphXL", RadGraphXL, settings, lambda: RadGraphXL(**settings))
    task = ReportTask(
        name="r",
        layout=Layout(),
        splits={"test": "test"},
        template={"user": "{question}"},
        metrics=["radgraph_xl_f1_entity", "radgraph_xl_f1_entity_has_relation", "radgraph_xl_f1_entity_relation"],
    )
    run = evaluate(
        task,
        ModelSpec("Writer", Writer, {}, Writer),
        Settings(
            runs=tmp_path / "runs", run=None, trainer=lambda **_: None, config={}, annotators={"radgraph_xl": graphs}
        ),
    )
    (loaded,) = load_runs([run])
    values = loaded.scores.set_index(["case", "metric"])["value"]
    read = annotator(RadGraphXL(str(folder))).annotate([TEXTS[2], TEXTS[2][:20]])
    names = {"simple": "entity", "partial": "entity_has_relation", "complete": "entity_relation"}
    for level, matched in names.items():
        assert values["a", f"radgraph_xl_f1_{matched}"] == 1.0
        assert values["b", f"radgraph_xl_f1_{matched}"] == radgraph_f1(*read, level)
        assert values["c", f"radgraph_xl_f1_{matched}"] == 0.0
    notes = " ".join(build_table([loaded]).footnotes)
    assert "radgraph_xl by archive, encoder" in notes
    assert "sets of partial facts in lower case" in notes
