"""Vision-language models of the Hugging Face hub: tiny ones of seven architectures, with random weights."""

import dataclasses
import json
import logging
import shutil
import sys
import time
import warnings

import numpy as np
import pytest
import tiny_vlm
import torch

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures.reading import as_picture
from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
from medimg_eval.question import Decoding, Message

OPTIONS = {"A": "liver", "B": "left kidney", "C": "spleen", "D": "heart"}
SHORT = Decoding(max_new_tokens=10)


def picture(seed, rows=60, columns=60):
    pixels = np.random.default_rng(seed).integers(0, 256, (3, rows, columns), dtype=np.uint8)
    return Image(pixels, np.eye(4), units="pixel")


def user(text, *images):
    return Message("user", (*images, text))


def prompt(number, *turns, images=(), options=OPTIONS):
    return Prompt(f"case{number}", tuple(images), messages=turns, options=options)


def mixed(count=16):
    """Questions of many lengths: with an image, with two, without, with a system turn, with an exemplar."""
    prompts = []
    for number in range(count):
        text = "Which organ is shown? " + "Look at the lesion in the left lower lobe. " * (number % 4)
        seen = [picture(number, 40 + 9 * (number % 5), 90 - 11 * (number % 3)), picture(100 + number, 33, 70)]
        turns = {
            0: (user(text, 0),),
            1: (Message("system", ("You are a radiologist.",)), user(text, 0)),
            2: (Message("user", ("First ", 0, " then ", 1, text)),),
            3: (user(text),),
            4: (user("Is it a liver?", 0), Message("assistant", ("yes",)), user(text, 1)),
        }[number % 5]
        shown = sum(isinstance(part, int) for turn in turns for part in turn.parts)
        prompts.append(prompt(number, *turns, images=seen[:shown]))
    return prompts


def in_batches(model, prompts, size, decoding=SHORT):
    return [
        answer
        for start in range(0, len(prompts), size)
        for answer in model.generate(prompts[start : start + size], decoding)
    ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: tiny_vlm.save(root / family, family) for family in (*tiny_vlm.FAMILIES, "qwen2")}


@pytest.fixture(scope="module")
def qwen(folders):
    return HuggingFaceVLM(str(folders["qwen2_vl"]), dtype="float32")


@pytest.mark.parametrize("family", tiny_vlm.FAMILIES)
def test_answers_are_the_same_whatever_the_batch_and_its_order(folders, family):
    first = family == "qwen2_vl"
    model, prompts = HuggingFaceVLM(str(folders[family]), dtype="float32"), mixed(16 if first else 5)
    one_by_one = in_batches(model, prompts, 1)
    assert len(set(one_by_one)) == len(prompts)
    for size in (2, 8, 16) if first else (5,):
        assert in_batches(model, prompts, size) == one_by_one
    assert in_batches(model, prompts[::-1], 3) == one_by_one[::-1]


def test_padding_on_the_right_would_change_answers_and_is_undone(qwen):
    prompts = [one for one in mixed() if one.images]
    answers = in_batches(qwen, prompts, 1)
    reader = qwen.reader
    reader.tokenizer.padding_side = "right"
    assert qwen.generate(prompts, SHORT) == answers
    texts = [reader.template.render(one) for one in prompts]
    pictures = [[as_picture(image) for image in one.images] for one in prompts]
    reader.tokenizer.padding_side = "right"
    inputs = reader.processor(text=texts, images=pictures, return_tensors="pt", padding=True)
    wrong = qwen.model.generate(**inputs, max_new_tokens=10)[:, inputs["input_ids"].shape[1] :]
    said = [text.strip() for text in reader.tokenizer.batch_decode(wrong, skip_special_tokens=True)]
    assert sum(one != other for one, other in zip(said, answers, strict=True)) > len(prompts) / 2


def test_a_processor_that_pads_on_the_right_all_the_same_is_refused(qwen, monkeypatch):
    own = qwen.reader.processor

    class Stubborn:
        def __call__(self, **asked):
            own.tokenizer.padding_side = "right"
            return own(**asked)

    monkeypatch.setattr(qwen.reader, "processor", Stubborn())
    prompts = [one for one in mixed() if one.images]
    with pytest.raises(UserError, match="Stubborn pads on the right"):
        qwen.generate(prompts, SHORT)


