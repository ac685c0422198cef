"""What lies in a folder from somebody else runs nothing: a manifest, a bundle, a checkpoint, an archive."""

import json
import os
import pickle
import re
import shlex
import sys

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from tiny_bert import save_vocabulary

from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import Generated
from medimg_eval.data.layouts.reconstructed import _stored_files
from medimg_eval.data.stored import require_ours
from medimg_eval.errors import UserError
from medimg_eval.evaluation.run import Run
from medimg_eval.models.annotators.radgraph.archive import read_archive
from medimg_eval.models.classification.timm import TimmClassifier
from medimg_eval.models.networks import load_weights
from medimg_eval.models.segmentation.monai import read_bundle
from medimg_eval.models.synthesis import Diffusers
from medimg_eval.models.text_encoders import loaded, tokenizer_of
from medimg_eval.models.vision_language.open_clip import OpenClip
from medimg_eval.tasks import SynthesisTask
from medimg_eval.trust import trusting
from tests.conftest import HELPERS
from tests.helpers.config_files import config_files


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.fixture
def marker(tmp_path):
    """What a payload makes; `payload.pkl` beside it, and a module `payload_module`, make it when they are loaded."""
    place = tmp_path / "marker"
    (tmp_path / "payload.pkl").write_bytes(pickle.dumps(Payload(place)))
    (tmp_path / "payload_module.py").write_text(
        f"import os\nos.mkdir({str(place)!r})\nfrom medimg_eval.tasks import SegmentationTask as Task\n"
    )
    yield place
    assert not place.exists(), "the payload ran"


PICKLE = {"_target_": "pandas.read_pickle", "filepath_or_buffer": "payload.pkl"}
TASK = {"_target_": "medimg_eval.tasks.SegmentationTask", "name": "t", "labels": {"1": "core"}, "metrics": ["dice"]}
LAYOUT = {"_target_": "medimg_eval.data.layouts.Volumes", "root": "data", "image": "{case}.nii.gz"}
MAKES = {"path": "marker"}
DISGUISES = {
    "the task": PICKLE,
    "the layout": TASK | {"layout": PICKLE},
    "within a list of the card": TASK | {"layout": LAYOUT, "card": {"links": [{"more": [PICKLE]}]}},
    "without a name": {"_target_": TASK["_target_"], "_args_": [PICKLE]},
    "arguments without names": TASK | {"layout": {"_target_": "medimg_eval.data.layouts.Arrays", "_args_": ["data"]}},
    "kept for later": TASK | {"layout": PICKLE | {"_partial_": True}},
    "handed on as it is": TASK | {"_recursive_": False, "layout": PICKLE},
    "converted": TASK | {"_convert_": "object", "layout": LAYOUT | {"target": PICKLE}},
    "a library that a module of ours imports": PICKLE | {"_target_": "medimg_eval.results.runs.loading.pd.read_pickle"},
    "a program": {"_target_": "medimg_eval.evaluation.identity.subprocess.run", "args": ["mkdir", "marker"]},
    "a class of a library, through ours": MAKES | {"_target_": "medimg_eval.evaluation.run.Path"},
    "what makes objects": {"_target_": "medimg_eval.instantiate.build", "_recursive_": False, "config": PICKLE},
    "our function, which makes a task": {"_target_": "medimg_eval.instantiate.build_task", "config": TASK},
    "our class, which is no task": {"_target_": "medimg_eval.evaluation.run.Run", "folder": "marker", "run": "r"},
    "a look-up": {"_target_": "hydra.utils.get_method", "path": "payload_module.Task"},
    "a class that is looked up": {"_target_": "hydra.utils.get_class", "path": "payload_module.Task"},
    "a module that runs when it is imported": TASK | {"_target_": "payload_module.Task"},
    "the module of a metric": TASK | {"metrics": ["dice", "payload_module.Task@2"]},
    "the module of the metric that validation follows": TASK | {"monitor": "payload_module.Task"},
    "what lies behind a class": TASK | {"_target_": "medimg_eval.tasks.Task.__subclasshook__"},
    "a resolver of one's own": TASK | {"title": "${make_marker:}"},
    "an object out of text": TASK | {"layout": "${oc.create:{_target_: pandas.read_pickle}}"},
    "the environment": TASK | {"layout": LAYOUT | {"root": "${oc.env:HOME}"}},
    "arrays that are pickles": TASK | {"layout": LAYOUT | {"options": {"allow_pickle": True}}},
    "code of a model": TASK | {"patient": {"_target_": "medimg_eval.models.HuggingFaceVLM"}
                              | {"trust_remote_code": True, "checkpoint": "own"}},
    "no name": TASK | {"layout": {"_target_": {"_target_": "os.mkdir", "path": "marker"}}},
}  # fmt: skip


