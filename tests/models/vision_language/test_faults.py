"""What servers and checkpoints do that nobody asked them to: said in a sentence, or read all the same."""

import json
import logging
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.metrics.answers import AnsweredQuestion, extract
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.question import Decoding, Message

KEY = "sk-" + "secret" * 8


@contextmanager
def serving(status, body, **headers):
    """A server that answers every request alike; yields its address and the requests it got."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Says nothing."""

        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def do_GET(self):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def model(url):
    return OpenAICompatible("m", url, api_key_env="THE_KEY", cache=False, retries=1, backoff_s=0.01)


def reply(message, **more):
    choice = {"message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]} | more).encode()


def ask(url, text="q"):
    return model(url).generate([Prompt("c1", (), messages=(Message("user", (text,)),))], Decoding(max_new_tokens=4))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "text", "text": "A"}, {"type": "text", "text": None}, "raw"]}, "A"),
        ({"content": [{"type": "reasoning", "text": "B, no"}, {"type": "output_text", "text": "A"}]}, "A"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "B"}]}, {"text": "A"}]}, "A"),
        ({"content": None, "reasoning_content": "B because"}, ""),
        ({"content": None, "refusal": "I cannot say."}, "I cannot say."),
        ({"content": "", "refusal": "I cannot say."}, "I cannot say."),
        ({"content": "A \ud83d"}, "A \ufffd"),
        ({"content": "\u7b54\u6848\uff1a\uff21 \U0001f600"}, "\u7b54\u6848\uff1a\uff21 \U0001f600"),
        ({"role": "assistant"}, ""),
    ],
)
def test_what_a_server_answers_is_read_in_each_form_that_replies_have(message, text):
    with serving(200, reply(message)) as (url, _):
        assert ask(url) == [text]


@pytest.mark.parametrize("usage", [[], None, {"prompt_tokens": "7", "completion_tokens": 1.5}, {"prompt_tokens": -1}])
def test_a_count_of_tokens_that_is_none_does_not_cost_the_reply(usage):
    with serving(200, reply({"content": "A"}, usage=usage)) as (url, _):
        asker = model(url)
        prompt = Prompt("c1", (), messages=(Message("user", ("q",)),))
        assert asker.generate([prompt], Decoding(max_new_tokens=4)) == ["A"]
        assert asker.usage()["uncounted"] == 1


@pytest.mark.parametrize("status", [200, 400, 401, 404, 422, 429, 500])
@pytest.mark.parametrize("before", ["", "x" * 285])  # so long that the words are cut off within the key
def test_a_key_that_a_server_repeats_is_told_nowhere(monkeypatch, caplog, status, before):
    monkeypatch.setenv("THE_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error": {"message": f"{before} key {KEY} is bad"}}).encode()
    with serving(status, body) as (url, _), pytest.raises(UserError) as raised:
        ask(url)
    told = f"{raised.value}{raised.value.__cause__}" + "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("medimg_eval")
    )
    assert "secret" not in told
    assert "***" in told


def test_a_server_that_streams_though_nobody_asked_is_named_at_once():
    body = b'data: {"choices":[{"delta":{"content":"A"}}]}\n\ndata: [DONE]\n\n'
    with serving(200, body) as (url, asked), pytest.raises(UserError, match="streams its replies") as raised:
        ask(url)
    assert not isinstance(raised.value, CaseError)
    assert len(asked) == 1


