"""The routes that render a prompt for vLLM's /inference/v1/generate, and what they cut."""

from dataclasses import replace

import pytest
import tokenizers

from tests.tokenizer_service.chats import END_ID, SPEC, chatml_ids, say, with_templates
from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.routes.exchanges import metrics, problem
from tokenizer_core import Tokenizer

pytestmark = pytest.mark.usefixtures("rendering_here")

HELLO = say("Hello")
HELLO_IDS = chatml_ids(("user", "Hello"), prompt=True)
COMPLETIONS, CHAT = "/v1/completions/render", "/v1/chat/completions/render"
MESSAGES, RESPONSES = "/v1/messages/render", "/v1/responses/render"
LENGTH = 40
"""`max_model_len` of the tokenizer `short`."""


@pytest.fixture(scope="module")
def around():
    """Single bytes; the post-processor puts an id before a text and one after it."""
    return replace(with_templates(SPEC), suffix_ids=(257,), prefix_ids=(256,))


@pytest.fixture(scope="module")
def client(shared_store, around):
    """A service whose active tokenizer puts an id before a text; `around` puts one at each end,
    `short` is that of a short model."""
    spec = with_templates(SPEC)
    short = around.with_chat(replace(around.chat, max_model_len=LENGTH))
    named = {"around": around, "short": short, "rendered": spec}
    for name, published in named.items():
        shared_store.publish(published, name=name)
    with serve(shared_store, default="rendered") as client:
        yield client


def ids_of(answer):
    return [request["token_ids"] for request in answer]


