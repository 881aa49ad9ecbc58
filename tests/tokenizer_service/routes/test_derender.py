"""Generated ids to chat completions and completions, whole and in parts with their state."""

import json

import pytest

from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.routes.exchanges import JSON, metrics, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates

CHAT, TEXT = "/v1/chat/completions/derender", "/v1/completions/derender"
EOS = 300
SPEC = TokenizerSpec.from_merges(
    {byte: bytes([byte]) for byte in range(256)},
    [],
    [AddedToken("<eos>", EOS), AddedToken("<tool_call>", 301), AddedToken("</think>", 302)],
)
TOKENIZER = Tokenizer.from_spec(SPEC)
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1.50}}</tool_call>'
OUTPUT = f"<think>so é</think>Hi 🙂{CALL}\n{CALL}\n<tool_call>no</tool_call>"
FUNCTION = {"name": "f", "arguments": '{"x": 1.50}'}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}


@pytest.fixture(scope="module")
def client(shared_store):
    shared_store.publish(SPEC, name="generated")
    with serve(shared_store, default="generated") as client:
        yield client


def choice(ids, **fields):
    return {"index": 0, "token_ids": ids, **fields}


def generated(*choices, **fields):
    return {"request_id": "r-1", "choices": list(choices), **fields}


def ended(text, **fields):
    ids = TOKENIZER.encode(text) if isinstance(text, str) else text
    return choice([*ids, EOS], finish_reason="stop", **fields)


def streamed(post, parts, **fields):
    """The chunks of an output that arrives in these parts, and the last state."""
    state, chunks = None, []
    for number, ids in enumerate(parts):
        reason = {"finish_reason": "stop"} if number == len(parts) - 1 else {}
        chunk = generated(choice(ids, **reason))
        found = post(CHAT, stream=True, generate_chunk=chunk, stream_state=state, **fields)
        state = found["stream_state"]
        assert len(json.dumps(state)) < 1 << 16
        chunks.append(found["chunk"])
    return chunks, state


def joined(chunks):
    """The message that the deltas of a chat completion make."""
    message = {"content": "", "reasoning": "", "tool_calls": []}
    for chunk in chunks:
        [one] = chunk["choices"]
        delta = one["delta"]
        message["content"] += delta.get("content") or ""
        message["reasoning"] += delta.get("reasoning") or ""
        message["tool_calls"] += delta.get("tool_calls", [])
    assert [call.pop("index") for call in message["tool_calls"]] == list(
        range(len(message["tool_calls"]))
    )
    return message, one["finish_reason"]


def test_a_whole_output(post, client):
    before = metrics(client, "decode_tokens_total")
    response = generated(ended(OUTPUT), usage=None, kv_transfer_params={"a": 1})
    found = post(
        CHAT, generate_response=response, parser="qwen3", prompt_tokens=7, model="generated"
    )
    assert metrics(client, "decode_tokens_total")[0] > before[0]
    [one] = found.pop("choices")
    message = one.pop("message")
    ids = [call.pop("id") for call in message["tool_calls"]]
    assert len(set(ids)) == 2
    assert message == {
        "role": "assistant",
        "content": "Hi 🙂\n<tool_call>no</tool_call>",
        "reasoning": "so é",
        "tool_calls": [{"type": "function", "function": FUNCTION}] * 2,
    }
    assert one == {
        "index": 0,
        "finish_reason": "tool_calls",
        "stop_reason": None,
        "logprobs": None,
        "token_ids": None,
    }
    n_tokens = len(TOKENIZER.encode(OUTPUT)) + 1
    usage = {"prompt_tokens": 7, "completion_tokens": n_tokens, "total_tokens": 7 + n_tokens}
    assert found.pop("created") > 0
    assert found == {
        "id": "r-1", "object": "chat.completion", "model": "generated", "usage": usage,
        "prompt_logprobs": None, "prompt_token_ids": None, "kv_transfer_params": {"a": 1},
        "ec_transfer_params": None, "metrics": None,
    }  # fmt: skip


