"""Commands of questions, reports and labels, over files in their authors' form, asked of tiny models and a server."""

import csv
import json

import numpy as np
import pytest
import torch

from medimg_eval.commands.cli import start
from tests.benchmarks.test_nlst import write_mewm
from tests.helpers import tiny_vlm
from tests.helpers.benchmark_files import volume
from tests.helpers.catalogue import AGENTS, REPORTS, SAMPLES, write_json
from tests.helpers.catalogue import picture as write_picture
from tests.helpers.chat_server import chat_server
from tests.helpers.config_files import composed_config
from tests.helpers.encoder_sets import write_clip
from tests.helpers.samples import ALL
from tests.helpers.system_chains import EPOCH, NETWORK, QUICK, Chains, any_number

assert ALL is not None

pytestmark = pytest.mark.long

CHAINS = Chains()
EVERY = {**SAMPLES, **REPORTS, **AGENTS}
CPU = "trainer.accelerator=cpu"
SHORT = "++task.decoding.max_new_tokens=8"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_vlm.save(tmp_path_factory.mktemp("tiny") / "VLM", context=16_384)


@pytest.fixture(scope="module")
def server():
    with chat_server(replies=[((), 'Score: 1 [right] yes {"Edema": 1, "Fracture": 2}')]) as running:
        yield running


def sampled(name, folder, request):
    """Words that name a sample of a task and a tiny model, which lies where commands look for VLM."""
    (folder / "VLM").symlink_to(request.getfixturevalue("checkpoint"))
    EVERY[name].write(folder / "data")
    words = [f"task.layout.root={folder}/data", CPU, SHORT]
    return words + ([f"++task.expected.test={len(EVERY[name].cases)}"] if any_number(name) else [])


def served(server, group):
    return [f"{group}.base_url={server.url}", f"{group}.cache=false", f"{group}.retries=0"]


def every_task(suite, folder, request):
    """Words for a suite, each task of which has its sample."""
    (folder / "VLM").symlink_to(request.getfixturevalue("checkpoint"))
    words = [CPU, "limit=2"]
    for name, stated in composed_config(f"suite/{suite}")["tasks"].items():
        root = folder / "data" / name
        root.mkdir(parents=True)
        EVERY[stated["name"]].write(root)
        words += [f"tasks.{name}.layout.root={root}", f"++tasks.{name}.decoding.max_new_tokens=4"]
        words += any_number(name, f"tasks.{name}")
    return words


@CHAINS.add("test suite=multimedbench_imaging model=huggingface_vlm model.checkpoint=VLM")
def _multimedbench(folder, request):
    return every_task("multimedbench_imaging", folder, request)


@CHAINS.add("test suite=medical_text model=huggingface_vlm model.checkpoint=VLM")
def _medical_text(folder, request):
    return every_task("medical_text", folder, request)


@CHAINS.add("test suite=hulu_med model=huggingface_vlm model.checkpoint=VLM")
def _hulu_med(folder, request):
    return every_task("hulu_med", folder, request)


@CHAINS.add("test suite=hulu_med_volumes_videos model=huggingface_vlm model.checkpoint=VLM")
def _hulu_med_volumes(folder, request):
    return every_task("hulu_med_volumes_videos", folder, request)


@CHAINS.add("test suite=lingshu model=lingshu_7b")
def _lingshu(folder, request):
    return [*every_task("lingshu", folder, request), "model.checkpoint=VLM"]


@CHAINS.add("test task=iu_xray_medevalkit model=lingshu_7b")
def _lingshu_reports(folder, request):
    return [*sampled("iu_xray_medevalkit", folder, request), "model.checkpoint=VLM"]


@CHAINS.add("test task=lunguage_groups model=precomputed_timelines model.file=ROWS.csv")
def _timelines(folder, request):
    words = sampled("lunguage_groups", folder, request)
    (folder / "ROWS.csv").write_text((folder / "data/dataset/Lunguage.csv").read_text())
    return words


@CHAINS.add(
    "test task=factchexcker model=precomputed_reports model.file=REPORTS.csv",
    "test task=factchexcker model=remeasured_reports model.file=REPORTS.csv model.measured=LENGTHS.csv",
    "compare metric=ett_carina_mae",
)
def _factchexcker(folder, request):
    words = sampled("factchexcker", folder, request)
    told = {
        case: f"The endotracheal tube ends {4 + n} cm above the carina."
        for n, case in enumerate(EVERY["factchexcker"].cases)
    }
    (folder / "REPORTS.csv").write_text("id,prediction\n" + "".join(f"{case},{text}\n" for case, text in told.items()))
    (folder / "LENGTHS.csv").write_text("id,centimetres\n" + "".join(f"{case},3.5\n" for case in told))
    return [words, words, []]


@CHAINS.add(
    "fit task=pathmmu model=huggingface_vlm_lora model.base=VLM",
    "test task=pathmmu model=huggingface_vlm model.checkpoint=VLM",
    "table table=authors published_numbers=true",
)
def _pathmmu(folder, request):
    pytest.importorskip("peft")
    words = sampled("pathmmu", folder, request)
    return [[*words, *EPOCH, "model.rank=4", "model.alpha=8", "num_workers=0"], words, []]


