"""Tuning by LoRA: what is learned, what is kept, what loads it, and that the base stays as it was."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import tiny_vlm
import torch
from lightning.pytorch.loggers import CSVLogger

from medimg_eval.case import Case, Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models import HuggingFaceVLM, LoraVLM
from medimg_eval.models.vision_language.huggingface.lora import answers_to
from medimg_eval.question import Decoding, Key, Message, Question
from medimg_eval.tasks import QuestionTask
from tests.helpers.asking import Known
from tests.helpers.running import evaluate

pytest.importorskip("peft")
pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*logs directory.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]

OPTIONS = {"A": "liver", "B": "kidney"}
SHORT = Decoding(max_new_tokens=4)
TINY = {"rank": 4, "alpha": 8, "dropout": 0.0, "dtype": "float32"}


def picture(bright, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 60, (3, 28, 28), dtype=np.uint8)
    return Image(pixels + np.uint8(180 if bright else 0), np.eye(4), units="pixel")


def prompt(number, *images, options=OPTIONS, text="Which organ is shown?"):
    turn = Message("user", (*range(len(images)), text))
    return Prompt(f"c{number}", images, messages=(turn,), options=options)


class Shown:
    """A picture without a file."""

    files = ()

    def __init__(self, bright, seed):
        self.of = (bright, seed)

    def __repr__(self):
        return f"Shown{self.of}"

    def read(self):
        return picture(*self.of)


class Layout:
    """Six questions to fit on, two to validate, two to test: bright pictures are A."""

    def cases(self, split):
        numbers = {"fit": range(6), "validate": range(6, 8), "test": range(8, 10)}
        return [
            Case(
                id=f"c{n}",
                images=(Shown(n % 2 == 0, n),),
                target=Known(Key("AB"[n % 2]), (Path(f"c{n}"),)),
                patient=f"p{n}",
                question=Question("Which organ is shown?", "choice", OPTIONS),
            )
            for n in numbers[split]
        ]


def task(**settings):
    wanted = {"template": {"user": "{question}"}, "decoding": {"max_new_tokens": 4}, "metrics": ["accuracy"]}
    return QuestionTask(name="organs", layout=Layout(), **wanted | settings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("bases")
    return {family: tiny_vlm.save(root / family, family) for family in (*tiny_vlm.FAMILIES, "qwen2")}


def made(folder, **settings):
    torch.manual_seed(0)
    model = LoraVLM(str(folder), **{**TINY, **settings})
    model.prepare({}, None)
    return model


def loss_of(model, batch):
    with torch.no_grad():
        return float(model.training_loss(batch))


def settings_of(tmp_path, epochs, stop_after=None):
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False)
    trainer = partial(trainer, max_epochs=stop_after or epochs, use_distributed_sampler=False, log_every_n_steps=1)
    return Settings(
        runs=tmp_path / "runs", run=None, trainer=trainer, config={"trainer": {"max_epochs": epochs}}, batch_size=3
    )


def candidate(folder, **settings):
    settings = {"base": str(folder), **TINY, **settings}
    return ModelSpec("Tuned", LoraVLM, settings, lambda: LoraVLM(**settings))


def trained(tmp_path, folder, *, epochs=8, stop_after=None, recipe=None, **settings):
    pl.seed_everything(0, verbose=False)
    loggers = lambda where: [CSVLogger(where, name="logs", version="csv")]  # noqa: E731
    wanted = settings_of(tmp_path, epochs, stop_after)
    return fit(task(), candidate(folder, **settings), recipe or Recipe(lr=0.02), wanted, loggers)


@pytest.mark.parametrize("family", [*tiny_vlm.FAMILIES, "qwen2"])
def test_a_new_adapter_answers_as_the_base_and_its_loss_is_that_of_the_answer_alone(folders, family):
    model, base = made(folders[family]), HuggingFaceVLM(str(folders[family]), dtype="float32")
    shown = [] if family == "qwen2" else [picture(True)]
    prompts = [prompt(n, *shown, text="Which organ is shown? " + "Look at it. " * n) for n in range(3)]
    assert model.generate(prompts, SHORT) == base.generate(prompts, SHORT)
    samples = [one for asked in prompts for one in model.training_samples(asked, Key("B"), {}, seed=0)]
    alone = [loss_of(model, [one]) for one in samples]
    assert loss_of(model, samples) == pytest.approx(np.mean(alone), rel=1e-4)
    # By hand: the likelihood of the letter, which `choose` weighs, and of the mark that ends the turn after it.
    text, tokens = model._ending(model.reader.template.render(prompts[0]), samples[0])
    inputs = model.reader.encode([text], prompts[:1], model.model)
    assert model.reader.tokenizer.convert_ids_to_tokens(list(tokens)) == ["B", "<|im_end|>"]
    with torch.no_grad():
        likely = model.model(**inputs).logits[0].float().log_softmax(-1)
    letter, end = float(likely[-3, tokens[0]]), float(likely[-2, tokens[1]])
    assert letter == pytest.approx(base.choose(prompts[:1])[0]["B"], rel=1e-4)
    assert alone[0] == pytest.approx(-(letter + end) / 2, rel=1e-4)


def test_only_the_language_model_is_adapted_and_only_the_adapter_learns(folders):
    model = made(folders["qwen2_vl"])
    learned = {name for name, one in model.named_parameters() if one.requires_grad}
    assert learned == set(model.state_dict())
    # Of two layers each of q, k, v, o, gate, up and down, and of each A and B.
    assert len(learned) == 2 * 7 * 2
    assert all("language_model" in name and ("lora_A" in name or "lora_B" in name) for name in learned)
    named = made(folders["qwen2_vl"], targets=["q_proj"])
    assert len(named.state_dict()) == 2 * 2
    (sample,) = model.training_samples(prompt(0, picture(True)), Key("A"), {}, seed=0)
    model.training_loss([sample]).backward()
    assert all((one.grad is not None) == one.requires_grad for one in model.parameters())


def test_gradient_checkpointing_gives_the_same_gradients(folders):
    found = []
    for saving in (False, True):
        model = made(folders["qwen2_vl"], gradient_checkpointing=saving).train()
        (sample,) = model.training_samples(prompt(0, picture(True)), Key("A"), {}, seed=0)
        model.training_loss([sample]).backward()
        found.append([one.grad for one in model.parameters() if one.requires_grad])
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(*found, strict=True))


def test_fit_learns_keeps_the_adapter_and_its_run_is_what_test_loads(folders, tmp_path):
    base = folders["qwen2_vl"]
    before = hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest()
    folder = trained(tmp_path, base)
    lines = (folder / "logs" / "csv" / "metrics.csv").read_text().splitlines()
    place = lines[0].split(",").index("train/loss")
    losses = [float(line.split(",")[place]) for line in lines[1:] if line.split(",")[place]]
    assert len(losses) == 8
    assert losses[-1] < 0.2
    assert losses[0] > 2
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["best_score"] == 1.0
    told = manifest["fitted"]
    weights = (folder / "checkpoints" / "adapter" / "adapter_model.safetensors").read_bytes()
    assert told["adapter"] == hashlib.sha256(weights).hexdigest()
    assert (told["base"], told["rank"], told["layers"]) == (str(base), 4, 14)
    assert hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest() == before
    stored = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert all("lora_" in name for name in stored)
    run = evaluate(task(), candidate(base, checkpoint=str(folder)), settings_of(tmp_path, 1))
    assert [line.split('"texts": ["')[1][0] for line in (run / "predictions-0.jsonl").read_text().splitlines()] == [
        "A",
        "B",
    ]
    # PEFT's own form, on the plain model.
    prompts = [prompt(n, picture(n % 2 == 0, n)) for n in range(4)]
    plain = HuggingFaceVLM(str(base), dtype="float32", adapter=str(folder / "checkpoints" / "adapter"))
    tuned = LoraVLM(str(base), checkpoint=str(folder), **TINY)
    tuned.check_ready()
    assert plain.generate(prompts, SHORT) == tuned.generate(prompts, SHORT) == ["A", "B", "A", "B"]
    with pytest.raises(UserError, match=r"was fitted on .*set model.base"):
        made(tiny_vlm.save(tmp_path / "other", "qwen2_vl", seed=1), checkpoint=str(folder))


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_to_the_same_adapter_and_stops_early_on_validation(folders, tmp_path):
    base = folders["qwen2_vl"]
    whole = trained(tmp_path / "whole", base, epochs=3)
    again = trained(tmp_path / "again", base, epochs=3)

    def adapter(folder):
        return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]

    assert all(torch.equal(one, adapter(again)[name]) for name, one in adapter(whole).items())
    trained(tmp_path / "cut", base, epochs=3, stop_after=1)
    manifest = next((tmp_path / "cut").rglob("manifest.json"))
    told = json.loads(manifest.read_text()) | {"status": "interrupted"}
    manifest.write_text(json.dumps(told))
    resumed = trained(tmp_path / "cut", base, epochs=3)
    assert adapter(resumed).keys() == adapter(whole).keys()
    steps = torch.load(resumed / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert steps == 3 * 2
    early = trained(tmp_path / "early", base, epochs=20, recipe=Recipe(lr=1e-9, patience=2))
    assert torch.load(early / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2


def test_answers_are_learned_in_the_words_in_which_they_are_to_be_written():
    asked = prompt(0)
    plain = prompt(0, options={})
    assert answers_to(asked, Key("B")) == ["B"]
    assert answers_to(asked, Key(("B", "A"))) == ["A, B"]
    assert answers_to(plain, Key(("left lung", "left"))) == ["left lung", "left"]
    assert answers_to(plain, Key("yes")) == ["yes"]
    assert answers_to(plain, Key(2.50)) == ["2.5"]
    for value in (None, "", {"heart": "x"}, (1, 2, 3, 4)):
        with pytest.raises(CaseError, match="'c0': has no answer in words"):
            answers_to(plain, Key(value))


def test_of_several_right_answers_each_visit_takes_one(folders):
    model = LoraVLM(str(folders["qwen2"]), **TINY)
    key = Key(("left lung", "left"))
    drawn = {model.training_samples(prompt(0, options={}), key, {}, seed=seed)[0].answer for seed in range(8)}
    assert drawn == {"left lung", "left"}


def test_what_cannot_be_tuned_or_loaded_is_refused_with_what_mends_it(folders, tmp_path):
    base = str(folders["qwen2_vl"])
    for settings in ({"rank": 0}, {"alpha": 0}, {"dropout": 1.0}):
        with pytest.raises(UsageError, match="expected a rank from 1"):
            LoraVLM(base, **settings)
    with pytest.raises(UserError, match="fit the adapter first"):
        LoraVLM(base).check_ready()
    with pytest.raises(UserError, match="holds no adapter of a finished fit"):
        LoraVLM(base, checkpoint=str(tmp_path)).check_ready()
    with pytest.raises(UserError, match="model.targets"):
        made(base, targets=["no_such_layer"])
    model = made(base)
    sample = model.training_samples(prompt(0, picture(True), text="look " * 2100), Key("A"), {}, seed=0)
    with pytest.raises(CaseError, match="tokens long"):
        model.training_loss(sample)