def test_answers_are_those_of_a_plain_loop_of_the_library(folders, qwen):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(folders["qwen2_vl"])
    model = AutoModelForImageTextToText.from_pretrained(folders["qwen2_vl"], dtype=torch.float32).eval()
    one = mixed()[1]
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "You are a radiologist."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": one.messages[1].text}]},
    ]
    text = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    inputs = processor(text=[text], images=[as_picture(one.image)], return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=10, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert qwen.generate([one], SHORT) == [processor.decode(ids, skip_special_tokens=True).strip()]


def test_every_part_of_a_conversation_changes_the_answer(qwen):
    seen = [picture(1), picture(2)]
    asked = [
        (user("What is shown?", 0),),
        (user("What is shown?", 1),),
        (user("What is shown?", 0, 1),),
        (user("What is shown?", 1, 0),),
        (Message("system", ("You are a nurse.",)), user("What is shown?", 0)),
        (user("Is it a liver?", 0), Message("assistant", ("no",)), user("What is shown?", 1)),
        (user("Is it a liver?", 0), Message("assistant", ("yes",)), user("What is shown?", 1)),
        (user("What is shown?"),),
    ]
    answers = qwen.generate([prompt(number, *turns, images=seen) for number, turns in enumerate(asked)], SHORT)
    assert len(set(answers)) == len(asked)


def test_images_stand_where_they_are_named(qwen):
    turns = (Message("user", ("left ", 1, " right ", 0, " which?")),)
    text = qwen.reader.template.render(prompt(0, *turns, images=[picture(1), picture(2)]))
    shown = tiny_vlm.SHOWN["qwen2_vl"]
    assert text == f"<|im_start|>user\nleft {shown} right {shown} which?<|im_end|>\n<|im_start|>assistant\n"


def test_a_temperature_draws_by_seed_and_prompt_and_not_by_batch(qwen):
    prompts = mixed(5)
    warm = Decoding(max_new_tokens=10, temperature=1.0, top_p=0.9, seed=1)
    answers = in_batches(qwen, prompts, 1, warm)
    assert in_batches(qwen, prompts, 8, warm) == answers
    assert in_batches(qwen, prompts[::-1], 3, warm) == answers[::-1]
    assert in_batches(qwen, prompts, 8, dataclasses.replace(warm, seed=2)) != answers
    assert in_batches(qwen, prompts, 8, dataclasses.replace(warm, top_p=1e-6)) == in_batches(qwen, prompts, 8)


def test_draws_follow_the_probabilities_and_top_p_leaves_out_the_rest():
    from medimg_eval.models.vision_language.huggingface.decoding import GumbelSampler

    likely = torch.tensor([0.5, 0.3, 0.15, 0.05])
    for top_p, expected in ((1.0, likely), (0.7, torch.tensor([0.625, 0.375, 0, 0]))):
        draws = GumbelSampler(Decoding(temperature=2.0, top_p=top_p), mixed(1))
        found = [int(draws(None, 2 * likely.log()[None]).argmax()) for _ in range(4000)]
        shares = torch.bincount(torch.tensor(found), minlength=4) / 4000
        assert (shares - expected).abs().max() < 0.03


def test_an_answer_ends_before_a_text_to_stop_at(qwen):
    prompts = mixed(6)
    whole = in_batches(qwen, prompts, 6)
    stop = (whole[0][3:5], whole[2][4:6])
    cut = qwen.generate(prompts, dataclasses.replace(SHORT, stop=stop))
    for one, other in zip(cut, whole, strict=True):
        ends = [other.find(text) for text in stop if text in other]
        assert one == other[: min(ends, default=len(other))].strip()
    assert cut != whole
    assert in_batches(qwen, prompts, 1, dataclasses.replace(SHORT, stop=stop)) == cut


def test_a_row_that_has_ended_says_nothing_more(folders, tmp_path):
    folder = shutil.copytree(folders["qwen2_vl"], tmp_path / "model")
    prompts = mixed(8)
    plain = HuggingFaceVLM(str(folder), dtype="float32")
    plain.generate(prompts, SHORT)
    first = plain.model.generate(**plain.reader.encode(*_rendered(plain, prompts[:1]), plain.model), max_new_tokens=4)
    settings = json.loads((folder / "generation_config.json").read_text())
    settings |= {"eos_token_id": [settings["eos_token_id"], int(first[0, -1])], "do_sample": True, "temperature": 0.1}
    (folder / "generation_config.json").write_text(json.dumps(settings | {"repetition_penalty": 1.3}))
    model = HuggingFaceVLM(str(folder), dtype="float32")
    answers = model.generate(prompts, SHORT)
    assert in_batches(model, prompts, 1) == answers
    whole = plain.generate(prompts, SHORT)
    assert all(one.startswith(other.rstrip("�")) for one, other in zip(whole, answers, strict=True))
    assert len(answers[0]) < len(whole[0])
    assert model.usage()["completion_tokens"] < plain.usage()["completion_tokens"]


def test_a_tokenizer_without_padding_pads_with_its_end(folders, tmp_path):
    folder = shutil.copytree(folders["qwen2_vl"], tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = HuggingFaceVLM(str(folder), dtype="float32")
    prompts = mixed(5)
    answers = in_batches(model, prompts, 1)
    assert in_batches(model, prompts, 5) == answers
    assert model.reader.tokenizer.pad_token_id == model.reader.tokenizer.eos_token_id


def _rendered(model, prompts):
    return [model.reader.template.render(one) for one in prompts], prompts


def test_usage_counts_prompts_tokens_and_seconds(folders):
    model = HuggingFaceVLM(str(folders["llava"]), dtype="float32")
    assert model.usage() == {"prompts": 0, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0}
    model.generate(mixed(5), SHORT)
    model.choose(mixed(5))
    spent = model.usage()
    assert spent["prompts"] == 10
    each = [model.reader.encode(*_rendered(model, [one]), model.model)["input_ids"].shape[1] for one in mixed(5)]
    assert spent["prompt_tokens"] == 2 * sum(each)
    assert 5 <= spent["completion_tokens"] <= 50
    assert spent["seconds"] > 0


@pytest.mark.parametrize("likelihood", ["letter", "text"])
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2"])
def test_likelihoods_are_those_of_one_sequence_at_a_time(folders, family, likelihood):
    model = HuggingFaceVLM(str(folders[family]), dtype="float32", likelihood=likelihood)
    prompts = [one for one in mixed(10) if not one.images] if family == "qwen2" else mixed(5)
    prompts[1] = dataclasses.replace(prompts[1], options={"A": "heart", "B": "a pleural effusion"})
    weights = model.choose(prompts)
    reader = model.reader
    for one, found in zip(prompts, weights, strict=True):
        assert list(found) == list(one.options)
        text = reader.template.render(one)
        shown = [as_picture(image) for image in one.images]
        for letter, option in one.options.items():
            said = letter if likelihood == "letter" else option
            tokens = reader.tokenizer(said)["input_ids"]
            more = {"images": [shown]} if shown else {}
            inputs = reader.processor(text=[text + said], return_tensors="pt", **more)
            with torch.inference_mode():
                after = model.model(**inputs).logits[0].log_softmax(-1)
            steps = [after[len(after) - len(tokens) + at - 1, token].item() for at, token in enumerate(tokens)]
            assert found[letter] == pytest.approx(np.mean(steps), abs=1e-4)
    assert len({max(found, key=found.get) for found in weights}) > 1


def test_options_after_a_colon_have_a_space_and_may_share_a_token_with_the_prompt():
    from medimg_eval.models.vision_language.huggingface.decoding import _encode_option

    tokens = tiny_vlm.tokenizer("llava")
    ending = _encode_option("ASSISTANT:", "liver", tokens)
    assert ending.text == "ASSISTANT: liver"
    assert tokens.decode(ending.tokens) == " liver"
    merged = _encode_option("the l", "iver", tokens)
    assert not merged.keeps_prompt_tokens
    assert tokens.decode(merged.tokens).strip() == "liver"


def test_a_language_model_answers_text_and_refuses_images(folders):
    model = HuggingFaceVLM(str(folders["qwen2"]), dtype="float32")
    prompts = [one for one in mixed() if not one.images]
    answers = in_batches(model, prompts, 1)
    assert in_batches(model, prompts, 4) == answers
    assert len(set(answers)) == len(answers)
    with pytest.raises(CaseError, match="reads text alone"):
        model.generate(mixed(1), SHORT)
    assert in_batches(model, prompts, 2) == answers


def test_a_prompt_beyond_the_context_is_refused_and_answers_end_where_it_is_full(tmp_path):
    folder = tiny_vlm.save(tmp_path / "narrow", context=60)
    model = HuggingFaceVLM(str(folder), dtype="float32")
    fits, long = (prompt(number, user("Which organ?" * times)) for number, times in ((0, 1), (1, 40)))
    with pytest.raises(CaseError, match=r"case 'case1': the prompt is \d+ tokens long, .* reads 60 with its answer"):
        model.generate([fits, long], SHORT)
    length = len(model.reader.tokenizer(model.reader.template.render(fits))["input_ids"])
    before = model.usage()["completion_tokens"]
    assert model.generate([fits], Decoding(max_new_tokens=500))
    assert model.usage()["completion_tokens"] - before <= 60 - length


def test_an_adapter_changes_answers_as_peft_does(folders, tmp_path, qwen):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    base = AutoModelForImageTextToText.from_pretrained(folders["qwen2_vl"], dtype=torch.float32)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers for something that has another name now
        get_peft_model(base, lora).save_pretrained(tmp_path / "lora")
    adapted = HuggingFaceVLM(str(folders["qwen2_vl"]), dtype="float32", adapter=str(tmp_path / "lora"))
    prompts = mixed(5)
    answers = in_batches(adapted, prompts, 1)
    assert answers != in_batches(qwen, prompts, 8)
    assert in_batches(adapted, prompts, 8) == answers
    assert adapted.choose(prompts[:2]) != qwen.choose(prompts[:2])
    missing = HuggingFaceVLM(str(folders["qwen2_vl"]), adapter=str(folders["llava"]))
    with pytest.raises(UserError, match=r"there is no adapter_config.json in it"):
        missing.generate(prompts, SHORT)


def test_it_moves_with_the_module_that_holds_it_unless_a_device_map_places_it(folders):
    model = HuggingFaceVLM(str(folders["llava"]), dtype="float32")
    holder = torch.nn.ModuleList([model]).to(torch.float64)
    assert next(holder.parameters()).dtype == torch.float64
    assert not model.model.training
    assert model.generate(mixed(2), SHORT)
    placed = HuggingFaceVLM(str(folders["llava"]), dtype="float32", device_map="cpu")
    assert next(placed.to(torch.float64).parameters()).dtype == torch.float32


def test_precision_and_attention_are_as_asked(folders):
    model = HuggingFaceVLM(str(folders["llava"]), dtype="bfloat16", attention="eager")
    model.prepare({}, None)
    assert model.model.dtype == torch.bfloat16
    assert model.model.config._attn_implementation == "eager"
    assert len(model.generate(mixed(5), SHORT)) == 5


def test_settings_of_the_processor_reach_it_and_wrong_names_are_refused(folders):
    small = HuggingFaceVLM(str(folders["qwen2_vl"]), processor={"max_pixels": 28 * 28 * 2})
    large = HuggingFaceVLM(str(folders["qwen2_vl"]))
    for model in (small, large):
        model.prepare({}, None)
    read = [model.reader.encode(*_rendered(model, mixed(1)), model.model) for model in (small, large)]
    assert read[0]["input_ids"].shape[1] < read[1]["input_ids"].shape[1]
    with pytest.raises(UsageError, match=r"no setting 'max_pixel' \(model.processor\); did you mean 'max_pixels'"):
        HuggingFaceVLM(str(folders["qwen2_vl"]), processor={"max_pixel": 9}).prepare({}, None)


SYSTEMLESS = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}assistant:"
FORGETFUL = "{% for m in messages if m.role != 'system' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"


def test_a_system_turn_that_the_template_does_not_take_goes_before_the_first_question(folders, tmp_path, caplog):
    for template in (SYSTEMLESS + tiny_vlm.TEMPLATE.replace("SHOWN", "<image>"), SYSTEMLESS + PLAIN, FORGETFUL):
        (tmp_path / "own.jinja").write_text(template)
        model = HuggingFaceVLM(str(folders["llava"]), chat_template=str(tmp_path / "own.jinja"))
        model.prepare({}, None)
        turns = (Message("system", ("You are a nurse.",)), user("Which organ?"))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            rendered = [model.reader.template.render(prompt(number, *turns)) for number in range(2)]
        assert "You are a nurse.\n\nWhich organ?" in rendered[1]
        assert caplog.text.count("it is put before the user's first") == 1


def test_contents_are_given_as_one_text_where_the_template_wants_that(folders, tmp_path):
    (tmp_path / "own.jinja").write_text(PLAIN)
    model = HuggingFaceVLM(str(folders["llava"]), dtype="float32", chat_template=str(tmp_path / "own.jinja"))
    prompts = mixed(5)
    answers = in_batches(model, prompts, 1)
    assert in_batches(model, prompts, 5) == answers
    assert (
        model.reader.template.render(prompts[0]) == f"user: <image>\n{prompts[0].messages[0].text.strip()}\nassistant:"
    )


def test_a_template_that_leaves_something_out_is_refused(folders, tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[0].role }} <image>")
    model = HuggingFaceVLM(str(folders["llava"]), chat_template=str(tmp_path / "own.jinja"))
    with pytest.raises(CaseError, match="case 'case0': the chat template of .* leaves out a part"):
        model.generate(mixed(1), SHORT)


