"""The judge of GREEN: the turns that its authors' program asks it in, on a tiny model with random weights."""

import pytest
import tiny_vlm

from medimg_eval.case import Prompt
from medimg_eval.models.vision_language.green import GreenModel
from medimg_eval.question import Decoding, Message


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(tiny_vlm.save(tmp_path_factory.mktemp("green") / "green", "qwen2"))


def prompts():
    texts = ["Is there a pleural effusion?", "The chest radiograph shows an opacity. " * 5, "none", "left lung"]
    return [Prompt(f"c{number}", (), messages=(Message("user", (text,)),)) for number, text in enumerate(texts)]


def test_it_is_asked_in_the_turns_of_its_authors_program(checkpoint):
    model = GreenModel(checkpoint, dtype="float32")
    model.prepare({}, None)
    end = model.reader.tokenizer.eos_token
    assert model.reader.template.render(prompts()[0]) == (
        f"<|user|>\nIs there a pleural effusion?{end}\n<|assistant|>\n{end}\n<|assistant|>\n"
    )
    assert model.chat_template is None


def test_it_says_the_same_whatever_else_is_asked_with_it(checkpoint):
    short = Decoding(max_new_tokens=8)
    model = GreenModel(checkpoint, dtype="float32")
    together = model.generate(prompts(), short)
    assert [model.generate([prompt], short)[0] for prompt in prompts()] == together
    assert len(set(together)) > 1


def test_ones_own_template_replaces_its_turns(checkpoint, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text("{% for message in messages %}Q: {{ message.content }}{% endfor %}")
    model = GreenModel(checkpoint, dtype="float32", chat_template=str(file))
    model.prepare({}, None)
    assert model.reader.template.render(prompts()[2]) == "Q: none"