@CHAINS.add("test task=medq_deg model=huggingface_vlm model.checkpoint=VLM", "table table=authors")
def _medq_deg(folder, request):
    return [sampled("medq_deg", folder, request), []]


@CHAINS.add("test task=medsynvqa model=huggingface_vlm model.checkpoint=VLM", "items")
def _medsynvqa(folder, request):
    words = sampled("medsynvqa", folder, request)
    script = json.dumps(list(EVERY["medsynvqa"].replies.values())[:1])
    model = ["task=medsynvqa", "model._target_=agent_tools.Scripted", "+model.tokens=5", f"+model.script={script}"]
    assert start(["test", *model, *words, f"runs={folder}/runs"]) == 0
    return [words, []]


@CHAINS.add(
    "test task=medspot model=huggingface_vlm model.checkpoint=VLM",
    "score run=RUN metrics=[first_failure@no_prediction,first_failure@small_target,first_failure@near_miss,"
    "first_failure@edge_bias,first_failure@toolbar_confusion,first_failure@far_miss]",
)
def _medspot(folder, request):
    return [[*sampled("medspot", folder, request), "run=RUN"], []]


@CHAINS.add(
    "test task=rexrank_iu_xray model=huggingface_vlm model.checkpoint=VLM",
    "export run=RUN to=rexrank out=SUBMISSION",
)
def _rexrank(folder, request):
    return [[*sampled("rexrank_iu_xray", folder, request), "run=RUN"], []]


@CHAINS.add(
    "test task=medq_bench_description model=huggingface_vlm model.checkpoint=VLM model@judge=openai_compatible "
    "judge.model=JUDGE",
    "agree run=RUN human=LABELS",
)
def _medq_bench(folder, request):
    asked = "medq_bench_description"
    words = [*sampled(asked, folder, request), *served(request.getfixturevalue("server"), "judge")]
    axes, cases = ("completeness", "preciseness", "consistency", "quality_accuracy"), EVERY[asked].cases
    rows = [f"{case},{axis},{number % 3}\n" for number, case in enumerate(cases) for axis in axes]
    (folder / "LABELS").write_text("case,question,human\n" + "".join(rows))
    return [[*words, "run=RUN"], []]


REPORTED = ("Edema again. No fracture.", "A fracture, and no edema.", "Clear lungs.")


def write_reports(folder, findings):
    """Reports, and what people say of each."""
    rows = [(f"a{number}", text) for number, text in enumerate(REPORTED)]
    for name, table in (
        ("REPORTS.csv", [("id", "report"), *rows]),
        (
            "PEOPLE.csv",
            [("id", *findings), *((key, *(number % 2 for number in range(len(findings)))) for key, _ in rows)],
        ),
    ):
        with (folder / name).open("w", newline="") as stream:
            csv.writer(stream).writerows(table)


def findings_of(scheme):
    return list(composed_config(f"labelling/{scheme}")["labelling"]["findings"])


@CHAINS.add(
    "label reports=REPORTS.csv scheme=mosaic_danskcxr human=PEOPLE.csv model=huggingface_vlm model.checkpoint=LLM"
)
def _mosaic(folder, request):
    write_reports(folder, findings_of("mosaic_danskcxr"))
    (folder / "LLM").symlink_to(request.getfixturevalue("checkpoint"))
    return ["accelerator=cpu"]


SCHEME = """\
findings: [Edema, Fracture]
values: {1: stated, 2: denied, 0: left open, -1: not mentioned}
states: {positive: 1, negative: 2, uncertain: 0, blank: -1}
"""


@CHAINS.add("label reports=REPORTS.csv scheme=SCHEME.yaml model=openai_compatible model.model=LLM")
def _scheme(folder, request):
    write_reports(folder, ["Edema", "Fracture"])
    (folder / "SCHEME.yaml").write_text(SCHEME)
    return served(request.getfixturevalue("server"), "model")


@CHAINS.add(
    "label reports=REPORTS.csv scheme=chexpert_questions human=PEOPLE.csv model=openai_compatible model.model=LLM "
    "write=[labels,rate]"
)
def _rate(folder, request):
    write_reports(folder, findings_of("chexpert_questions"))
    return served(request.getfixturevalue("server"), "model")


@CHAINS.add("score reports=FILE.csv metrics=[lunguage_score] annotators.lunguage.rows=ROWS.jsonl")
def _lunguage(folder, request):
    from transformers import BertConfig, BertModel, BertTokenizer, MPNetConfig, MPNetModel

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "effusion", "edema", "small"]
    size = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": len(words)}
    MPNetModel(MPNetConfig(**size, hidden_size=16, pad_token_id=0)).save_pretrained(folder / "biolord")
    BertModel(BertConfig(**size, hidden_size=12)).save_pretrained(folder / "medcpt")
    for name in ("biolord", "medcpt"):
        (folder / name / "vocab.txt").write_text("\n".join(words) + "\n")
        BertTokenizer(str(folder / name / "vocab.txt")).save_pretrained(folder / name)
    rows = {
        "Small effusion.": [{"entity": "effusion", "dx_status": "positive", "severity": "small"}],
        "No edema.": [{"entity": "edema", "dx_status": "negative"}],
    }
    stored = [json.dumps({"report": text, "rows": held}) + "\n" for text, held in rows.items()]
    (folder / "ROWS.jsonl").write_text("".join(stored))
    lines = ["id,reference,prediction", "a,Small effusion.,Small effusion.", "b,No edema.,Small effusion."]
    (folder / "FILE.csv").write_text("\n".join(lines) + "\n")
    return ["annotators.lunguage.biolord=biolord", "annotators.lunguage.medcpt=medcpt"]