def message_of(post, output, **fields):
    [one] = post(CHAT, generate_response=generated(output), **fields)["choices"]
    return one["message"]["content"], one["message"]["reasoning"], one["finish_reason"]


def test_the_parser_that_the_import_names(shared_store, post):
    chat = ChatTemplates(stop_tokens=("<eos>",), output_parser="qwen3")
    version = str(shared_store.publish(SPEC.with_chat(chat), name="parsed"))
    named = {"tokenizer": version}
    assert message_of(post, ended(OUTPUT), **named)[1:] == ("so é", "tool_calls")
    response = generated(ended(OUTPUT))
    assert post(TEXT, generate_responses=[response], **named)["choices"][0]["text"][:7] == "<think>"
    # The token that ended the output is no text, though special tokens are.
    shown = {"completion_request": {"skip_special_tokens": False}}
    found = post(TEXT, generate_responses=[generated(ended("a"))], **shown, **named)
    assert found["choices"][0]["text"] == "a"


def test_options_of_the_chat_request(post):
    plain = OUTPUT.replace("<tool_call>", "").replace("</think>", "")
    assert message_of(post, ended(OUTPUT)) == (plain, None, "stop")
    # A parser sees its marks, though they are special tokens.
    content = OUTPUT.removeprefix("<think>so é</think>")
    for request in ({"model": "m"}, {**TOOLS, "tool_choice": "none"}):
        found = message_of(post, ended(OUTPUT), parser="qwen3", chat_request=request)
        assert found == (content, "so é", "stop")
    hidden = {**TOOLS, "include_reasoning": False, "return_token_ids": True}
    found = message_of(post, ended("<think>a</think>b"), parser="qwen3", chat_request=hidden)
    assert found == ("b", None, "stop")
    shown = generated(ended("b"), prompt_token_ids=[97])
    found = post(CHAT, generate_response=shown, chat_request={"return_token_ids": True})
    assert (found["choices"][0]["token_ids"], found["prompt_token_ids"]) == ([ord("b"), EOS], [97])
    forced = {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}
    assert message_of(post, ended(CALL), parser="qwen3", chat_request=forced)[2] == "stop"


def test_what_ends_an_output_is_no_text(post):
    keeps = {"include_stop_str_in_output": True}
    for output, options, content in (
        (choice([*b"ab!"], finish_reason="stop", stop_reason=33), {}, "ab"),
        (choice([*b"ab!"], finish_reason="stop", stop_reason=33), keeps, "ab!"),
        (choice([*b"ab!"], finish_reason="length", stop_reason=33), {}, "ab!"),
        (choice([*b"abENDx"], finish_reason="stop", stop_reason="END"), {}, "ab"),
        (choice([*b"abEND"], finish_reason="stop", stop_reason="END"), keeps, "abEND"),
        # The first one came before `min_tokens`.
        (choice([*b"aENDbEND"], finish_reason="stop", stop_reason="END"), {}, "aENDb"),
        (choice([*b"aENDbENDx"], finish_reason="stop", stop_reason="END"), {"min_tokens": 5},
         "aENDb"),
        # Both in what the last step gave.
        (choice([*b"aENDEND"], finish_reason="stop", stop_reason="END"), {"stop": "END"}, "a"),
        (choice([*b"aENDx"], finish_reason="stop", stop_reason="END"), keeps, "aEND"),
        # Servers of older versions do not say what ended the output.
        (choice([*b"aENDx"], finish_reason="stop"), {"stop": ["", "x", "END"]}, "aEND"),
        (choice([*b"aENDx"], finish_reason="length"), {"stop": ["END"]}, "aENDx"),
        (choice([*b"ab!"]), {"stop_token_ids": [33]}, "ab"),
        (choice([*b"a", EOS, *b"b"]), {}, "ab"),
        (choice([*b"a", EOS, *b"b"]), {"skip_special_tokens": False}, "a<eos>b"),
    ):  # fmt: skip
        request = {"chat_request": options} if options else {}
        assert message_of(post, output, **request)[0] == content


