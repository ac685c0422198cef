"""The report generator: its words, what it is shown, how it is trained, kept and asked."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from medimg_eval.case import Case, Geometry, Image, Prompt
from medimg_eval.data.cache import VolumeCache
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import read
from medimg_eval.imaging.dicom.writing.images import write_picture
from medimg_eval.models.report_generation.generator import ReportGenerator
from medimg_eval.models.report_generation.tokenizer import Phrases, Words, packed, phrases_of, split, unpacked
from medimg_eval.question import Decoding, Key, Message, Question
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known
from tests.helpers.running import evaluate

pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]

END, UNKNOWN = "[END]", "[UNK]"
LEFT, RIGHT = "A left pleural effusion is seen.", "There is a right pneumothorax, 2.5 cm deep."
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 48}
TINY = {
    "encoder": "resnet10t",
    "encoder_options": {"channels": [4, 4, 8, 8], "stem_width": 4},
    "decoder": GPT2,
    "image_size": 32,
    "max_tokens": 24,
    "threshold": 1,
}


def pixels(left, seed=0):
    """Grey noise with one bright half."""
    noise = np.random.default_rng(seed).integers(0, 60, (1, 24, 24)).astype(np.uint8)
    half = slice(12, 24) if left else slice(0, 12)
    noise[:, :, half] += 180
    return noise


class Shown:
    """A picture without a file."""

    files = ()

    def __init__(self, left, seed):
        self.of = (left, seed)

    def __repr__(self):
        return f"Shown{self.of}"

    def read(self):
        return Image(pixels(*self.of), np.eye(4))

    def geometry(self):
        return Geometry((24, 24), np.eye(4))


class Layout:
    """Six studies to fit on, two to validate, two to test."""

    def cases(self, split):
        numbers = {"fit": range(6), "validate": range(6, 8), "test": range(8, 10)}
        return [
            Case(
                id=f"c{n}",
                images=(Shown(n % 2 == 0, n),),
                target=Known(Key(LEFT if n % 2 == 0 else RIGHT), (Path(f"c{n}"),)),
                patient=f"p{n}",
                question=Question("Report.", "report"),
            )
            for n in numbers[split]
        ]


def task(**settings):
    wanted = {"name": "r", "layout": Layout(), "template": {"user": "{question}"}, **settings}
    return ReportTask(**{"metrics": ["rouge_l", "meteor_no_synonyms", "unanswered"], **wanted})


def made(**settings):
    torch.manual_seed(0)
    model = ReportGenerator(**{**TINY, **settings})
    model.study(Layout().cases("fit"))
    return model.eval()


def prompt(name, *lefts):
    images = tuple(Image(pixels(left, seed), np.eye(4)) for seed, left in enumerate(lefts))
    return Prompt(name, images, messages=(Message("user", (*range(len(images)), "Report.")),))


PROMPTS = [prompt("a", True), prompt("b", False), prompt("c"), prompt("d", True, False), prompt("e", False)]


def settings_of(tmp_path, **settings):
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, max_epochs=2)
    return Settings(
        runs=tmp_path / "runs",
        run=None,
        trainer=partial(trainer, use_distributed_sampler=False, log_every_n_steps=1),
        config={"trainer": {"max_epochs": 2}},
        batch_size=3,
        **settings,
    )


def candidate(**settings):
    settings = {**TINY, **settings}
    return ModelSpec("Generator", ReportGenerator, settings, lambda: ReportGenerator(**settings))


def trained(tmp_path, *, asked=None, model=None, **settings):
    pl.seed_everything(0, verbose=False)
    loggers = lambda where: [CSVLogger(where, name="logs", version="csv")]  # noqa: E731
    return fit(asked or task(), model or candidate(), Recipe(), settings_of(tmp_path, **settings), loggers)


@pytest.mark.parametrize(
    "text",
    [
        "A left-sided effusion, 2.5 cm.",
        "1.Stable.2.No effusion",
        "Pneumonia/edema (mild): no; 40%.",
        "右侧 胸腔积液。",
        "___ 5 mm",
    ],
)
def test_words_come_back_as_they_were(text):
    words = Words.learned([text], 1)
    assert words.decode(words.encode(text, 99)[1:]) == text
    assert Words(unpacked(packed(words.known, ()))[0]).known == words.known


def test_rare_words_are_unknown_and_never_written_and_long_texts_are_cut():
    words = Words.learned(["no edema no edema", "no effusion"], 2)
    assert words.known == (" no", " edema") or set(words.known) == {"no", " edema"}
    assert words.encode("no effusion", 99) == [1, words.encode("no", 9)[1], 3, 2]
    assert words.encode("no edema edema", 3)[0] == 1
    assert len(words.encode("no edema edema", 3)) == 3
    assert 3 in words.unwritten
    with pytest.raises(UserError, match="lower model.threshold"):
        Words.learned(["one"], 2)


def test_phrases_end_with_their_sentence_and_are_those_that_some_reports_have():
    assert phrases_of("No edema. Left effusion") == {
        "no", "edema", "no edema", "left", "effusion", "left effusion",
    }  # fmt: skip
    texts = ["No edema."] * 3 + ["Left effusion."] * 2 + ["Nodule."]
    learned = Phrases.learned(texts, 9)
    assert set(learned.known) == {"no", "edema", "no edema", "left", "effusion", "left effusion"}
    assert learned.told("A LEFT effusion").sum() == 3
    assert split(" a\n b ") == ["a", " b"]


def test_fit_logs_the_metrics_and_its_run_folder_is_a_checkpoint_with_its_words(tmp_path):
    folder = trained(tmp_path)
    logged = (folder / "logs" / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert {"val/rouge_l", "val/meteor_no_synonyms", "val/unanswered", "train/loss"} <= set(logged.split(","))
    run = evaluate(task(), candidate(checkpoint=str(folder)), settings_of(tmp_path))
    assert json.loads((run / "manifest.json").read_text())["failed_cases"] == 0
    loaded = ReportGenerator(**TINY, checkpoint=str(folder))
    loaded.check_ready()
    loaded.prepare({}, None)
    known = loaded.words.known
    loaded.study([])  # the words of the checkpoint stay
    assert loaded.words.known == known
    assert " effusion" in known
    stored = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(loaded.state_dict()["join.weight"], stored["model.join.weight"])


def test_pictures_to_train_on_come_out_of_the_cache_as_they_were_read(tmp_path):
    cache = VolumeCache(tmp_path / "cache", 1 << 30)
    first = trained(tmp_path / "one", cache=cache)
    second = trained(tmp_path / "two", cache=cache)
    plain = trained(tmp_path / "three")
    weights = [
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for folder in (first, second, plain)
    ]
    assert all(torch.equal(weights[0][key], other[key]) for other in weights[1:] for key in weights[0])


def test_a_generator_learns_which_picture_has_which_report():
    model = made(augment=0.0, phrases=8).train()
    samples = [
        sample
        for case in Layout().cases("fit")
        for sample in model.training_samples(
            prompt(case.id, case.target.read().value == LEFT), case.target.read(), {}, seed=0
        )
    ]
    batch = torch.utils.data.default_collate(samples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=60)  # for the statistics to catch up
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.training_loss(batch)
        loss.backward()
        optimizer.step()
        schedule.step()
    assert float(loss.detach()) < 0.2
    assert list(model.eval().generate(PROMPTS[:2], Decoding())) == [LEFT, RIGHT]


@pytest.mark.parametrize(
    ("settings", "decoding"),
    [
        ({}, Decoding()),
        ({"views": 2}, Decoding()),
        ({"beams": 3}, Decoding()),
        ({}, Decoding(temperature=0.7, top_p=0.9, seed=3)),
    ],
)
def test_neither_the_batch_nor_the_order_changes_an_answer(settings, decoding):
    together = made(**settings).generate(PROMPTS, decoding)
    alone = made(**settings, batch=1)
    assert list(alone.generate(PROMPTS, decoding)) == list(together)
    assert list(alone.generate(PROMPTS[::-1], decoding)) == list(together)[::-1]


def test_answers_end_at_the_texts_to_stop_at_and_after_so_many_words():
    model = made()
    (whole,) = model.generate(PROMPTS[:1], Decoding())
    first = whole.split()[0]
    assert model.generate(PROMPTS[:1], Decoding(max_new_tokens=1)) == [first]
    assert model.generate(PROMPTS[:1], Decoding(stop=(whole[2:],))) == [whole[:2].strip()]


def test_further_views_are_read_only_where_there_are_views_for_them():
    both, first = PROMPTS[3], prompt("d", True)
    one, two = made(views=1), made(views=2)
    assert torch.equal(one._stack(both)[0], one._stack(first)[0])
    pictures, seen = two._stack(both)
    assert seen.tolist() == [True, True]
    assert not torch.equal(pictures[0], pictures[1])
    assert two._stack(first)[1].tolist() == [True, False]


def test_both_photometric_interpretations_are_shown_alike(tmp_path):
    image = Image(pixels(True).astype(np.uint16) * 9, np.diag([2.0, 2.0, 1, 1]), "DX")
    for photometric in ("MONOCHROME1", "MONOCHROME2"):
        write_picture(tmp_path / f"{photometric}.dcm", image, photometric=photometric)
    shown = [made().encoder.picture(read(tmp_path / f"MONOCHROME{n}.dcm")) for n in (1, 2)]
    assert torch.equal(*shown)
    assert shown[0][:, :, 20:].mean() > shown[0][:, :, :12].mean()


def test_an_encoder_of_open_clip_and_a_pretrained_decoder_are_taken_from_folders(tmp_path):
    library = pytest.importorskip("open_clip")
    config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    clip, decoder = tmp_path / "clip", tmp_path / "decoder"
    clip.mkdir()
    (clip / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": {"mean": [0.4] * 3, "std": [0.2] * 3}})
    )
    torch.save(library.CLIP(**config).state_dict(), clip / "open_clip_pytorch_model.bin")
    words = {word: number for number, word in enumerate([END, UNKNOWN, "a", "left", "right", "effusion", "is", "seen"])}
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=UNKNOWN))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made_of = {"tokenizer_object": core, "unk_token": UNKNOWN, "eos_token": END}
    transformers.PreTrainedTokenizerFast(**made_of).save_pretrained(decoder)
    own = transformers.GPT2Config(**{**GPT2, "vocab_size": 8, "bos_token_id": 0, "eos_token_id": 0})
    transformers.GPT2LMHeadModel(own).save_pretrained(decoder)
    model = made(encoder=f"open_clip:{clip}", encoder_options=None, image_size=None, decoder=str(decoder))
    assert (model.encoder.edge, model.encoder.places, model.encoder.features) == (16, 4, 16)
    assert model.encoder._mean == pytest.approx((0.4,) * 3)
    assert model.decoder.config.add_cross_attention
    (sample,) = model.training_samples(PROMPTS[0], Key(LEFT.lower().rstrip(".")), {}, seed=0)
    loss = model.training_loss({key: value[None] for key, value in sample.items()})
    assert bool(loss.isfinite())
    (text,) = model.generate(PROMPTS[:1], Decoding(max_new_tokens=3))
    assert set(text.split()) <= set(words)


def test_what_cannot_be_meant_or_made_is_refused_with_what_mends_it(tmp_path):
    with pytest.raises(UserError, match="model.checkpoint=PATH"):
        ReportGenerator(**TINY).check_ready()
    with pytest.raises(UserError, match="no words yet"):
        ReportGenerator(**TINY).generate(PROMPTS[:1], Decoding())
    for settings, message in (
        ({"encoder": "resnet10"}, "timm has no 'resnet10'.*resnet10t"),
        ({"encoder_options": {"stem": 3}}, "'resnet10t' cannot be made by timm"),
        ({"decoder": {"model_type": "gpt9"}}, "cannot be made by transformers"),
    ):
        with pytest.raises(UserError, match=message):
            made(**settings)
    for settings, message in (
        ({"max_tokens": 60}, "max_tokens is 60, but the decoder reads 48"),
        ({"views": 0}, "model.views is 0"),
        ({"augment": 0.5}, "augment=0.5"),
        ({"decoder": {"n_embd": 8}}, "model_type"),
    ):
        with pytest.raises(UsageError, match=message):
            made(**settings)
    model = made()
    with pytest.raises(CaseError, match="'a' has no report to learn from"):
        model.training_samples(PROMPTS[0], Key(" "), {}, seed=0)
    torch.save({"state_dict": {"model.join.weight": torch.zeros(1)}}, tmp_path / "other.ckpt")
    for path, message in ((tmp_path, "no such checkpoint"), (tmp_path / "other.ckpt", "holds no words")):
        with pytest.raises(UserError, match=message):
            ReportGenerator(**TINY, checkpoint=str(path)).prepare({}, None)


def test_fit_refuses_to_follow_a_metric_that_takes_another_model_and_a_case_without_a_report(tmp_path):
    with pytest.raises(UsageError, match="task.monitor is chexbert_similarity, which needs chexbert_similarity"):
        trained(tmp_path, asked=task(monitor="chexbert_similarity"))

    class Lacking(Layout):
        def cases(self, split):
            cases = super().cases(split)
            return [
                *cases,
                Case(
                    id=f"{split}-x",
                    images=(Shown(True, 3),),
                    target=Known(Key(""), (Path(split),)),
                    question=Question("Report.", "report"),
                ),
            ]

    with pytest.raises(UserError, match="'fit-x' has no report to learn from"):
        trained(tmp_path, asked=task(layout=Lacking()))


def test_a_frozen_encoder_stays_as_it_is_and_the_decoder_learns():
    model = made(freeze=True).train()
    before = {name: tensor.clone() for name, tensor in model.encoder.state_dict().items()}
    samples = [
        sample
        for seed, case in enumerate(Layout().cases("fit"))
        for sample in model.training_samples(
            prompt(case.id, case.id in ("c0", "c2", "c4")), case.target.read(), {}, seed=seed
        )
    ]
    batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        loss = model.training_loss(batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.encoder.state_dict().items())