def test_a_text_that_holds_the_mark_of_an_image_is_refused_and_the_model_goes_on(folders):
    model = HuggingFaceVLM(str(folders["llava"]), dtype="float32")
    answers = model.generate(mixed(4), SHORT)
    with pytest.raises(CaseError, match="case 'case9': the text holds <image>, which this model takes for an image"):
        model.generate([*mixed(2), prompt(9, user("What does <image> show?", 0), images=[picture(0)])], SHORT)
    assert model.generate(mixed(4), SHORT) == answers


def test_a_model_that_failed_in_the_middle_answers_as_before(qwen, monkeypatch):
    prompts = mixed(6)
    answers = qwen.generate(prompts, SHORT)
    layer = qwen.model.model.language_model.layers[1]
    whole, calls = layer.forward, []

    def failing(*given, **named):
        calls.append(1)
        if len(calls) == 3:
            raise torch.cuda.OutOfMemoryError("no memory left")
        return whole(*given, **named)

    monkeypatch.setattr(layer, "forward", failing)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        qwen.generate(prompts, SHORT)
    monkeypatch.undo()
    assert in_batches(qwen, prompts, 3) == answers


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("./nowhere", "no such folder; set model.checkpoint to a folder"),
        ("/a/b/c/d", "no such folder"),
        (
            "no-such-org/no-such-model",
            r"is no folder, is not in the cache .*HF_HOME.*hf download no-such-org/no-such-model",
        ),
    ],
)
def test_a_checkpoint_that_is_nowhere_is_named_at_once(checkpoint, message, monkeypatch):
    monkeypatch.setattr("socket.create_connection", _refused)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    start = time.perf_counter()
    with pytest.raises(UserError, match=message) as caught:
        HuggingFaceVLM(checkpoint).check_ready()
    assert time.perf_counter() - start < 1
    assert checkpoint in str(caught.value)