def test_a_prompt_may_begin_the_reasoning(post):
    prompt = TOKENIZER.encode("<think>\n")
    for where in ({"prompt_token_ids": prompt}, {}):
        response = generated(ended("so</think>b"))
        response |= {} if where else {"prompt_token_ids": prompt}
        found = post(CHAT, generate_response=response, parser="qwen3", **where)
        message = found["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("so", "b")
        assert found["usage"]["prompt_tokens"] == len(prompt)
    state = streamed(post, [[*b"so"], [*b"b"]], parser="qwen3", prompt_token_ids=prompt)
    assert joined(state[0])[0]["reasoning"] == "sob"


def test_without_the_prompt_the_output_says_whether_it_began_in_reasoning(post, refused):
    for text, prompt, content, reasoning in (
        ("so</think>b", {}, "b", "so"),
        ("so</think>b", {"prompt_token_ids": [10]}, "so</think>b", None),
        ("a <think>so</think>b", {}, "a <think>so</think>b", None),
        ("<think>so</think>b", {}, "b", "so"),
        ("so", {}, "so", None),
    ):
        found = message_of(post, ended(text), parser="qwen3", **prompt)
        assert found == (content, reasoning, "stop")
    # One that was cut does not, unless it has a mark; nor does a part.
    for text, expected in (("so</think>b", ("b", "so")), ("<think>so", (None, "so"))):
        cut = choice([*TOKENIZER.encode(text)], finish_reason="length")
        assert message_of(post, cut, parser="qwen3") == (*expected, "length")
    cut = {"generate_response": generated(choice([*b"so"], finish_reason="length"))}
    assert refused(CHAT, **cut, parser="qwen3") == ("invalid_request", "/prompt_token_ids")
    assert post(CHAT, **cut, parser="qwen3", prompt_token_ids=[10])
    assert post(CHAT, **cut, parser="hermes")
    chunk = {"stream": True, "generate_chunk": generated(choice([97]))}
    assert refused(CHAT, **chunk, parser="qwen3") == ("invalid_request", "/prompt_token_ids")
    assert post(CHAT, **chunk, parser="hermes")["chunk"]["choices"][0]["delta"]["content"] == "a"
    first = {**chunk, "generate_chunk": generated()}
    assert post(CHAT, **first, parser="qwen3")["stream_state"] is None


def test_every_way_to_cut_an_output_gives_the_same_message(post):
    ids = [*TOKENIZER.encode(OUTPUT), EOS]
    response = generated(choice(ids, finish_reason="stop"))
    whole = post(CHAT, generate_response=response, parser="qwen3")["choices"][0]
    wanted = {name: whole["message"][name] for name in ("content", "reasoning", "tool_calls")}
    cuts = [[ids[:at], ids[at:]] for at in range(len(ids) + 1)]
    for parts in (*cuts, [[id_] for id_ in ids], [ids], [[], ids, []]):
        chunks, state = streamed(post, parts, parser="qwen3", prompt_token_ids=[])
        assert joined(chunks) == (wanted, "tool_calls")
        assert (state["mode"], state["held"], state["n_calls"]) == ("finished", [], 2)
        roles = ["role" in chunk["choices"][0]["delta"] for chunk in chunks]
        assert roles == [True] + [False] * (len(parts) - 1)


def test_completions_of_many_prompts(post, refused):
    both = [generated(ended("a"), ended("b")), generated(ended("c"), request_id="r-2")]
    found = post(TEXT, generate_responses=both, prompt_tokens=[3, 4])
    assert [(one["index"], one["text"]) for one in found["choices"]] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]
    assert (found["object"], found["id"]) == ("text_completion", "r-1")
    assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
    wrong = {"generate_responses": both, "prompt_tokens": [3]}
    assert refused(TEXT, **wrong) == ("invalid_request", "/prompt_tokens")
    wrong = {"generate_responses": both, "prompt_token_ids": [[97], [9999]]}
    assert refused(TEXT, **wrong) == ("unknown_token_id", "/prompt_token_ids/1/0")