@pytest.mark.parametrize("config", DISGUISES.values(), ids=DISGUISES)
def test_a_hostile_manifest_runs_nothing_and_is_told_of(config, marker, tmp_path, monkeypatch, capsys):
    OmegaConf.register_new_resolver("make_marker", marker.mkdir, replace=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "got").mkdir()
    manifest = {"command": "test", "task": "t", "task_config": config}
    (tmp_path / "got" / "manifest.json").write_text(json.dumps(manifest))
    assert start(["score", "run=got"]) == 1
    said = capsys.readouterr().err
    assert "got/manifest.json: would run " in said
    assert said.rstrip().endswith("if you trust where it is from: python -m medimg_eval score run=got trust=true")
    assert "payload_module" not in sys.modules


def test_a_column_of_a_manifest_imports_nothing(marker, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    manifest = {"command": "test", "task": "t", "task_config": TASK, "metrics": ["payload_module.Task"]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert start(["score", f"run={tmp_path}"]) == 1
    assert "would run payload_module.Task" in capsys.readouterr().err
    assert "payload_module" not in sys.modules


@pytest.mark.parametrize("manifest", [{"task_config": ["t"]}, {"task_config": None}, {}], ids=str)
def test_a_manifest_that_says_of_no_task_is_told_of(manifest, tmp_path, capsys):
    (tmp_path / "manifest.json").write_text(json.dumps({"command": "test", "task": "t"} | manifest))
    assert start(["score", f"run={tmp_path}"]) == 1
    assert "its manifest does not say how its task was made; run test again" in capsys.readouterr().err


def test_all_that_would_run_is_named_with_its_place(tmp_path):
    config = TASK | {"layout": LAYOUT | {"target": {"_target_": "mine.Truth"}}, "card": {"access": "${oc.env:HOME}"}}
    with pytest.raises(UserError) as refused:
        require_ours(config | {"_target_": "mine.Task"}, tmp_path / "manifest.json")
    assert str(refused.value) == (
        f"{tmp_path}/manifest.json: would run mine.Task (task_config._target_), mine.Truth "
        "(task_config.layout.target._target_), ${oc.env:HOME} (task_config.card.access); if you trust where it is "
        "from: with medimg_eval.trust.trusting(): ..."
    )
    with trusting():
        require_ours(config, tmp_path / "manifest.json")


def test_every_task_of_ours_is_made_from_its_manifest(tmp_path):
    texts = {path.stem: path.read_text() for path in config_files("task", "protocol")}
    configs = {name: yaml.safe_load(re.sub(r"\$\{[^}]*\}", "data", text)) for name, text in texts.items()}
    with pytest.raises(UserError, match=r"would run allow_pickle=True \(task_config.layout\);"):
        require_ours(configs.pop("fairseg"), tmp_path)  # whose files hold Python objects
    for config in configs.values():
        require_ours(config, tmp_path)


def test_a_plug_in_is_trusted_and_what_it_imports_is_not(tmp_path, monkeypatch):
    (tmp_path / "acme_trusted").mkdir()
    (tmp_path / "acme_trusted" / "__init__.py").write_text(
        "import shutil\nfrom collections import Counter\nfrom medimg_eval.tasks import SegmentationTask\n"
        "class Own(SegmentationTask): ...\nclass Strange: ...\n"
    )
    info = tmp_path / "acme_trusted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-trusted\nVersion: 1.0\n")
    config = {"_target_": "acme_trusted.Own"}
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"would run acme_trusted\.Own"):
        require_ours(config, tmp_path)
    (info / "entry_points.txt").write_text("[medimg_eval.configs]\nacme = acme_trusted.configs\n")
    require_ours(config, tmp_path)
    for name in ("Strange", "shutil.rmtree", "Counter"):
        with pytest.raises(UserError, match=rf"would run acme_trusted\.{name}"):
            require_ours({"_target_": f"acme_trusted.{name}"}, tmp_path)