def _refused(*given, **named):
    raise OSError("no network in tests")


def test_the_hubs_refusals_are_one_sentence_each(monkeypatch):
    import httpx
    import huggingface_hub as hub

    monkeypatch.setattr("socket.create_connection", lambda *given: _Closing())
    answer = httpx.Response(403, request=httpx.Request("HEAD", "https://hub.invalid"))
    refusals = {
        hub.errors.GatedRepoError("gated", response=answer): "access to it must be asked for .*huggingface-cli login",
        hub.errors.RepositoryNotFoundError("none", response=answer): "not give it at revision v2 .*look at the id",
        hub.errors.RevisionNotFoundError("no v2", response=answer): "does not give it at revision v2",
        OSError("disk full"): "disk full",
    }
    for refusal, message in refusals.items():
        monkeypatch.setattr(hub, "hf_hub_download", _raising(refusal))
        with pytest.raises(UserError, match=message):
            HuggingFaceVLM("some-org/some-model", revision="v2").check_ready()


class _Closing:
    def close(self):
        """Nothing was opened."""


def _raising(error):
    def raising(*given, **named):
        raise error

    return raising


def test_a_model_in_the_hubs_cache_is_loaded_without_network_and_its_commit_noted(folders, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--some-org--tiny"
    shutil.copytree(folders["llava"], repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.create_connection", _refused)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    start = time.perf_counter()
    model = HuggingFaceVLM("some-org/tiny", dtype="float32")
    answers = model.generate(mixed(4), SHORT)
    assert time.perf_counter() - start < 10  # the hub's client would wait for 23 seconds for each file
    assert answers == HuggingFaceVLM(str(folders["llava"]), dtype="float32").generate(mixed(4), SHORT)
    assert model.usage()["commit"] == commit


def test_weights_that_are_missing_are_never_replaced_by_random_numbers(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(folders["llava"], tmp_path / "torn")
    weights = load_file(folder / "model.safetensors")
    gone = next(key for key in weights if "layers.1.mlp" in key)
    left = {key: value for key, value in weights.items() if key != gone}
    save_file(left, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"torn: 1 weights .* are missing, such as .*layers.1.mlp"):
        HuggingFaceVLM(str(folder)).prepare({}, None)


FOREIGN = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForImageTextToText": "own.Model"}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "vit"}, "is a model of type 'vit', which transformers cannot load as one that reads"),
        ({"model_type": "unheard_of"}, "odd: cannot be loaded"),
        (FOREIGN, "set model.trust_remote_code=true if you trust it"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(config, message, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    with pytest.raises(UserError, match=r"is no checkpoint of transformers, there is no config.json in it"):
        HuggingFaceVLM(str(folder)).check_ready()
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        HuggingFaceVLM(str(folder)).prepare({}, None)


def test_a_checkpoint_without_a_chat_template_needs_a_file(folders, tmp_path):
    bare = shutil.copytree(folders["llava"], tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template; name a file"):
        HuggingFaceVLM(str(bare)).prepare({}, None)
    with pytest.raises(UserError, match="no such file; model.chat_template names one"):
        HuggingFaceVLM(str(bare), chat_template=str(tmp_path / "none.jinja")).prepare({}, None)
    shutil.copy(folders["llava"] / "chat_template.jinja", tmp_path / "own.jinja")
    model = HuggingFaceVLM(str(bare), dtype="float32", chat_template=str(tmp_path / "own.jinja"))
    assert model.generate(mixed(2), SHORT) == HuggingFaceVLM(str(folders["llava"])).generate(mixed(2), SHORT)


def test_wrong_arguments_are_refused_before_anything_is_loaded(monkeypatch):
    with pytest.raises(UsageError, match="expected auto, float32, bfloat16 or float16"):
        HuggingFaceVLM("a/b", dtype="half-ish")
    with pytest.raises(UsageError, match="expected letter or text"):
        HuggingFaceVLM("a/b", likelihood="option")
    with pytest.raises(UsageError, match="got '3bit'; did you mean"):
        HuggingFaceVLM("a/b", quantisation="3bit")
    for library, command in (("bitsandbytes", "bitsandbytes"), ("accelerate", r"'medimg-eval\[vlm\]'")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(UserError, match=f"needs the library {library}, .*: pip install {command}"):
            HuggingFaceVLM("a/b", quantisation="4bit")


def test_eight_bit_colours_stay_grey_is_repeated_and_alpha_is_laid_over_white():
    colours = np.random.default_rng(0).integers(0, 256, (3, 4, 6), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(as_picture(Image(colours, np.eye(4)))), colours.transpose(1, 2, 0))
    grey = np.asarray(as_picture(Image(colours[:1], np.eye(4))))
    np.testing.assert_array_equal(grey, np.repeat(colours[0][..., None], 3, axis=2))
    alpha = np.concatenate([colours, np.full((1, 4, 6), 51, np.uint8)])
    expected = 0.2 * colours.transpose(1, 2, 0) + 0.8 * 255
    np.testing.assert_allclose(np.asarray(as_picture(Image(alpha, np.eye(4)))), expected, atol=0.51)
    nothing = np.concatenate([colours[:1], np.zeros((1, 4, 6), np.uint8)])
    assert (np.asarray(as_picture(Image(nothing, np.eye(4)))) == 255).all()


def test_other_types_are_stretched_from_the_smallest_to_the_largest():
    deep = np.array([[[100, 1100], [600, 350]]], dtype=np.uint16)
    shown = np.asarray(as_picture(Image(deep, np.eye(4))))[..., 0]
    np.testing.assert_array_equal(shown, [[0, 255], [128, 64]])
    signed = deep.astype(np.float32) - 600
    np.testing.assert_array_equal(np.asarray(as_picture(Image(signed, np.eye(4))))[..., 0], shown)
    opaque = np.concatenate([deep, np.full((1, 2, 2), 65535, np.uint16)])
    np.testing.assert_array_equal(np.asarray(as_picture(Image(opaque, np.eye(4))))[..., 0], shown)
    assert (np.asarray(as_picture(Image(np.full((1, 2, 2), 7.0), np.eye(4)))) == 0).all()
    holes = np.array([[[np.nan, 1.0], [0.0, np.inf]]])
    np.testing.assert_array_equal(np.asarray(as_picture(Image(holes, np.eye(4))))[..., 0], [[0, 255], [0, 0]])


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (3, 8, 4, 4), (5, 4, 4), (4, 4)])
def test_a_volume_or_a_clip_is_no_picture(shape):
    with pytest.raises(CaseError, match=r"is no picture; name the slices or frames shown in task.layout.images"):
        as_picture(Image(np.zeros(shape, np.uint8), np.eye(4)))