def test_prompts_of_a_completion(client, post, refused):
    one = post(COMPLETIONS, prompt="ab", model="rendered", temperature=0.5)
    assert len(one) == 1
    assert one[0].pop("request_id").startswith("cmpl-")
    assert one[0] == {
        "token_ids": [END_ID, 97, 98],
        "input_ids": [END_ID, 97, 98],
        "token_offsets": None,
        "features": None,
        "sampling_params": {"temperature": 0.5, "max_tokens": 16},
        "model": "rendered",
        "stream": False,
        "stream_options": None,
        "cache_salt": None,
        "priority": 0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "return_token_ids": None,
        "reasoning_ended": None,
    }
    for prompt, ids in (
        (["ab", ""], [[END_ID, 97, 98], [END_ID]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
        ([], []),
        ("a<|im_start|>", [[END_ID, 97, 256]]),
    ):
        assert ids_of(post(COMPLETIONS, prompt=prompt)) == ids
    assert ids_of(post(COMPLETIONS, prompt="ab", add_special_tokens=False)) == [[97, 98]]
    for prompt, place in (
        ("", "/prompt"), ([[97], []], "/prompt/1"), ([97, 999], "/prompt/1"),
        ([[97], [98, 999]], "/prompt/1/1"), ([97, -1], "/prompt/1"), (["a", 97], "/prompt"),
        (5, "/prompt"), (None, "/prompt"),
    ):  # fmt: skip
        assert refused(COMPLETIONS, prompt=prompt)[1] == place, prompt
    for name in ("prompt_embeds", "suffix", "use_beam_search", "messages", "input_ids", "promt"):
        assert refused(COMPLETIONS, prompt="a", **{name: [1]})[1] == f"/{name}"
    known = client.post(COMPLETIONS, json={"prompt": "a", "user": "x", "best_of": 2})
    assert known.headers["Ignored-Fields"] == "best_of"
    before = metrics(client, "encode_bytes_total", "encode_tokens_total")
    post(COMPLETIONS, prompt=["é", "a"])
    after = metrics(client, "encode_bytes_total", "encode_tokens_total")
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 5]


def test_what_a_completion_says_of_its_output(post):
    by_schema = {"json": {"type": "object"}}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    for asked, sampling in (
        ({}, {"max_tokens": 16}),
        ({"max_tokens": None, "logprobs": 2}, {"max_tokens": 16, "logprobs": 2}),
        ({"logprobs": 0}, {"max_tokens": 16, "logprobs": 0}),
        ({"echo": True, "max_tokens": 0}, {"max_tokens": 1}),
        ({"echo": True, "logprobs": 1}, {"max_tokens": 16, "logprobs": 1, "prompt_logprobs": 1}),
        ({"response_format": schema}, {"max_tokens": 16, "structured_outputs": by_schema}),
        # Fields of a chat completion mean nothing in a completion.
        ({"max_completion_tokens": 3, "top_logprobs": 3}, {"max_tokens": 16}),
    ):
        [answer] = post(COMPLETIONS, prompt="a", **asked)
        assert answer["sampling_params"] == sampling, asked
    streaming = {"stream": True, "stream_options": {"include_usage": True}, "priority": 3}
    [answer] = post(COMPLETIONS, prompt="a", **streaming)
    assert answer.items() >= streaming.items()


def test_offsets_of_a_completion(post):
    [answer] = post(COMPLETIONS, prompt="aé", return_token_offsets=True, tokenizer="around")
    assert answer["token_ids"] == [256, 97, 0xC3, 0xA9, 257]
    assert answer["token_offsets"] == [[0, 0], [0, 1], [1, 2], [1, 2], [0, 0]]
    cut = {"truncate_prompt_tokens": 3, "return_token_offsets": True, "tokenizer": "around"}
    [answer] = post(COMPLETIONS, prompt="abc", **cut)
    assert answer["token_offsets"] == [[0, 0], [2, 3], [0, 0]]
    [answer] = post(COMPLETIONS, prompt=[97], return_token_offsets=True)
    assert answer["token_offsets"] is None


def test_a_prompt_is_cut_as_by_hugging_face(post, refused, around, tmp_path):
    Tokenizer.from_spec(around).save(tmp_path / "tokenizer.json")
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "abcdef"
    for limit in range(2, 10):
        reference.enable_truncation(limit, direction="left")  # vLLM's, whatever a folder says
        asked = {"prompt": text, "truncate_prompt_tokens": limit, "tokenizer": "around"}
        assert ids_of(post(COMPLETIONS, **asked)) == [reference.encode(text).ids], limit
    asked = {"prompt": text, "truncate_prompt_tokens": 1, "tokenizer": "around"}
    assert refused(COMPLETIONS, **asked)[1] == "/truncate_prompt_tokens"


def test_a_side_cuts_all_tokens(post, refused):
    whole = [256, *b"abcdef", 257]
    for limit in (1, 3, 8, 9):
        asked = {"prompt": "abcdef", "tokenizer": "around", "truncate_prompt_tokens": limit}
        right = post(COMPLETIONS, **asked, truncation_side="right")
        left = post(COMPLETIONS, **asked, truncation_side="left")
        assert (ids_of(right), ids_of(left)) == ([whole[:limit]], [whole[-limit:]])
    given = {"truncate_prompt_tokens": 2, "truncation_side": "left"}
    assert ids_of(post(COMPLETIONS, prompt=[[97, 98, 99], [97]], **given)) == [[98, 99], [97]]
    chat = post(CHAT, messages=HELLO, **given)
    assert chat["token_ids"] == HELLO_IDS[-2:]
    assert post(CHAT, messages=HELLO, truncate_prompt_tokens=5)["token_ids"] == HELLO_IDS[-5:]
    assert post(CHAT, messages=HELLO, truncation_side="left")["token_ids"] == HELLO_IDS
    assert ids_of(post(COMPLETIONS, prompt="abc", truncate_prompt_tokens="2")) == [[257, 99]]
    for wrong in (-2, 1.5, "x"):
        found = refused(COMPLETIONS, prompt="a", truncate_prompt_tokens=wrong)
        assert found == ("invalid_request", "/truncate_prompt_tokens")
    assert refused(COMPLETIONS, prompt="a", truncation_side="middle")[1] == "/truncation_side"
    assert refused(COMPLETIONS, prompt="ab", truncate_prompt_tokens=0, truncation_side="left") == (
        "invalid_request",
        "/prompt",
    )


def test_the_length_of_the_model_limits_prompt_and_output(post, refused):
    short = {"tokenizer": "short"}
    [answer] = post(COMPLETIONS, prompt="a" * 30, max_tokens=40, **short)
    assert answer["sampling_params"]["max_tokens"] == LENGTH - 32
    assert post(CHAT, messages=HELLO, **short)["sampling_params"] == {
        "max_tokens": LENGTH - len(HELLO_IDS)
    }
    for path, body, place in (
        (COMPLETIONS, {"prompt": ["a", "a" * 50]}, "/prompt/1"),
        (COMPLETIONS, {"prompt": [97] * 40}, "/prompt"),
        (CHAT, {"messages": say("a" * 50)}, "/messages"),
        (MESSAGES, {"messages": say("a" * 50), "max_tokens": 9}, "/messages"),
        (RESPONSES, {"input": "a" * 50}, "/input"),
    ):
        assert refused(path, **body, **short) == ("invalid_request", place)
    cut = {"truncate_prompt_tokens": -1, **short}
    [answer] = post(COMPLETIONS, prompt=[97] * 50, **cut)
    assert (len(answer["token_ids"]), answer["sampling_params"]) == (LENGTH - 1, {"max_tokens": 1})
    for path, body, name in (
        (COMPLETIONS, {"prompt": "a"}, "max_tokens"),
        (CHAT, {"messages": HELLO}, "max_completion_tokens"),
        (MESSAGES, {"messages": HELLO}, "max_tokens"),
        (RESPONSES, {"input": "a"}, "max_output_tokens"),
    ):
        for wrong in (0, LENGTH + 1, 1.5):
            asked = {**body, **short, name: wrong}
            assert refused(path, **asked) == ("invalid_request", f"/{name}")
    asked = {"prompt": [97] * 30, "max_tokens": 40, **short}
    assert refused(COMPLETIONS, **asked, min_tokens=11)[1] == "/min_tokens"
    assert len(post(RESPONSES, input="a" * 50, truncation="auto", **short)["token_ids"]) == 39
    for path, body in ((COMPLETIONS, {"prompt": "a"}), (CHAT, {"messages": HELLO})):
        for asked in ({"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": 41, **short}):
            assert refused(path, **body, **asked)[1] == "/truncate_prompt_tokens"
    assert refused(RESPONSES, input="a", truncation="auto") == ("invalid_request", "/truncation")


def test_messages_of_anthropic(post, refused):
    asked = {
        "messages": HELLO,
        "system": "Be brief",
        "max_tokens": 4000,
        "stop_sequences": ["x"],
        "top_k": 4,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "tool_choice": {"type": "auto"},
    }
    answer = post(MESSAGES, **asked)
    whole = chatml_ids(("system", "Be brief"), ("user", "Hello"), prompt=True)
    assert answer["token_ids"] == whole
    assert answer["request_id"].startswith("chatcmpl-")
    assert answer["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert answer["sampling_params"] == {
        "top_k": 4,
        "stop": ["x"],
        "thinking_token_budget": 2000,
        "structured_outputs": {"json": {"type": "object"}},
        "max_tokens": 4000,
    }
    count = post("/v1/messages/count_tokens", messages=HELLO, system="Be brief")
    assert count == {"input_tokens": len(whole)}
    for wrong, place in (
        ({"tool_choice": {"type": "any"}}, "/tool_choice"),
        ({"output_config": {"format": {"type": "text"}}}, "/output_config/format/type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "/output_config/format/schema"),
        ({"max_tokens": 2000}, "/thinking/budget_tokens"),
        ({"mcp_servers": [{}]}, "/mcp_servers"),
    ):
        assert refused(MESSAGES, **{**asked, **wrong}) == ("invalid_request", place), wrong


def test_input_of_responses(post, refused):
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    asked = {
        "input": "Hello",
        "max_output_tokens": 9,
        "text": {"format": schema, "verbosity": "low"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "temperature": 0.1,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "include_reasoning": False,
    }
    answer = post(RESPONSES, **asked)
    assert answer["token_ids"] == HELLO_IDS
    assert answer["request_id"].startswith("resp_")
    assert (answer["stream_options"], answer["reasoning_ended"]) == (None, None)
    assert answer["sampling_params"] == {
        "temperature": 0.1,
        "logprobs": 2,
        "structured_outputs": {"json": {"type": "object"}},
        "max_tokens": 9,
    }
    quiet = post(RESPONSES, input="Hello", reasoning={"effort": "none"}, top_logprobs=2)
    assert quiet["token_ids"] == [*HELLO_IDS, *b"<think></think>"]
    assert quiet["sampling_params"] == {}
    for wrong, place in (
        ({"tool_choice": "required"}, "/tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "/text/format/schema"),
        ({"structured_outputs": {"regex": "a"}}, "/structured_outputs"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "/input/0"),
    ):
        assert refused(RESPONSES, **{**asked, **wrong}) == ("invalid_request", place), wrong


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0}, {"n": "x"}, {"n": 1.5}, {"seed": "1.5"}, {"seed": 2**63},
        {"thinking_token_budget": "5"}, {"prompt_logprobs": "1"}, {"ignore_eos": 2}, {"stop": [1]},
        {"stop_token_ids": ["a"]}, {"logit_bias": {"5": "x"}}, {"top_k": 1.5},
        {"temperature": -0.1}, {"temperature": "2.1"}, {"top_p": 0}, {"top_k": -2}, {"min_p": 1.1},
        {"presence_penalty": 2.1}, {"frequency_penalty": -2.1}, {"repetition_penalty": 0},
        {"min_tokens": 10, "max_tokens": 5}, {"top_logprobs": 3},
    ],
)  # fmt: skip
def test_a_value_that_vllm_does_not_take(refused, wrong):
    assert refused(CHAT, messages=HELLO, **wrong) == ("invalid_request", f"/{next(iter(wrong))}")


def test_values_are_read_as_by_vllm(post):
    given = {
        "max_tokens": 100.0, "n": "2", "seed": " 7 ", "top_k": True, "temperature": "0.5",
        "ignore_eos": "yes", "stop_token_ids": [5.0, "6"], "logit_bias": {"5": "1"}, "logprobs": 1,
    }  # fmt: skip
    answer = post(CHAT, messages=HELLO, add_generation_prompt="off", **given)
    assert answer["token_ids"] == HELLO_IDS[: len(answer["token_ids"])] != HELLO_IDS
    assert answer["sampling_params"] == {
        "max_tokens": 100, "n": 2, "seed": 7, "top_k": 1, "temperature": 0.5, "ignore_eos": True,
        "stop_token_ids": [5, 6], "logit_bias": {"5": 1.0}, "logprobs": 0,
    }  # fmt: skip
    assert type(answer["sampling_params"]["max_tokens"]) is int
    [answer] = post(COMPLETIONS, prompt="a", logprobs=1.0)
    assert answer["sampling_params"]["logprobs"] == 1


@pytest.mark.parametrize(
    ("path", "body", "prefix"),
    [
        (COMPLETIONS, {"prompt": "a"}, "cmpl-"),
        (CHAT, {"messages": HELLO}, "chatcmpl-"),
        (MESSAGES, {"messages": HELLO, "max_tokens": 9}, "chatcmpl-"),
        (RESPONSES, {"input": "a"}, "resp_"),
    ],
)
def test_a_rendered_request_is_named_by_the_header(client, path, body, prefix):
    def name(given=None, **fields):
        headers = {} if given is None else {"X-Request-Id": given}
        response = client.post(path, json={**body, **fields}, headers=headers)
        found = response.json()
        found = found[0] if isinstance(found, list) else found
        return found["request_id"], response.headers["x-request-id"]

    assert name("r-1") == (f"{prefix}r-1", "r-1")
    new, own = name()
    assert new == f"{prefix}{own}"
    assert name("two words")[0] != f"{prefix}two words"
    if path in (COMPLETIONS, CHAT):
        assert name(request_id="r2")[0] == f"{prefix}r2"
        assert name("r-1", request_id="r2")[0] == f"{prefix}r-1"
    if path == RESPONSES:
        assert name("r-1", request_id="r2")[0] == "r2"


def test_several_prompts_have_an_index_in_their_names(client):
    named = client.post(COMPLETIONS, json={"prompt": ["a", "b"]}, headers={"X-Request-Id": "r"})
    assert [request["request_id"] for request in named.json()] == ["cmpl-r-0", "cmpl-r-1"]


def test_fields_are_not_repeated_without_limit(client, shared_store):
    with serve(shared_store, default="rendered", max_response_bytes=10_000) as client:
        body = {"prompt": ["a"] * 30, "stop": ["x" * 500]}
        problem(client.post(COMPLETIONS, json=body), 413, "requests_too_large")
        assert client.post(COMPLETIONS, json={**body, "prompt": ["a"] * 3}).status_code == 200


def test_a_prefix_renders_the_request_of_one_server(client, post, refused):
    whole = post(CHAT, messages=HELLO)
    vllm = post("/as/vllm" + CHAT, messages=HELLO)
    assert whole.keys() - vllm.keys() == {"input_ids"}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    asked = {"max_tokens": 5, "seed": 3, "top_k": 2, "stop": ["x"], "response_format": schema}
    sampling = {"max_new_tokens": 5, "sampling_seed": 3, "top_k": 2, "stop": ["x"]}
    sampling["json_schema"] = '{"type": "object"}'
    answer = client.post(
        "/as/sglang" + CHAT,
        json={"messages": HELLO, "logprobs": True, "top_logprobs": 2, "stream": True, **asked},
        headers={"X-Request-Id": "r1"},
    )
    assert answer.json() == {
        "rid": "chatcmpl-r1", "input_ids": HELLO_IDS, "sampling_params": sampling,
        "return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": 2,
        "return_hidden_states": False, "stream": True,
    }  # fmt: skip
    for constraint, found in (
        ({"json_object": True}, {"json_schema": '{"type": "object"}'}),
        ({"regex": "a+", "json": None}, {"regex": "a+"}),
        ({"grammar": "a"}, {"ebnf": "a"}),
    ):
        answer = post("/as/sglang" + CHAT, messages=HELLO, structured_outputs=constraint)
        assert answer["sampling_params"] == found
    # SGLang's own fields.
    for own, found in (
        ({"regex": "a+"}, {"regex": "a+"}),
        ({"ebnf": "a", "stop_regex": "b|c"}, {"ebnf": "a", "stop_regex": "b|c"}),
        ({"json_schema": "{}", "stop_regex": ["b"]}, {"json_schema": "{}", "stop_regex": ["b"]}),
        ({"regex": "", "ebnf": None}, {}),
    ):
        answer = post("/as/sglang" + CHAT, messages=HELLO, **own)
        assert answer["sampling_params"] == found
        [answer] = post("/as/sglang" + COMPLETIONS, prompt="a", **own)
        assert answer["sampling_params"] == {"max_new_tokens": 16, **found}
        for name, value in own.items():
            if value:
                assert refused(CHAT, messages=HELLO, **{name: value})[1] == f"/{name}"
    [one] = post("/as/sglang" + COMPLETIONS, prompt=[97])
    assert (one["input_ids"], one["sampling_params"]) == ([97], {"max_new_tokens": 16})
    # As SGLang's completions.
    [one] = post("/as/sglang" + COMPLETIONS, prompt="a", echo=True, logprobs=1, top_k=0)
    assert (one["logprob_start_len"], one["top_logprobs_num"]) == (0, 1)
    assert one["sampling_params"] == {"max_new_tokens": 16}
    for wrong, place in (
        ({"bad_words": ["x"]}, "/bad_words"),
        ({"vllm_xargs": {"a": 1}}, "/vllm_xargs"),
        ({"prompt_logprobs": 2}, "/prompt_logprobs"),
        ({"structured_outputs": {"choice": ["a"]}}, "/structured_outputs/choice"),
        ({"structured_outputs": {"regex": "a"}, "regex": "b"}, "/regex"),
        ({"regex": "a", "ebnf": "b"}, "/structured_outputs"),
        ({"stop_regex": 1}, "/stop_regex"),
    ):
        assert refused("/as/sglang" + CHAT, messages=HELLO, **wrong)[1] == place
