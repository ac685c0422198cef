"""Cards that state published numbers: listed, and refused where they cannot be read."""

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import composed

NUMBER = {"model": "U-Net", "metric": "dice", "number": "0.52", "source": "arXiv 1"}


def stated(*numbers):
    config = composed("phantom_xray")
    return config | {"card": {**config["card"], "published": list(numbers)}}


def test_a_task_is_refused_whose_card_cannot_be_read():
    assert build_task(stated(NUMBER)).published_numbers[0].value == 0.52
    with pytest.raises(
        UsageError, match=r"task 'phantom_xray', number 1 of card.published: key is invalid: .*got 'modle'"
    ):
        build_task(stated({"modle": "U-Net"}))
    with pytest.raises(
        UsageError, match=r"'phantom_xray': card.published: metric is invalid: .*got 'dcie'; did you mean 'dice'"
    ):
        build_task(stated(NUMBER | {"metric": "dcie"}))


def test_the_list_of_a_card_has_a_line_for_each_number(capfd):
    assert start(["list", "card=kormedmcqa_v"]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("  ")]
    assert any(line.startswith("  Gemini-3.0-Pro: accuracy 96.9; calls that fail") for line in lines)