@CHAINS.add("agree preferences=VOTES.csv")
def _votes(folder, request):
    verdicts = ("tie", "left", "left", "right")
    rows = [f"{case},model,reference,{verdicts[case % 4]},doctor\n" for case in range(12)]
    (folder / "VOTES.csv").write_text("case,left,right,verdict,judge\n" + "".join(rows))
    return []


M3D = """\
import torch
from transformers import PretrainedConfig, PreTrainedModel


class TinyConfig(PretrainedConfig):
    model_type = "tiny_volumes"


class Tiny(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def generate(self, image, ids, max_new_tokens, do_sample):
        assert image.shape == (1, 1, 32, 256, 256)
        return ids[:, -2:]
"""
"""A model of volumes whose code comes with its checkpoint, as M3D-LaMed's does; it repeats the end of the question."""


@CHAINS.add(
    "test task=deeptumorvqa_v2 model=m3d_lamed model.trust_remote_code=true "
    "'task.layout.images={volume: \"benchmark/ct/{image_id}/ct.nii.gz\", slices: {count: 32}, window: [50, 400]}'"
)
def _volumes(folder, request):
    from safetensors.torch import save_file
    from transformers import BertTokenizer

    modules = folder / "modules"
    request.getfixturevalue("monkeypatch").setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
    words = sampled("deeptumorvqa_v2", folder, request)
    for shown in (folder / "data/benchmark/images_2d/whole").glob("*.png"):
        volume(folder / f"data/benchmark/ct/{shown.stem}/ct.nii.gz", np.arange(120).reshape(6, 5, 4))
    checkpoint = folder / "M3D"
    checkpoint.mkdir()
    (checkpoint / "modeling_tiny.py").write_text(M3D)
    named = {"AutoConfig": "modeling_tiny.TinyConfig", "AutoModelForCausalLM": "modeling_tiny.Tiny"}
    write_json(checkpoint / "config.json", {"model_type": "tiny_volumes", "auto_map": named})
    save_file({"layer.weight": torch.ones(1, 1), "layer.bias": torch.zeros(1)}, checkpoint / "model.safetensors")
    (checkpoint / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]) + "\n")
    BertTokenizer(str(checkpoint / "vocab.txt")).save_pretrained(checkpoint)
    return [*words, "model.checkpoint=M3D"]


def write_iu_xray(folder):
    """IU X-ray as R2Gen writes it."""
    records = {"train": [], "val": [], "test": []}
    for number in range(12):
        part = ("train", "train", "val", "test")[number % 4]
        paths = [f"CXR{number}/{view}.png" for view in range(2)]
        for path in paths:
            write_picture(folder / "images" / path, number)
        text = f"The heart is normal. There is {'an effusion' if number % 2 else 'no effusion'}."
        records[part].append({"id": f"CXR{number}", "image_path": paths, "report": text, "split": part})
    write_json(folder / "annotation.json", records)
    return [f"task.layout.root={folder}", *QUICK]


@CHAINS.add("fit task=iu_xray_r2gen model=report_probe model.encoder=ENCODER")
def _report_probe(folder, request):
    words = [*write_iu_xray(folder / "data"), *any_number("iu_xray_r2gen"), *EPOCH, f"model.encoder={NETWORK}"]
    decoder = "model.decoder={model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 64}"
    return [*words, decoder, "model.max_tokens=32", "model.image_size=64", "model.threshold=1"]


@CHAINS.add("test task=iu_xray_retrieval model=open_clip")
def _retrieval(folder, request):
    words = [*write_iu_xray(folder / "data"), *any_number("iu_xray_retrieval")]
    return [*words, "model.model_name=null", f"model.checkpoint={write_clip(folder / 'clip', 0)}"]


@CHAINS.add("test task=mewm_survival model=precomputed_risks model.root=RISKS")
def _mewm(folder, request):
    (folder / "data").mkdir()
    times, _ = write_mewm(folder / "data")
    for number, time in enumerate(times[10:], 10):  # those to test on
        write_json(folder / f"RISKS/cohort/p{number:02d}/pre.nii.gz.json", {"risk": float(1 / time)})
    return [f"task.layout.root={folder}/data", *QUICK]


@pytest.mark.parametrize("lines", CHAINS, ids=CHAINS.names)
def test_commands_run_on_files_of_their_authors_form(lines, run_chain):
    run_chain(CHAINS, lines)
