"""Configs of well-known question sets open with a record and the prompt that it becomes, both as the code has them."""

import pytest

from tests.helpers.config_files import config_file
from tests.helpers.opening import SHOWN, opening
from tests.helpers.samples import ALL

assert ALL


@pytest.mark.parametrize("name", SHOWN)
def test_a_config_opens_with_a_record_and_the_prompt_that_it_becomes(name, tmp_path):
    text = config_file(name).read_text(encoding="utf-8")
    assert text.startswith(opening(name, tmp_path / "data"))
