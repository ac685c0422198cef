"""`list`: counts by family, filters, cards with what they inherit, JSON."""

import json

import pytest
from rich.console import Console

from medimg_eval.api.listing import KINDS, MODALITIES
from medimg_eval.commands.cli import start


@pytest.fixture
def listed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        assert start(["list", *words]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def named(listed, *words):
    return {name for entries in json.loads(listed(*words, "json=true")).values() for name in entries}


def test_without_words_it_counts_by_family_on_one_screen(listed):
    shown = listed()
    assert len(shown.splitlines()) < 15
    assert [line.split()[0] for line in shown.splitlines()[: len(KINDS)]] == list(KINDS)
    assert "segmentation " in shown
    assert "list tasks family=vqa" in shown


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        (["tasks", "modality=ct", "family=vqa"], {"deeptumorvqa_v2"}, {"btcv", "path_vqa"}),
        (["tasks", "modality=X-ray"], {"chexpert_plus_findings", "iu_xray"}, {"btcv", "segbook"}),  # of a protocol
        (["tasks", "modality=mri", "search=glioma"], {"brats2024_ped"}, {"btcv", "acdc"}),
        (["tasks", "family=segmentation"], {"msd_liver", "btcv"}, {"slake"}),  # also of folders within
        (["tasks", "family=segmentation/msd"], {"msd_liver"}, {"btcv"}),
        (["tasks", "access=gated"], {"ct_rate"}, {"vqa_rad"}),
        (["tasks", "access=open", "family=reports"], {"iu_xray"}, {"mimic_cxr"}),
        (["search=Spine"], {"spinebench_bupt", "aasce_cobb"}, {"btcv"}),
        (["models", "family=vision_language"], {"huggingface_vlm"}, {"unet"}),
        (["metrics", "family=mask", "search=surface"], {"nsd@tolerance in mm"}, {"accuracy"}),
        (["annotators"], {"chexbert"}, {"unet"}),
    ],
)
def test_filters_keep_what_passes_all_of_them(listed, words, inside, outside):
    found = named(listed, *words)
    assert inside <= found
    assert not outside & found


@pytest.mark.parametrize("modality", MODALITIES)
def test_every_modality_that_help_names_has_tasks(listed, modality):
    assert named(listed, "tasks", f"modality={modality}")


def test_on_a_terminal_every_entry_is_one_line_with_its_whole_name(listed, monkeypatch):
    terminal = Console(width=60, height=200, force_terminal=True, color_system=None)
    monkeypatch.setattr("medimg_eval.commands.list.printer", lambda: terminal)
    names = named(listed, "tasks", "family=vqa", "modality=ct")
    with terminal.capture() as shown:
        listed("tasks", "family=vqa", "modality=ct")
    lines = shown.get().splitlines()
    assert len(lines) == len(names) + 1
    assert {line.split()[0] for line in lines[1:]} == names
    assert max(map(len, lines)) <= 60


def test_filters_that_nothing_passes_are_told_with_the_families_there_are(listed):
    assert "no family 'report'; did you mean 'reports'? (also near: " in listed("tasks", "family=report", code=2)
    assert "no search 'spne'; did you mean 'spine'?" in listed("tasks", "search='lumbar spne'", code=2)
    assert "no modality 'ctt'; did you mean 'ct'?" in listed("tasks", "modality=ctt", code=2)
    assert "no access 'opne'; did you mean 'open'?" in listed("tasks", "family=vqa", "access=opne", code=2)
    together = listed("tasks", "family=vqa", "modality=video", "search=spine", code=2)
    assert "nothing of tasks passes these filters: each lets some through" in together
    assert "got 'taks'; did you mean 'tasks'?" in listed("taks", code=2)


def test_a_card_has_what_it_inherits_of_a_protocol_and_of_another_task(listed):
    assert "access: credentialed" in listed("card=chexpert_plus_findings")
    card = json.loads(listed("card=slake_lmms_eval", "json=true"))["card"]
    assert {"source", "licence", "access"} <= card.keys()
