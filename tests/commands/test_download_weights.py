"""`download annotator=` and `extractor=`: weights come into the hub's cache, go on where they broke off, are found."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.hub import Weights

COMMIT = "c0ffee" + "0" * 34
CHECKPOINT = bytes(range(256)) * 40
FILES = {
    "StanfordAIMI/RRG_scorers/chexbert.pth": CHECKPOINT,
    "google-bert/bert-base-uncased/config.json": b"{}",
    "google-bert/bert-base-uncased/vocab.txt": b"[PAD]\n",
    "IAMJB/RadBERT-CT/config.json": b"{}",
    "IAMJB/RadBERT-CT/pytorch_model.bin": b"old",
    "IAMJB/RadBERT-CT/tokenizer.json": b"{}",
    "microsoft/rad-dino/config.json": b"{}",
    "microsoft/rad-dino/preprocessor_config.json": b"{}",
    "microsoft/rad-dino/model.safetensors": b"new",
    "microsoft/rad-dino/dinov2.ckpt": b"other",
    "me/whole/config.json": b"{}",
    "me/whole/vocab.txt": b"",
    "me/whole/onnx/model.onnx": b"onnx",
    "me/whole/model.safetensors": b"new",
    "me/whole/pytorch_model.bin": b"old",
}


class Answer(BaseHTTPRequestHandler):
    """Serves files of models as the hub does."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, (place, _, _) = self.server, self.path.strip("/").partition("?")
        if place.startswith("api/models/"):
            return self.tree("/".join(place.split("/")[2:4]))
        owner, name, _, _, file = place.split("/", 4)
        key = f"{owner}/{name}/{file}"
        hub.asked.append((self.command, key, self.headers.get("Range")))
        known = any(one.startswith(f"{owner}/{name}/") for one in FILES)
        if hub.said or not known or key not in FILES:
            status, code = hub.said or ((404, "EntryNotFound") if known else (401, "RepoNotFound"))
            return self.reply(status, {"X-Error-Code": code})
        data, span = FILES[key], self.headers.get("Range")
        begin = int(span.removeprefix("bytes=").partition("-")[0]) if span else 0
        more = {"ETag": f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"'}
        stop = hub.breaks.pop(key, len(data)) if self.command == "GET" else len(data)
        if span:
            more["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        self.reply(206 if span else 200, more, len(data) - begin)
        if self.command == "GET":
            self.wfile.write(data[begin:stop])
            if stop < len(data):
                self.wfile.flush()
                self.close_connection = True
        return None

    def tree(self, repository):
        files = [one.removeprefix(f"{repository}/") for one in FILES if one.startswith(f"{repository}/")]
        if self.server.said or not files:
            status, code = self.server.said or (401, "RepoNotFound")
            return self.reply(status, {"X-Error-Code": code})
        body = json.dumps([{"type": "file", "path": file, "size": 1, "oid": "0" * 40} for file in files]).encode()
        self.reply(200, {"Content-Type": "application/json"}, len(body))
        self.wfile.write(body)
        return None

    def reply(self, status, headers, size=0):
        self.send_response(status)
        for name, value in {"X-Repo-Commit": COMMIT, "Content-Length": str(size), **headers}.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of models, and a machine with an empty cache and no token."""
    cache = tmp_path / "hub"
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "HF_TOKEN_PATH": str(tmp_path / "no token"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_CACHE": str(cache),
        "DOWNLOAD_CHUNK_SIZE": 1000,
    }.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads, server.asked, server.breaks, server.said = True, [], {}, None
        server.cache = cache
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def asked(capfd):
    def ask(*words):
        code = start(["download", *words])
        return code, " ".join("".join(capfd.readouterr()).split())

    return ask


def test_what_is_fetched_is_then_ready_and_a_second_time_nothing_is_asked_for(hub, asked, capfd):
    code, said = asked("annotator=chexbert")
    assert code == 0
    assert "chexbert.pth: 10.0 KiB" in said
    assert "licence: that of stanfordmlgroup/CheXbert" in said
    found = next(hub.cache.rglob("chexbert.pth"))
    assert found.read_bytes() == CHECKPOINT
    assert f"annotators.chexbert.weights: {found}" in said
    hub.asked.clear()
    assert asked("annotator=chexbert")[0] == 0
    assert not hub.asked
    assert start(["check", "metrics=[chexbert_f1@micro-14,chexbert_similarity]"]) == 0
    assert "2 of 2 metrics are ready" in capfd.readouterr().out


def test_of_two_formats_the_one_that_the_repository_has_is_fetched(hub, asked):
    code, said = asked("annotator=radbert_ct")
    assert (code, "pytorch_model.bin: 3 bytes" in said, "tokenizer.json" in said) == (0, True, True), said
    assert start(["check", "metrics=radbert_ct_f1@macro-18"]) == 0


def test_weights_of_an_extractor_are_fetched_likewise(hub, asked):
    code, said = asked("extractor=rad_dino")
    assert (code, "licence: MSRLA, research only" in said) == (0, True), said
    found = next(hub.cache.rglob("model.safetensors"))
    assert f"extractors.rad_dino.weights: {found.parent}" in said
    assert not list(hub.cache.rglob("dinov2.ckpt"))
    code, said = asked("extractor=inception")
    assert code == 1
    assert "extractors.inception.weights: inception_v3_google-0cc3c7bd.pth; had from torchvision" in said
    code, said = asked("extractor=rad_dinosaur")
    assert (code, "got 'rad_dinosaur'" in said) == (2, True), said


class Whole(TextAnnotator):
    """Needs a model as a whole, and rows of its own."""

    needs = (Weights("model", "a model", "the hub", "free"), Weights("rows", "rows.jsonl", "a structurer", "yours"))

    def __init__(self, model=None, rows=None):
        self.model, self.rows = model, rows

    def annotate(self, texts):
        raise AssertionError


def test_of_a_whole_model_one_format_is_fetched_and_what_is_had_elsewhere_is_told(hub, asked):
    own = [f"annotators.chexbert._target_={__name__}.Whole", "annotators.chexbert.model=me/whole"]
    code, said = asked("annotator=chexbert", *own)
    assert code == 1
    assert "annotators.chexbert.rows: rows.jsonl; had from a structurer (licence: yours)" in said
    got = [path.name for path in hub.cache.rglob("snapshots/*/*")]
    assert sorted(got) == ["config.json", "model.safetensors", "vocab.txt"]
    assert next(key for command, key, _ in hub.asked if command == "GET") == "me/whole/model.safetensors"


def test_a_transfer_that_broke_off_goes_on(hub, asked):
    hub.breaks["StanfordAIMI/RRG_scorers/chexbert.pth"] = 6000
    code, said = asked("annotator=chexbert")
    if code:
        assert "the same command goes on from here" in said
        assert asked("annotator=chexbert")[0] == 0
    assert next(hub.cache.rglob("chexbert.pth")).read_bytes() == CHECKPOINT
    spans = [span for command, key, span in hub.asked if command == "GET" and key.endswith("pth")]
    assert spans[0] is None
    assert spans[-1] not in (None, "bytes=0-")


@pytest.mark.parametrize(
    ("words", "refusal", "code", "told"),
    [
        (["annotator=chexbrt"], None, 2, "got 'chexbrt'; did you mean 'chexbert'"),
        (
            ["annotator=chexbert", "annotators.chexbert.weights=/no/file.pth"],
            None,
            1,
            "cannot be fetched from the hub for you",
        ),
        (
            ["annotator=chexbert", "annotators.chexbert.weights=me/mine:x.pth"],
            None,
            1,
            "the hub shows no model me/mine",
        ),
        (
            ["annotator=radbert_ct", "annotators.radbert_ct.weights=google-bert/bert-base-uncased"],
            None,
            1,
            "no file 'model.safetensors",
        ),
        (["annotator=chexbert"], (403, "GatedRepo"), 1, "RRG_scorers is gated; ask for access"),
        (["annotator=chexbert"], (400, ""), 1, "could not be fetched"),
        (["annotator=chexbert"], (404, "RevisionNotFound"), 1, "has no revision"),
        ([], None, 2, "no task is named"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_sentence(hub, asked, words, refusal, code, told):
    hub.said = refusal
    found, said = asked(*words)
    assert (found, told in said) == (code, True), said
