"""Keys stay what they were when the first stores were written: whatever was paid for is found under them."""

import numpy as np
import pytest

from medimg_eval.case import Image, Prompt
from medimg_eval.question import Message
from medimg_eval.store import (
    array_key,
    content_key,
    digest,
    digest_of_each,
    picture_key,
    prompt_key,
    sentence_key,
    text_key,
)


def test_keys_are_those_under_which_earlier_versions_kept_what_they_paid_for(tmp_path):
    array = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    prompt = Prompt("c", (Image(array, np.eye(4), units="pixel"),), messages=(Message("user", ("Is it?",)),))
    (tmp_path / "a.bin").write_bytes(b"abc")
    keys = {
        "text": text_key("a report"),
        "pair": text_key("a report", "another"),
        "sentence": sentence_key("a prompt"),
        "prompt": prompt_key(prompt),
        "long prompt": prompt_key(prompt, 700),
        "picture": picture_key(array),
        "array": array_key(array.astype(np.float32)),
        "file": content_key([tmp_path / "a.bin"], ""),
    }
    assert keys == {
        "text": "fc4cf340fcb378a164b0087e5e32360d",
        "pair": "2157542b156a8c87153305ec5dc8975d",
        "sentence": "35752dee4ada7a36381006c80fa50d5d82d8b940",
        "prompt": "933b5dba3dc5fa87b6fed7b83bb0ac92",
        "long prompt": "8f2684da314fbbe6b728cc35f8d29d1f",
        "picture": "7cf2d0c60fc0698877f4529758b6d710b18cb848",
        "array": "4edaf0fe20d221bc27cb2558c661fea0/(1, 2, 3)",
        "file": "61c2299667494fa7c57caf6553963e08a1eb3d9e",
    }


@pytest.mark.parametrize("number", [0, 1, 999, 1_000, 1_001, 2_500])
def test_a_list_that_is_never_in_memory_whole_has_the_same_digest(number):
    """The fingerprint of a million cases is that of versions which made one text of them."""
    things = [(f"c{i}", None, {True: "ü", "a": i} if i % 2 else {"b": 1, "a": 2}, ["x", i]) for i in range(number)]
    assert digest_of_each(iter(things), 16) == digest(things, 16)