def logprobs(ids, *others):
    """Those of a generated output, with these candidates at each position."""
    tops = [{"token_id": id_, "logprob": -2.5, "rank": 2} for id_ in others]
    return {"content": [{"token_id": id_, "logprob": -1.0, "top_logprobs": tops} for id_ in ids]}


LIKELY = [*"aé🙂".encode(), EOS, *b"b"]
TEXTS = ["a", "", "é", "", "", "", "🙂", "<eos>", "b"]


def test_log_probabilities_of_a_chat_completion(post):
    given = generated(choice(LIKELY, finish_reason="length", logprobs=logprobs(LIKELY, 98, 299)))
    [one] = post(CHAT, generate_response=given)["choices"]
    found = one["logprobs"]["content"]
    assert [entry["token"] for entry in found] == TEXTS
    assert [bytes(entry["bytes"]).decode() for entry in found] == TEXTS
    # No token has the id 299.
    b = {"token": "b", "logprob": -2.5, "bytes": [98]}
    tops = [b, {"token": "", "logprob": -2.5, "bytes": None}]
    assert found[0] == {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": tops}
    for options, n_tops in (
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 1}, 1),
        ({"logprobs": True, "top_logprobs": -1}, 2),
        ({"logprobs": True, "logprob_token_ids": [98]}, 2),
        ({"logprobs": False, "top_logprobs": 1}, 2),
    ):
        [one] = post(CHAT, generate_response=given, chat_request=options)["choices"]
        assert one["logprobs"]["content"][0]["top_logprobs"] == tops[:n_tops]
    hidden = {"include_reasoning": False, "logprobs": True}
    known = {"parser": "qwen3", "prompt_token_ids": [10]}
    [one] = post(CHAT, generate_response=given, chat_request=hidden, **known)["choices"]
    assert one["logprobs"] is None
    [one] = post(CHAT, generate_response=generated(choice([97], logprobs={})))["choices"]
    assert one["logprobs"] == {"content": None}


def test_log_probabilities_of_a_completion(post):
    given = generated(choice(LIKELY, finish_reason="length", logprobs=logprobs(LIKELY, 98, 97)))
    [one] = post(TEXT, generate_responses=[given])["choices"]
    n_before = [len("".join(TEXTS[:index])) for index in range(len(TEXTS))]
    assert one["logprobs"] == {
        "text_offset": n_before,
        "token_logprobs": [-1.0] * len(TEXTS),
        "tokens": TEXTS,
        "top_logprobs": [{"b": -2.5, "a": -2.5}] * len(TEXTS),
    }
    options = {"completion_request": {"logprobs": 0}}
    [one] = post(TEXT, generate_responses=[given], **options)["choices"]
    assert one["logprobs"]["top_logprobs"][0] == {"b": -2.5}
    alone = generated(choice([97], logprobs=logprobs([97])))
    [one] = post(TEXT, generate_responses=[alone])["choices"]
    assert one["logprobs"]["top_logprobs"] == [None]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_text_and_log_probabilities_in_parts_are_those_of_the_whole(post, path):
    def columns(choice):
        found = choice["logprobs"]
        if path == CHAT:
            return [found["content"]]
        names = ("text_offset", "token_logprobs", "tokens", "top_logprobs")
        return [list(choice["text"]), *(found[name] for name in names)]

    output = generated(choice(LIKELY, finish_reason="length", logprobs=logprobs(LIKELY, 0xA9)))
    body = {"generate_response": output} if path == CHAT else {"generate_responses": [output]}
    wanted = columns(post(path, **body)["choices"][0])
    parts = [[LIKELY[:at], LIKELY[at:]] for at in range(1, len(LIKELY))]
    for cut in (*parts, [[id_] for id_ in LIKELY]):
        state, joined_columns = None, [[] for _ in wanted]
        for ids in cut:
            chunk = generated(choice(ids, logprobs=logprobs(ids, 0xA9)))
            found = post(path, stream=True, generate_chunk=chunk, stream_state=state)
            state = found["stream_state"]
            more = columns(found["chunk"]["choices"][0])
            for column, new in zip(joined_columns, more, strict=True):
                column += new
        assert joined_columns == wanted


