"""Replies as families of servers send them, and turns with tools as they are sent to one."""

import pytest

from medimg_eval.models.vision_language.openai.messages import calls_of, read_reply, written_tools, written_turns
from medimg_eval.question import Message, ToolCall, ToolSpec

USAGE = {"prompt_tokens": 7, "completion_tokens": 5}


def reply(message, finish="stop", usage=USAGE):
    return read_reply({"model": "m", "choices": [{"message": message, "finish_reason": finish}], "usage": usage})


@pytest.mark.parametrize(
    ("message", "thought"),
    [
        ({"content": "B"}, None),
        ({"content": "B", "reasoning": "large"}, "large"),  # vLLM
        ({"content": "B", "reasoning_content": "large"}, "large"),  # DeepSeek, transformers serve, older vLLM
        ({"content": "B", "reasoning": None, "reasoning_content": "large"}, "large"),
        ({"content": "B", "reasoning_details": [{"type": "reasoning.text", "text": "large"}]}, "large"),  # OpenRouter
        ({"content": [{"type": "thinking", "thinking": "large"}, {"type": "text", "text": "B"}]}, "large"),  # Anthropic
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "large"}]}, {"text": "B"}]},
            "large",  # Mistral
        ),
    ],
)
def test_thinking_is_found_where_each_family_sends_it(message, thought):
    read = reply(message)
    assert (read["text"], read["thought"]) == ("B", thought)


def test_tokens_are_read_where_they_are_told_and_are_none_elsewhere():
    details = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 4}}
    read = reply({"content": "B"}, usage=USAGE | details)
    assert [read[key] for key in ("prompt_tokens", "cached_tokens", "completion_tokens", "thought_tokens")] == [
        7,
        3,
        5,
        4,
    ]
    read = reply({"content": "B"}, usage={"prompt_tokens_details": None})
    assert [read[key] for key in ("prompt_tokens", "cached_tokens", "thought_tokens")] == [None] * 3


def test_calls_are_read_and_what_is_wrong_with_one_is_said():
    def call(arguments):
        return {"id": "c1", "type": "function", "function": {"name": "zoom", "arguments": arguments}}

    told = {"content": None, "tool_calls": [call('{"x": 1}'), call({"x": 1}), call("{x"), call("[1]"), call(""), {}]}
    read = reply(told, "tool_calls")
    calls = calls_of(read)
    assert read["text"] == ""
    assert [one.arguments for one in calls] == [{"x": 1}, {"x": 1}, {}, {}, {}]
    assert [bool(one.error) for one in calls] == [False, False, True, True, False]
    assert "no JSON" in calls[2].error


def test_turns_with_calls_and_results_are_written_and_images_follow_the_results():
    messages = [
        Message("user", ("Where?", 0)),
        Message("assistant", ("",), (ToolCall("zoom", {"x": 1}, "c1"), ToolCall("zoom", {"x": 2}, "c2"))),
        Message("tool", ("done", 1), (), "c1", "zoom"),
        Message("tool", ("none",), (), "c2", "zoom"),
        Message("user", ("Answer.",)),
    ]
    written = written_turns(messages, ["data:0", "data:1"])
    assert [turn["role"] for turn in written] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert written[1]["tool_calls"][0]["function"] == {"name": "zoom", "arguments": '{"x": 1}'}
    assert (written[2]["tool_call_id"], written[2]["content"]) == ("c1", "done")
    assert written[4]["content"][1] == {"type": "image_url", "image_url": {"url": "data:1"}}
    assert written_tools([ToolSpec("zoom", "Enlarges.")])[0]["function"]["name"] == "zoom"


def test_a_reply_without_a_message_is_refused():
    for told in ({}, {"choices": []}, {"choices": [{"finish_reason": "stop"}]}, []):
        with pytest.raises(ValueError, match="its reply holds"):
            read_reply(told)