def test_a_server_that_sends_elsewhere_is_named_with_the_other_address_and_without_its_secrets(monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    there = "https://user:word@elsewhere.example/v1/chat/completions?token=abc"
    with serving(308, b"", Location=there) as (url, asked):
        with pytest.raises(
            UserError, match=r"sends elsewhere \(https://elsewhere\.example/v1/.*308.*base_url"
        ) as raised:
            ask(url)
        with pytest.raises(UserError, match=r"sends elsewhere \(https://elsewhere\.example"):
            model(url).check_ready()
    assert not isinstance(raised.value, CaseError)
    assert len(asked) == 1
    assert not any(word in str(raised.value) for word in ("word@", "abc", "user"))


def test_a_reply_that_nests_too_deep_is_no_json():
    with serving(200, b"[" * 100_000) as (url, _), pytest.raises(CaseError, match="is no JSON; 2 tries failed"):
        ask(url)


def test_a_question_in_signs_of_every_kind_arrives_as_it_is():
    text = "\u7b54\u6848 \U0001f600 \u202e \0 é"
    with serving(200, reply({"content": "A"})) as (url, asked):
        ask(url, text)
    assert asked[0]["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("settings", "words"), [({"dtype": None}, "model.dtype is None"), ({"batch": 0}, "model.batch is 0; expected")]
)
def test_settings_of_a_checkpoint_that_cannot_be_meant_are_refused(settings, words):
    from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM

    with pytest.raises(UsageError, match=words):
        HuggingFaceVLM("nowhere/at-all", **settings)


def test_a_chat_template_that_is_no_text_is_named(tmp_path):
    from medimg_eval.models.vision_language.huggingface.chat import ChatTemplate

    (tmp_path / "bad.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bad\.jinja: is no UTF-8 text"):
        ChatTemplate("tiny", object(), str(tmp_path / "bad.jinja"))


def test_a_checkpoint_without_a_chat_template_is_named_with_what_to_do():
    from medimg_eval.models.vision_language.huggingface.chat import ChatTemplate

    with pytest.raises(UserError, match=r"old: has no chat template; name a file with one in model\.chat_template"):
        ChatTemplate("old", object())


def test_a_tiny_checkpoint_answers_odd_prompts_and_goes_on_after_it_ran_out_of_memory(tmp_path, monkeypatch):
    import numpy as np
    import torch

    from medimg_eval.case import Image
    from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
    from tests.helpers import tiny_vlm

    asker = HuggingFaceVLM(str(tiny_vlm.save(tmp_path / "tiny", context=4096)), dtype="float32").eval()
    shown = [Image(np.full((3, 20 + n, 30), n, np.uint8), np.eye(4), units="pixel") for n in range(20)]

    def prompt(name, parts, images=(), before=()):
        return Prompt(name, tuple(images), messages=(*before, Message("user", tuple(parts))))

    exemplar = (Message("system", ("Be brief.",)), Message("user", (0, "Ex?")), Message("assistant", ("A",)))
    odd = [
        prompt("no text", [0], shown[:1]),
        prompt("no image", ["Which?"]),
        prompt("twenty", [*range(20), "Which?"], shown),
        prompt("signs", [0, "\u7b54 \U0001f600 \u202e \ufdfd \0"], shown[:1]),
        prompt("exemplar", [1, "Which?"], shown[:2], exemplar),
    ]
    short = Decoding(max_new_tokens=4)
    alone = [asker.generate([one], short)[0] for one in odd]
    assert asker.generate(odd, short) == alone
    drawn = Decoding(max_new_tokens=4, temperature=1.0, top_p=0.9, seed=3)
    assert asker.generate(odd, drawn) == [asker.generate([one], drawn)[0] for one in odd]
    with pytest.raises(CaseError, match="case 'long': the prompt is 2.* tokens long"):
        asker.generate([prompt("long", [0, "word " * 5000], shown[:1])], short)

    def full(**_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(asker.model, "generate", full)
        with pytest.raises(torch.OutOfMemoryError):
            asker.generate(odd, short)
    assert asker.generate(odd, short) == alone


# -- a provider's content filter

AZURE = {
    "error": {
        "message": "The response was filtered due to the prompt triggering our content management policy.",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}
FILTERED = [
    (400, AZURE),
    (400, {"error": {"message": "Rejected.", "code": "content_policy_violation"}}),
    (400, {"error": {"message": "Input data may contain inappropriate content.", "code": "data_inspection_failed"}}),
    (400, {"error": {"message": "Blocked.", "type": "content_filter"}}),
    (400, {"error": {"message": "Blocked.", "code": None, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    (400, {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}}),
    (400, {"error": {"message": "flagged as potentially violating our usage policy", "code": "invalid_prompt"}}),
    (400, {"error": {"message": "no", "code": "safety"}}),
    (403, {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["x"], "flagged_input": "q"}}}),
    (422, {"error": {"message": "no", "type": "ContentPolicyViolationError"}}),
]


@pytest.mark.parametrize(("status", "body"), FILTERED)
def test_a_request_that_a_content_filter_refuses_is_a_refused_answer_with_a_count_of_its_own(status, body):
    with serving(status, json.dumps(body).encode()) as (url, _):
        asker = model(url)
        prompts = [Prompt(case, (), messages=(Message("user", ("q",)),)) for case in ("c1", "c2")]
        replies = asker.generate(prompts, Decoding(max_new_tokens=4))
    usage = asker.usage()
    assert (usage["content_filtered"], usage["requests"], usage["retries"], usage["uncounted"]) == (2, 2, 0, 0)
    assert replies == [f"[content filter] {body['error']['message']}"] * 2
    for kind, options in (("choice", {"A": "x", "B": "Rejected"}), ("yes_no", {}), ("open", {}), ("report", {})):
        found = extract(kind, replies[0], options)
        assert (found.value, found.reason) == (None, "refused")
    assert extract("choice", replies[0], {"A": "x", "B": "y"}, rule="mmmu").reason == "refused"
    assert AnsweredQuestion("yes_no", replies[0], "no", judged={"option": "no"}, rule="judge").status == "refused"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "unknown parameter: safety_settings", "code": "unknown_parameter"},
        {"message": "content must be a string", "code": "content_type_invalid", "type": "invalid_request_error"},
        {"message": "maximum context length is 10", "code": "context_length_exceeded"},
    ],
)
def test_another_400_stays_a_failure(error):
    with serving(400, json.dumps({"error": error}).encode()) as (url, _), pytest.raises(CaseError, match="refuses"):
        ask(url)


@pytest.mark.parametrize("finish", ["content_filter", "content_filtered", "SAFETY", "refusal", "guardrail_intervened"])
@pytest.mark.parametrize(
    ("message", "text"), [({"content": None}, ""), ({"content": "The answer is A"}, " The answer is A"), (None, "")]
)
def test_a_reply_that_a_content_filter_ended_is_a_refused_answer_also_from_the_cache(tmp_path, finish, message, text):
    body = json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()
    prompts = [Prompt("c1", (), messages=(Message("user", ("q",)),))]
    with serving(200, body) as (url, _):
        for requests in (1, 0):
            asker = OpenAICompatible("m", url, api_key_env="THE_KEY", cache=str(tmp_path), retries=0)
            assert asker.generate(prompts, Decoding(max_new_tokens=4)) == [f"[content filter]{text}"]
            assert (asker.usage()["content_filtered"], asker.usage()["requests"]) == (1, requests)
    assert extract("choice", f"[content filter]{text}", {"A": "x", "B": "y"}).reason == "refused"