def test_texts_of_log_probabilities_have_the_limit_of_a_response(client, shared_store):
    with serve(shared_store, default="generated", max_response_bytes=200) as client:
        for n_candidates, status in ((20, 200), (30, 413)):
            output = choice([97], logprobs=logprobs([97], *[98] * n_candidates))
            body = {"generate_response": generated(output)}
            assert client.post(CHAT, json=body).status_code == status


def test_a_chunk_has_the_given_number_of_prompt_tokens(post):
    chunk = generated(usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
    for path in (CHAT, TEXT):
        found = post(path, stream=True, generate_chunk=chunk, prompt_tokens=7)["chunk"]
        assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def test_what_the_server_sent_is_kept_where_all_responses_agree(post):
    one = generated(ended("a"), kv_transfer_params={"a": 1}, metrics={"b": 2})
    other = {**one, "kv_transfer_params": {"a": 2}}
    for responses, wanted in (([one], ({"a": 1}, {"b": 2})), ([one] * 2, ({"a": 1}, None)),
                              ([one, other], (None, None))):  # fmt: skip
        found = post(TEXT, generate_responses=responses)
        assert (found["kv_transfer_params"], found["metrics"]) == wanted


def test_a_chunk_without_a_choice_keeps_the_state(post):
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    _, state = streamed(post, [[97], [98]])
    last = post(CHAT, stream=True, generate_chunk=generated(usage=usage), stream_state=state)
    assert (last["stream_state"], last["chunk"]["usage"]) == (state, usage)
    assert last["chunk"]["choices"] == []


def part(ids, state, **fields):
    chunk = generated(choice(ids), prompt_token_ids=[10])
    body = {"stream": True, "parser": "qwen3", "generate_chunk": chunk}
    return {**body, "stream_state": state, **fields}


@pytest.fixture
def state(post):
    """The state of a stream within a call, after an incomplete character."""
    body = part([*TOKENIZER.encode("a<tool_call>"), 0xC3], None)
    found = post(CHAT, **body)["stream_state"]
    assert (found["mode"], found["held"], found["n_given"]) == ("content", [301, 0xC3], 0)
    return found


VALUES = [
    0, 1, -1, 2, 1 << 53, 1 << 64, 1.5, True, False, None, "", "a", [], [97], [9999], [-1], {},
]  # fmt: skip


@pytest.mark.row(42)
def test_a_changed_state_is_refused_or_changes_nothing(post, client, state):
    wanted = post(CHAT, **part([*b"x"], state))
    wanted["chunk"].pop("created")
    words = ["start", "reasoning", "content", "after_call", "finished", "hermes", "qwen3"]
    changed = [{**state, name: value} for name in state for value in [*VALUES, *words, state[name]]]
    changed += [{k: v for k, v in state.items() if k != name} for name in state]
    changed += [{**state, "more": 1}, [], "a", 1, {}]
    n_same = 0
    for one in changed:
        response = client.post(CHAT, json=part([*b"x"], one))
        if response.status_code == 200:
            found = response.json()
            found["chunk"].pop("created")
            assert found == wanted
            n_same += 1
        else:
            assert response.status_code in (400, 409), response.text
    assert len(state) <= n_same < len(changed) / 4
    large = part([*b"x"], {**state, "held": [0] * 40_000})
    found = problem(client.post(CHAT, content=json.dumps(large), headers=JSON), 422)
    assert "65536 bytes" in found["error"]["message"]


@pytest.mark.row(42)
def test_a_state_of_another_stream_is_refused(client, post, state, refused, shared_store):
    body = part([97], state)
    other = problem(
        client.post(CHAT, json={**body, "tokenizer": "starter"}), 409, "other_tokenizer"
    )
    assert other["errors"][0]["pointer"] == "/stream_state/tokenizer"
    assert refused(CHAT, **{**body, "parser": "hermes"}) == (
        "invalid_request",
        "/stream_state/parser",
    )
    chunk = generated(choice([97], index=1))
    assert refused(CHAT, **{**body, "generate_chunk": chunk})[1] == "/stream_state/index"
    end = generated(choice([97], finish_reason="stop"))
    last = post(CHAT, **{**body, "generate_chunk": end})["stream_state"]
    found = refused(CHAT, **{**body, "stream_state": last})
    assert found == ("invalid_stream_state", "/stream_state")


def test_a_call_longer_than_a_state_is_refused_in_parts_only(client, post):
    ids = [*TOKENIZER.encode("<tool_call>"), *b"x" * 9000]
    found = problem(client.post(CHAT, json=part(ids, None)), 413, "stream_state_too_large")
    assert "whole output" in found["error"]["message"]
    output = choice(ids, finish_reason="length")
    known = {"parser": "qwen3", "prompt_token_ids": [10]}
    assert message_of(post, output, **known)[0] == "<tool_call>" + "x" * 9000


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"generate_response": generated(choice([97, 9999]))}, "unknown_token_id",
         "/generate_response/choices/0/token_ids/1"),
        ({"generate_response": generated(choice([True]))}, "invalid_token_id", ""),
        ({"generate_response": generated(choice([]))}, "invalid_request",
         "/generate_response/choices/0/token_ids"),
        ({"generate_response": generated(choice([97], logprobs={"content": [{"token_id": 97}]}))},
         "invalid_request", "/generate_response/choices/0/logprobs/content/0/logprob"),
        ({"chat_request": {"logprobs": True, "top_logprobs": "2"}}, "invalid_request",
         "/chat_request/top_logprobs"),
        ({"generate_response": generated(choice([97]), output_mode="text")},
         "invalid_request", "/generate_response/output_mode"),
        ({"parser": "guess"}, "invalid_request", "/parser"),
        ({"parsr": "qwen3"}, "invalid_request", "/parsr"),
        ({"prompt_token_ids": [9999]}, "unknown_token_id", "/prompt_token_ids/0"),
        ({"stream": True}, "invalid_request", "/generate_chunk"),
        ({"chat_request": {"stop": [1]}}, "invalid_request", "/chat_request/stop"),
        ({"chat_request": {"return_token_ids": "yes"}}, "invalid_request",
         "/chat_request/return_token_ids"),
        ({"stream": True, "generate_chunk": generated(usage={"completion_tokens": "1"})},
         "invalid_request", "/generate_chunk/usage/completion_tokens"),
        ({"stream": True, "generate_chunk": generated(choice([97]), choice([98]))},
         "invalid_request", "/generate_chunk/choices"),
        ({"stream": True, "generate_chunk": generated(choice([97])), "chat_request": {"stop": "a"}},
         "invalid_request", "/chat_request/stop"),
        ({"stream": True, "generate_chunk": generated(choice([97], stop_reason="a"))},
         "invalid_request", "/generate_chunk/choices/0/stop_reason"),
    ],
)  # fmt: skip
def test_what_is_refused(refused, changes, code, where):
    body = {"generate_response": generated(choice([97])), **changes}
    found = refused(CHAT, **body)
    assert found[0] == code
    assert found[1].startswith(where)
