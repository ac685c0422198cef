"""Words of a command as a user would put them for the fixture of a task, with stand-ins for models."""

import re
import shlex

from tests.helpers.catalogue import composed as stated


def named(line, key):
    """What a command names as its task, suite or model; "" for nothing."""
    return next((word.partition("=")[2] for word in shlex.split(line) if word.startswith(f"{key}=")), "")


def fill_words(line, sample, root, checkpoint, url):
    """The words of a command, its weights a tiny checkpoint and its servers one of the tests.

    Args:
        line: as docs and lists of systems print it, with VLM, LLM, JUDGE or PATIENT for weights.
        sample: of its task.
        root: folder that the sample was written to.
        checkpoint: folder of a tiny model.
        url: of a server of chats.
    """
    words = [re.sub(r"^(.*=)(VLM|PATIENT|LLM|JUDGE)$", rf"\1{checkpoint}", word) for word in shlex.split(line)]
    words += [f"task.layout.root={root}", "trainer.accelerator=cpu", "++task.decoding.max_new_tokens=8"]
    if stated(named(line, "task")).get("expected"):
        words.append(f"++task.expected.test={len(sample.cases)}")
    for group in ("model", "judge", "task.patient"):
        if any(re.match(rf"\+?(?:model@)?{group}=openai_compatible", word) for word in words):
            words += [f"{group}.base_url={url}", f"{group}.cache=false", f"{group}.retries=0"]
        if any(re.match(rf"\+?(?:model@)?{group}=huggingface_vlm", word) for word in words):
            words.append(f"{group}.dtype=float32")
    return words