@pytest.mark.slow
def test_a_task_of_ones_own_is_scored_and_shown_where_it_is_trusted(program, write_dataset, config_dir, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "own_task.py").write_text(
        "from medimg_eval.tasks import SegmentationTask\nclass Own(SegmentationTask): ...\n"
    )
    conf, paths = config_dir(write_dataset(2)), (HELPERS, own)
    words = ("task=ellipsoids", "task._target_=own_task.Own", "model._target_=answering.Thresholds", "run=made")
    done = program("test", "--config-dir", str(conf), *words, paths=paths)
    assert done.returncode == 0, done.stderr
    refusal = (
        "made/manifest.json: would run own_task.Own (task_config._target_); if you trust where it is from: python -m"
    )
    refused = program("score", "run=made", "metrics=[dice]", paths=paths)
    assert (refused.returncode, refusal in refused.stderr) == (1, True), refused.stderr
    mend = shlex.split(refused.stderr.split("python -m medimg_eval ")[-1])
    assert mend == ["score", "run=made", "metrics=[dice]", "trust=true"]
    scored = program(*mend, paths=paths)
    assert (scored.returncode, "dice" in scored.stdout.lower()) == (0, True), scored.stderr
    told = program("report", "runs=made", "out=pages", paths=paths)
    assert (told.returncode, refusal in told.stderr) == (0, True), told.stderr
    shown = program("report", "runs=made", "out=shown", "trust=true", paths=paths)
    assert (shown.returncode, "would run" in shown.stderr) == (0, False), shown.stderr
    assert [bool(list((tmp_path / out / "cases").rglob("*.js"))) for out in ("pages", "shown")] == [False, True]


def write_synthesis(folder, config=None, file="predictions/a.json", picture="a/000.png"):
    """A finished run that made a picture."""
    (folder / "predictions").mkdir(parents=True)
    (folder / "predictions" / "a.json").write_text(json.dumps({"pictures": [picture], "seeds": [1]}))
    (folder / "predictions-0.jsonl").write_text(json.dumps({"case": "a", "file": file}) + "\n")
    manifest = {"status": "finished", "task_config": {"layout": config or PICKLE}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_layout_that_reads_a_run_makes_nothing_of_its_manifest(marker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"manifest.json: would run pandas.read_pickle"):
        Generated(run=str(write_synthesis(tmp_path / "made"))).cases("test")


@pytest.mark.parametrize("name", ["../secret.png", "/secret.png", "..\\secret.png"])
def test_what_a_run_names_outside_of_its_folder_is_not_read(name, tmp_path):
    prompts = {"_target_": "medimg_eval.phantoms.prompts.ChestPrompts"}
    folder = write_synthesis(tmp_path / "file", prompts, file=name)
    shown = write_synthesis(tmp_path / "picture", prompts, picture=name)
    for read in (
        lambda: Run(folder, "r").predictions(),
        lambda: _stored_files(folder),
        lambda: Generated(run=str(folder)).cases("test"),
        lambda: Generated(run=str(shown)).cases("test"),
        lambda: SynthesisTask(name="s", layout=None).codec.read(shown / "predictions" / "a.json"),
    ):
        with pytest.raises(UserError, match=r"lies outside of it"):
            read()


BUNDLES = {
    "a class": ({"network_def": {"_target_": "os.mkdir", "path": "MARKER"}}, ["os.mkdir"]),
    "an expression": ({"network_def": "$__import__('os').mkdir('MARKER')"}, ["$__import__('os').mkdir"]),
    "imports": (
        {"imports": ["$import os"], "network_def": {"a": ["$os.mkdir('MARKER')"]}},
        ["$import os", "$os.mkdir"],
    ),
    "another file": ({"network_def": "%more.json::network"}, ["%more.json::network"]),
    "a step": (
        {
            "network_def": {"_target_": "UNet"},
            "preprocessing": {"_target_": "Compose", "transforms": [{"_target_": "os.mkdir", "path": "MARKER"}]},
        },
        ["UNet", "Compose", "os.mkdir"],
    ),
}


@pytest.mark.parametrize(("config", "named"), BUNDLES.values(), ids=BUNDLES)
def test_a_hostile_bundle_runs_nothing_and_says_what_it_would_run(config, named, marker, tmp_path):
    (tmp_path / "configs").mkdir()
    text = json.dumps(config).replace("MARKER", str(marker))
    (tmp_path / "configs" / "inference.json").write_text(text)
    with pytest.raises(UserError, match="would run") as refused:
        read_bundle(tmp_path)
    assert all(one in str(refused.value) for one in named)


def test_a_bundle_of_a_command_needs_the_word(marker, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "inference.json").write_text(json.dumps({"network_def": "$__import__('payload_module')"}))
    assert start(["test", "task=phantom_ct", "model=monai_bundle", f"model.bundle={tmp_path}"]) == 1
    said = capsys.readouterr().err
    assert "would run $__import__('payload_module'); if you trust" in said
    assert " trust=true" in said


def save(path, marker):
    torch.save({"state_dict": {"weight": torch.zeros(1)}, "more": Payload(marker)}, path)


def test_a_hostile_checkpoint_is_not_unpickled(marker, tmp_path):
    save(tmp_path / "model.pt", marker)
    with pytest.raises(UserError, match="cannot be loaded as weights"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "model.pt")


def test_a_hostile_archive_is_not_unpickled(marker, tmp_path):
    save(tmp_path / "weights.th", marker)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read as an archive of a RadGraph model"):
        read_archive(tmp_path)


def of_timm(folder):
    described = {"architecture": "resnet10t", "num_classes": 2, "pretrained_cfg": {"label_names": ["a", "b"]}}
    (folder / "config.json").write_text(json.dumps(described))
    TimmClassifier(checkpoint=str(folder)).load()


def of_open_clip(folder):
    vision = {"image_size": 16, "layers": 1, "width": 16, "patch_size": 8, "head_width": 8}
    text = {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    model = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": {}}))
    OpenClip(checkpoint=str(folder)).prepare({}, None)


def of_transformers(folder):
    loaded("AutoModel", save_vocabulary(folder))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("load", [of_timm, of_open_clip, of_transformers], ids=lambda load: load.__name__)
def test_a_hostile_file_in_a_models_folder_is_not_unpickled(load, marker, tmp_path):
    for name in ("pytorch_model.bin", "open_clip_pytorch_model.bin"):
        save(tmp_path / name, marker)
    with pytest.raises(UserError, match="load"):
        load(tmp_path)


def test_code_in_a_models_folder_is_not_run_and_nobody_is_asked(marker, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    (tmp_path / "own.py").write_text((tmp_path / "payload_module.py").read_text())
    code = {"AutoConfig": "own.Task", "AutoModel": "own.Task", "AutoTokenizer": ["own.Task", None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": code}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": code}))
    for load in (lambda: loaded("AutoModel", tmp_path), lambda: tokenizer_of(tmp_path)):
        with pytest.raises(UserError, match="contains custom code"):
            load()
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": ["own", "Task"]}))
    monkeypatch.setitem(sys.modules, "diffusers", torch)
    with pytest.raises(UserError, match=r"would run own.py, payload_module.py"):
        Diffusers(str(tmp_path))._load()
