"""Routes with a conversation, in requests and responses as their own servers document them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from tests.tokenizer_service.chats import (
    CHATML,
    END,
    END_ID,
    SPEC,
    START,
    START_ID,
    TEMPLATES,
    chatml_ids,
    say,
    with_templates,
)
from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.routes.exchanges import metrics, problem
from tokenizer_client.schemas.chat import ChatRenderRequest, CountTokensRequest, InputTokensRequest
from tokenizer_client.schemas.dialects import MessagesRequest
from tokenizer_core import TokenizerSpec
from tokenizer_core.chat import renderer
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_service.access.limits import TurnLimit
from tokenizer_service.handlers.known_fields import EXTRA_ARGUMENTS, NEUTRAL, REFUSED

pytestmark = pytest.mark.usefixtures("rendering_here")

HELLO = [{"role": "user", "content": "Hello"}]
HELLO_IDS = chatml_ids(("user", "Hello"), prompt=True)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ROUTES = (
    "/chat/encode",
    "/tokenize",
    "/chat/completions/render",
    "/messages/count_tokens",
    "/responses/input_tokens",
)


@pytest.fixture(scope="module")
def client(shared_store):
    """A service whose active tokenizer has templates; `starter` has none."""
    shared_store.publish(with_templates(SPEC), name="chat")
    with serve(shared_store, default="chat") as client:
        yield client


def test_encode(post, client):
    messages = say("Hi", "Ho")
    answer = post("/chat/encode", messages=messages, **{"return": ["ids", "text", "mask", "spans"]})
    ids = chatml_ids(("user", "Hi"), ("assistant", "Ho"))
    assert (answer["tokens"], answer["count"]) == (ids, len(ids))
    assert answer["text"] == f"{START}user\nHi{END}\n{START}assistant\nHo{END}\n"
    at = ids.index(ord("H"), 10)
    assert answer["mask"] == [int(at <= index < at + 3) for index in range(len(ids))]
    assert answer["turns"] == [{"message": 1, "tokens": [at, at + 3], "problem": None}]
    assert answer["spans"] == [
        {"role": "user", "tokens": [6, 8]},
        {"role": "assistant", "tokens": [at, at + 2]},
    ]
    digest = sha256(CHATML.encode()).hexdigest()
    assert answer["chat_template"] == {"name": "default", "sha256": digest}
    options = {"add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False}}
    longer = post("/chat/encode", messages=HELLO, tools=[TOOL], **options)
    # The template writes no line break after the tools.
    tools = [START_ID, *f"system\n{json.dumps(TOOL)}".encode(), END_ID, *b"\n"]
    assert longer["tokens"] == [*tools, *HELLO_IDS, *b"<think></think>"]
    last = post("/chat/encode", messages=messages, continue_final_message=True)
    assert last["tokens"] == ids[:-2]
    bare = client.post("/v1/chat/encode", json={"messages": messages})
    assert set(bare.json()) == {"tokens", "count", "chat_template", "tokenizer"}
    assert bare.headers["chat-template-digest"] == digest
    assert bare.headers["tokenizer-version"].startswith("chat@")


def test_the_form_of_messages(post, refused):
    parts = user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    call = {"function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [*parts, {"role": "assistant", "content": "", "tool_calls": [call]}]
    written = [*chatml_ids(("user", "a\nb")), *chatml_ids(("assistant", 'f{"a": 1}'))]

    def ids(form, given=messages):
        return post("/chat/encode", messages=given, messages_form=form)["tokens"]

    assert ids("decoded") == ids("vllm") == written
    raw = [
        *chatml_ids(("user", str(parts[0]["content"]))),
        *chatml_ids(("assistant", 'f"{\\"a\\":1}"')),
    ]
    assert ids("raw") == raw == post("/chat/encode", messages=messages)["tokens"]
    image = [*HELLO, *user([{"type": "image"}])]
    for form, place in (("decoded", "/messages/1/content/0"), ("vllm", "/messages/1/content/0")):
        answer = refused("/chat/encode", messages=image, messages_form=form)
        assert answer == ("invalid_request", place)
    tools = refused("/chat/encode", messages=HELLO, tools=[{"type": "web"}], messages_form="vllm")
    assert tools == ("invalid_request", "/tools/0/type")
    developers = [*HELLO, {"role": "developer", "content": "Be brief"}, *user("a")]
    assert ids("vllm", developers) == chatml_ids(
        ("system", "Be brief"), ("user", "Hello"), ("user", "a")
    )
    assert refused("/chat/encode", messages=developers) == ("chat_template_failed", "/messages/1")


def test_limit_binary_form_and_loss(client, post, refused):
    def status(accept="*/*", **options):
        body = {"messages": HELLO, **options}
        return client.post("/chat/encode", json=body, headers={"Accept": accept}).status_code

    ids = chatml_ids(("user", "Hello"))
    octets = "application/octet-stream; dtype=u16"
    answer = client.post("/chat/encode", json={"messages": HELLO}, headers={"Accept": octets})
    assert answer.headers["content-type"] == octets
    assert np.frombuffer(answer.content, "<u2").tolist() == ids
    assert "chat-template-digest" in answer.headers
    assert status(octets, **{"return": ["ids", "text"]}) == 422
    assert status("text/html") == 406
    for path in ("/encode", "/chat/encode"):  # of several faults, the first of one order
        assert client.post(path, params={"a": "b"}, content="x").status_code == 422
    assert status(max_tokens=len(ids)) == 200
    over = client.post("/chat/encode", json={"messages": HELLO, "max_tokens": len(ids) - 1})
    assert (over.status_code, over.json()["actual"]) == (413, len(ids))
    # Tokens with loss: b, c and the end.
    asked = {"messages": say("a", "bc"), "return": ["mask", "text"]}
    by_tags = post("/chat/encode", chat_template="tagged", **asked)
    assert by_tags == post("/chat/encode", chat_template="tagged", loss_rule="template", **asked)
    assert sum(by_tags["mask"]) == sum(post("/chat/encode", loss_rule="role", **asked)["mask"]) == 3
    for options in (
        {"loss_rule": "template"},
        {"turn_ends": ["<none>"]},
        {"chat_template": "tagged", "loss_rule": "role"},  # it ignores add_generation_prompt
    ):
        assert refused("/chat/encode", **options, **asked) == ("invalid_chat", "/loss_rule")


def test_tokenize_as_vllm(post):
    def tokenize(messages=HELLO, **options):
        return post("/v1/tokenize", messages=messages, **options)

    whole = tokenize(model="chat")
    n_tokens = len(HELLO_IDS)
    fixed = {"count": n_tokens, "max_model_len": -1, "token_strs": None}
    assert whole == {"tokens": HELLO_IDS, **fixed}
    named = tokenize(add_generation_prompt=False, tools=None, return_token_strs=True)
    assert named["tokens"] == chatml_ids(("user", "Hello"))
    assert named["token_strs"][:2] == [START, "u"]
    assert tokenize(add_special_tokens=True)["tokens"] == [END_ID, *HELLO_IDS]
    kwargs = tokenize(chat_template_kwargs={"enable_thinking": False})
    assert kwargs["tokens"] == [*HELLO_IDS, *b"<think></think>"]
    last = tokenize(say("a", "b"), continue_final_message=True)
    assert last["tokens"] == chatml_ids(("user", "a"), ("assistant", "b"))[:-2]
    parts = user([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])
    assert tokenize(parts) == tokenize(user("a\nb"))
    for messages, text in ((parts, b"user:[a][b]"), (HELLO, b"user:[Hello]")):
        assert bytes(tokenize(messages, chat_template="parts")["tokens"][1:-1]) == text


def test_count_and_text_of_a_chat_as_llama_cpp(post, refused):
    def check(expected, **asked):
        def n_tokens(**options):
            answer = post("/v1/chat/completions/input_tokens", **asked, **options)
            return answer["object"], answer["input_tokens"]

        # Without the id that the post-processor adds and no template writes.
        assert n_tokens() == ("response.input_tokens", len(expected) + 1)
        assert n_tokens(add_special_tokens=False)[1] == len(expected)
        text = post("/apply-template", **asked)["prompt"]
        written = text.encode().replace(START.encode(), b"\x01").replace(END.encode(), b"\x02")
        assert list(written) == [{START_ID: 1, END_ID: 2}.get(id_, id_) for id_ in expected]

    check(HELLO_IDS, messages=HELLO, model="chat", temperature=0.5, n_predict=-1)
    check([*HELLO_IDS, *b"<think></think>"], messages=HELLO, reasoning_effort="none")
    check(chatml_ids(("user", "Hello")), messages=HELLO, add_generation_prompt=False)
    begun = chatml_ids(("user", "a"), ("assistant", "b"))
    check(begun[:-2], messages=say("a", "b"))
    check(begun, messages=say("a", "b"), add_generation_prompt=False)
    prompted = chatml_ids(("user", "a"), ("assistant", "b"), prompt=True)
    check(begun[:-2], messages=say("a", "b"), add_generation_prompt=True)
    check(prompted, messages=say("a", "b"), continue_final_message=False)
    calling = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}
    called = chatml_ids(("user", "a"), ("assistant", "f{}"), prompt=True)
    check(called, messages=[*say("a"), calling])
    for path in ("/chat/completions/input_tokens", "/apply-template"):
        assert refused(path, messages=user([{"type": "image_url"}]))[1] == "/messages/0/content/0"
        assert refused(path, messages=HELLO, truncate_prompt_tokens=4)[0] == "invalid_request"
        assert refused(path, messages=HELLO, tool=[TOOL]) == ("invalid_request", "/tool")


def test_begin_token_and_thinking_as_in_llama_cpp(shared_store, client, post):
    spec = replace(SPEC, prefix_ids=(START_ID,), suffix_ids=(END_ID,))
    thinking = "{{ messages[0].content }}{% if enable_thinking %}!{% endif %}"
    templates = ChatTemplates({"parts": TEMPLATES["parts"], "thinking": thinking})
    shared_store.publish(spec.with_chat(templates), name="around")

    def ask(path, **asked):
        return post(path, tokenizer="around", **asked)

    asked = {"messages": HELLO, "chat_template": "parts"}
    prompt = ask("/apply-template", **asked)["prompt"]
    assert prompt == "user:[Hello]"
    ids = ask("/as/llama.cpp/tokenize", content=prompt, add_special=True)["tokens"]
    assert ids == [START_ID, *b"user:[Hello]", END_ID]
    assert ask("/chat/completions/input_tokens", **asked)["input_tokens"] == len(ids)
    for options, prompt in (
        ({}, "Hello!"),
        ({"reasoning_effort": "none"}, "Hello"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "Hello"),
    ):
        asked = {"messages": HELLO, "chat_template": "thinking", **options}
        assert ask("/apply-template", **asked)["prompt"] == prompt


def test_count_tokens_as_gemini(client, post, refused):
    path = "/v1/models/chat:countTokens"

    def count(expected, **asked):
        n_tokens = len(expected)
        details = [{"modality": "TEXT", "tokenCount": n_tokens}]
        answer = {"totalTokens": n_tokens, "promptTokensDetails": details}
        assert post(path, **asked) == answer
        assert post("/v1beta/models/chat:countTokens", **asked) == answer

    hello = [{"role": "user", "parts": [{"text": "Hello"}]}]
    count(HELLO_IDS, contents=hello)
    count(HELLO_IDS, contents=[{"parts": [{"text": "Hello"}]}])
    whole = {"contents": hello, "systemInstruction": {"parts": [{"text": "Be"}, {"text": "b"}]}}
    system = ("system", "Be\nb")
    with_system = chatml_ids(system, ("user", "Hello"), prompt=True)
    asked = {**whole, "model": "models/chat", "generationConfig": {"temperature": 1}}
    count(with_system, generateContentRequest=asked)
    turns = [
        *hello,
        {
            "role": "model",
            "parts": [
                {"text": "Hm", "thought": True, "thoughtSignature": "x"},
                {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"b": "é"}}}]},
    ]
    called = chatml_ids(
        ("user", "Hello"),
        ("assistant", '<think>Hm</think>f{"a": 1}'),
        ("tool", '{"b": "é"}'),
        prompt=True,
    )
    count(called, contents=turns)
    declared = {"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}}
    tools = [{"functionDeclarations": [declared]}]
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    written = json.dumps({"type": "function", "function": function})
    with_tools = [START_ID, *f"system\n{written}".encode(), END_ID, *b"\n", *HELLO_IDS]
    count(with_tools, generateContentRequest={"contents": hello, "tools": tools})
    image = {"inlineData": {"mimeType": "image/png", "data": ""}}
    call = {"name": "f"}
    at = "/contents/0/parts/0"

    def of(part, **role):
        return {"contents": [{**role, "parts": [part]}]}

    for body, where in (
        ({}, "/contents"),
        ({"contents": []}, "/contents"),
        ({"contents": hello, "generateContentRequest": whole}, "/contents"),
        (of(image, role="user"), at),
        (of({}, role="system"), "/contents/0/role"),
        (of({}, role="user"), f"{at}/text"),
        (of({"functionCall": {**call, "args": []}}, role="model"), f"{at}/functionCall/args"),
        (of({"functionResponse": call}), f"{at}/functionResponse/response"),
        ({"contents": hello, "tools": tools}, "/tools"),
        ({"contents": hello, "content": hello}, "/content"),
    ):
        assert refused(path, **body) == ("invalid_request", where), body
    for fields, where in (
        ({"cachedContent": "c"}, "cachedContent"),
        ({"tools": [{"googleSearch": {"a": 1}}]}, "tools/0/googleSearch"),
        ({"tools": [{"functionDeclarations": [call, {}]}]}, "tools/0/functionDeclarations/1/name"),
    ):
        found = refused(path, generateContentRequest={**whole, **fields})
        assert found == ("invalid_request", f"/generateContentRequest/{where}")
    assert client.post("/v1/models/nope:countTokens", json={"contents": hello}).status_code == 404
    assert client.post("/v1/models/chat", json={"contents": hello}).status_code == 405


def test_render_as_vllm(post):
    def render(messages=HELLO, **options):
        return post("/v1/chat/completions/render", messages=messages, **options)

    chosen = {"temperature": 0.5, "stop": ["x"]}
    streaming = {"stream": True, "stream_options": {"include_usage": True}, "cache_salt": "salt"}
    limits = {"max_completion_tokens": 8, "max_tokens": 9, "logprobs": True, "top_logprobs": 3}
    others = {"user": "someone", "tool_choice": "none", "return_token_ids": True}
    others["include_reasoning"] = False
    answer = render(model="chat", **chosen, **streaming, **limits, **others)
    assert answer.pop("request_id").startswith("chatcmpl-")
    assert answer.pop("input_ids") == HELLO_IDS
    assert answer == {
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "return_token_ids": True,
        "reasoning_ended": True,
        "token_ids": HELLO_IDS,
        "token_offsets": None,
        "features": None,
        "sampling_params": {**chosen, "logprobs": 3, "max_tokens": 8},
        "model": "chat",
        **streaming,
        "priority": 0,
    }
    offsets = render(user("é"), return_token_offsets=True, add_special_tokens=True)
    assert offsets["token_offsets"][:2] == [[0, 0], [0, len(START)]]
    at = len(f"{START}user\n")
    assert [at, at + 1] in offsets["token_offsets"]
    assert len(offsets["token_offsets"]) == len(offsets["token_ids"])
    # The effort is a variable of the template; a given one goes before it.
    assert render(reasoning_effort="none")["token_ids"] == [*HELLO_IDS, *b"<think></think>"]
    assert render(reasoning_effort="low")["token_ids"] == HELLO_IDS
    given = {"enable_thinking": True}
    chosen = render(reasoning_effort="none", chat_template_kwargs=given)
    assert chosen["token_ids"] == HELLO_IDS


def test_render_carries_what_constrains_the_output(post, refused):
    path = "/v1/chat/completions/render"
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    by_schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
    by_object, moved = {"type": "json_object"}, {"do_remote_prefill": True}
    for asked, sampling in (
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": by_object}, {"structured_outputs": {"json_object": True}}),
        ({"response_format": by_schema}, {"structured_outputs": {"json": schema}}),
        ({"response_format": tag}, {"structured_outputs": {"structural_tag": json.dumps(tag)}}),
        ({"structured_outputs": {"regex": "a+"}}, {"structured_outputs": {"regex": "a+"}}),
        (
            {"structured_outputs": {"whitespace_pattern": " "}, "response_format": by_schema},
            {"structured_outputs": {"whitespace_pattern": " ", "json": schema}},
        ),
        ({"vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"kv_transfer_params": moved, "vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"ec_transfer_params": moved}, {}),
        ({"thinking_token_budget": 5, "stop": ["x"]}, {"thinking_token_budget": 5, "stop": ["x"]}),
        ({"tool_choice": "auto", "use_beam_search": False}, {}),
    ):
        answer = post(path, messages=HELLO, request_id="r1", **asked)
        assert answer["sampling_params"] == sampling, asked
        for name in EXTRA_ARGUMENTS:
            assert answer[name] == asked.get(name)
        assert (answer["token_ids"], answer["request_id"]) == (HELLO_IDS, "chatcmpl-r1")
    for wrong, place in (
        ({"response_format": {"type": "grammar"}}, "/response_format/type"),
        ({"response_format": {"type": "json_schema"}}, "/response_format/json_schema/schema"),
        ({"response_format": by_schema, "structured_outputs": {"regex": "a"}}, None),
        ({"structured_outputs": {"choice": ["a"], "regex": "a"}}, "/structured_outputs"),
        ({"vllm_xargs": [1]}, "/vllm_xargs"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "/kv_transfer_params/prompt_token_ids"),
        ({"tool_choice": "required", "tools": [TOOL]}, "/tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "/tool_choice"),
        ({"kv_transfer_params": "x"}, "/kv_transfer_params"),
        ({"guided_json": schema}, "/guided_json"),
        ({"structured_output": {"regex": "a+"}}, "/structured_output"),
        ({"response_formt": {"type": "json_object"}}, "/response_formt"),
        ({"prompt_token_ids": [1]}, "/prompt_token_ids"),
    ):
        found = refused(path, messages=HELLO, **wrong)
        assert found == ("invalid_request", place or "/structured_outputs"), wrong


def test_a_field_has_one_use():
    for model, neutral in NEUTRAL.items():
        names = [*model.model_fields, *neutral.carried, *neutral.accepted]
        assert len(names) == len(set(names))
        assert not REFUSED.keys() & {*neutral.carried, *neutral.accepted}


@pytest.mark.row(45)
@pytest.mark.parametrize(
    ("path", "model", "done", "others"),
    [
        (ROUTES[1], MessagesRequest, "tools model continue_final_message", "documents system"),
        (ROUTES[2], ChatRenderRequest, "tools documents reasoning_effort", "functions thinking"),
        (ROUTES[3], CountTokensRequest, "tools system", "documents prompt truncation_side"),
        (ROUTES[4], InputTokensRequest, "tools instructions tokenizer", "conversation messages"),
    ],
)
def test_a_field_that_changes_the_prompt_is_done_or_refused_by_name(
    client, refused, path, model, done, others
):
    body = {"input": "Hello"} if path == ROUTES[4] else {"messages": HELLO}
    refused_here = f"{others} mcp_servers".split()
    for name in refused_here:
        assert refused(path, **body, **{name: "x"}) == ("invalid_request", f"/{name}")
    for name in [*done.split(), *refused_here]:
        for near in (name[:-1], name[1:] + "z"):
            assert refused(path, **body, **{near: [TOOL]}) == ("invalid_request", f"/{near}")
    plain = client.post(path, json=body)
    known = (*NEUTRAL[model].accepted, "lora_path", "samplers", "a b\n,é")
    answer = client.post(path, json={**body, **dict.fromkeys(known, "none"), "mcp_servers": []})
    assert answer.status_code == 200, answer.text
    assert answer.content.endswith(plain.content[-30:])
    assert answer.headers["Ignored-Fields"] == "lora_path, samplers, a%20b%0A%2C%C3%A9"
    assert "Ignored-Fields" not in plain.headers
    many = {f"unknown_{number}": 1 for number in range(33)}
    assert refused(path, **body, **many)[0] == "invalid_request"


def test_count_tokens_as_anthropic(post, refused):
    path = "/v1/messages/count_tokens"
    answer = post(path, messages=HELLO, max_tokens=100)
    assert answer == {"input_tokens": len(HELLO_IDS)}
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}]
    with_system = chatml_ids(("system", "Be brief"), ("user", "Hello"), prompt=True)
    for system in (parts, "Be brief"):
        assert post(path, messages=HELLO, system=system)["input_tokens"] == len(with_system)
    prefilled = post(path, messages=say("a", "The answer is ("))
    begun = chatml_ids(("user", "a"), ("assistant", "The answer is ("))[:-2]
    assert prefilled["input_tokens"] == len(begun)
    effort = {"output_config": {"effort": "none"}}  # a variable of the template
    thought = len([*HELLO_IDS, *b"<think></think>"])
    assert post(path, messages=HELLO, **effort)["input_tokens"] == thought
    off = {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}
    assert post(path, messages=HELLO, **off)["input_tokens"] == thought
    for thinking in ({"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}):
        assert post(path, messages=HELLO, thinking=thinking) == {"input_tokens": len(HELLO_IDS)}
    assert refused(path, messages=HELLO, thinking={"type": "off"})[1] == "/thinking/type"
    # A template that reads the effort "none" as "max", and refuses a late system message.
    parts_only = {"chat_template": "parts", **off}
    assert post(path, messages=HELLO, **parts_only)["input_tokens"] == len("1user:[Hello]2")
    late = [*HELLO, {"role": "system", "content": parts}]
    merged = post(path, messages=late, system="Now. ", chat_template="parts")["input_tokens"]
    assert merged == len("1system:[Now. Be brief]21user:[Hello]2")
    in_place = chatml_ids(("user", "Hello"), ("system", "Be brief"), prompt=True)
    assert post(path, messages=late)["input_tokens"] == len(in_place)
    calling = [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "Let me see"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"city": "Rome"}},
    ]
    result = [
        {"type": "tool_result", "tool_use_id": "1", "content": "Sun"},
        {"type": "text", "text": "So?"},
    ]
    messages = [*HELLO, {"role": "assistant", "content": calling}, *user(result)]
    tool = {"name": "f", "description": "It.", "input_schema": {}, "strict": True}
    answer = post(path, messages=messages, tools=[tool])
    function = {"name": "f", "description": "It.", "parameters": {"type": "object"}, "strict": True}
    expected = chatml_ids(
        ("system", json.dumps({"type": "function", "function": function})),
        ("user", "Hello"),
        ("assistant", '<think>Hm</think>Let me seef{"city": "Rome"}'),
        ("tool", "Sun"),
        ("user", "So?"),
        prompt=True,
    )
    assert answer["input_tokens"] == len(expected)


def test_input_tokens_as_openai(post):
    path = "/v1/responses/input_tokens"
    answer = post(path, model=None, input="Hello")
    assert answer == {"object": "response.input_tokens", "input_tokens": len(HELLO_IDS)}
    assert post(path, input=HELLO) == answer
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "W?"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "Sun"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny"}]},
    ]
    counted = post(path, input=items, instructions="Be brief")
    expected = chatml_ids(
        ("system", "Be brief"),
        ("user", "W?"),
        ("assistant", '<think>Hm</think>f{"a": 1}'),
        ("tool", "Sun"),
        ("assistant", "Sunny"),
        prompt=True,
    )
    assert counted["input_tokens"] == len(expected)
    begun = {"type": "message", "role": "assistant", "content": "So", "status": "incomplete"}
    ids = chatml_ids(("user", "Hello"), ("assistant", "So"))[:-2]
    assert post(path, input=[*HELLO, begun])["input_tokens"] == len(ids)


def user(content):
    return [{"role": "user", "content": content}]


def test_content_without_text_is_refused_by_its_place(refused, client):
    anthropic, openai = ROUTES[3:]
    call = {"role": "assistant", "tool_calls": [{"function": 1}]}
    encrypted = {"type": "reasoning", "encrypted_content": "x"}
    wrong = [
        ("/tokenize", {"messages": [*HELLO, {"role": 1}]}, "/messages/1/role"),
        ("/tokenize", {"messages": HELLO, "tools": [{"type": "web"}]}, "/tools/0/type"),
        ("/tokenize", {"messages": [call]}, "/messages/0/tool_calls/0/function"),
        (anthropic, {"messages": HELLO, "tools": [{"type": "bash"}]}, "/tools/0/type"),
        (anthropic, {"messages": [{"role": "tool"}]}, "/messages/0/role"),
        (anthropic, {"messages": user([{"type": "image"}])}, "/messages/0/content/0"),
        (openai, {"input": [{"type": "mcp_call"}]}, "/input/0"),
        (openai, {"input": [encrypted]}, "/input/0/encrypted_content"),
        (openai, {"input": [{"type": "reasoning", "summary": [{}]}]}, "/input/0/summary/0/text"),
        (openai, {"input": []}, "/input"),
        (openai, {"input": "a", "previous_response_id": "r"}, "/previous_response_id"),
        # A union or a model has the place of its field, in words.
        (openai, {"input": 1}, "/input"),
        (anthropic, {"messages": HELLO, "system": [1]}, "/system"),
        (ROUTES[0], {"messages": HELLO, "continue_final_message": 1}, "/continue_final_message"),
    ]
    for path, body, place in wrong:
        assert refused(path, **body) == ("invalid_request", place), (path, body)
        assert "Input should" not in client.post(path, json=body).text
    secret = {"type": "s3cr3t"}
    for path, body in (
        ("/tokenize", {"messages": user([secret])}),
        (anthropic, {"messages": user([secret])}),
        (openai, {"input": [secret]}),
        ("/models/starter:countTokens", {"contents": [{"role": "user", "parts": [{"s3cr3t": 1}]}]}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 400
        assert "this type has no text" in answer.text
        assert "s3cr3t" not in answer.text


def test_a_failing_or_unknown_template_is_refused(refused, client):
    answer = client.post("/chat/encode", json={"messages": [{"role": "narrator"}]}).json()
    assert "no role narrator (line 5 of the template)" in answer["detail"]
    messages = [*HELLO, {"role": "narrator", "content": "x"}]
    for path in ROUTES[:3]:
        assert refused(path, messages=messages) == ("chat_template_failed", "/messages/1")
    counted = refused("/responses/input_tokens", instructions="a", input=messages)
    assert counted == ("chat_template_failed", "/input/1")
    broken = refused("/chat/encode", messages=HELLO, chat_template="broken")
    assert broken == ("chat_template_failed", "/messages")
    # A template is named and never sent.
    long = client.post("/chat/encode", json={"messages": HELLO, "chat_template": CHATML})
    problem(long, 422, "invalid_request")
    short = client.post("/chat/encode", json={"messages": HELLO, "chat_template": "{{ messages }}"})
    assert "default, parts" in problem(short, 422, "chat_template_missing")["detail"]
    assert "{{" not in short.text
    queries = [{}, {"tokenizer": "starter"}]
    shown = [client.get("/tokenizer_info", params=query).json() for query in queries]
    assert [info["chat_template"] for info in shown] == [CHATML, None]


def test_every_route_refuses_what_it_cannot_encode(refused, client, shared_store):
    vocab = {byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], [AddedToken("ab", 256)])
    shared_store.publish(with_templates(spec), name="merged")
    answer = refused("/chat/encode", messages=say("cab"), tokenizer="merged")
    assert answer == ("special_token_reached", "/messages")
    deep = "x"
    for _ in range(65):
        deep = [deep]
    both = {"add_generation_prompt": True, "continue_final_message": True}
    for path in ROUTES[:3]:
        assert refused(path, messages=HELLO, **both)[0] == "invalid_chat"
    kwargs = {"messages": []}
    assert refused("/chat/encode", messages=HELLO, chat_template_kwargs=kwargs)[0] == "invalid_chat"
    for path in ROUTES:
        key = "input" if "responses" in path else "messages"
        body = {key: HELLO}
        assert refused(path, **{key: user(deep)})[0] == "nested_too_deep"
        surrogate = refused(path, **{key: user("\ud800")})
        assert surrogate == ("lone_surrogate", f"/{key}/0/content")
        assert refused(path, **body, tokenizer="starter")[0] == "chat_template_missing"
        assert client.post(path, json=body, headers={"If-Match": '"0"'}).status_code == 412
        assert client.post(path, json={**body, "tokenizer": "missing"}).status_code == 404


def test_no_added_token_of_the_assistant_if_the_request_says_so(post, refused, shared_store):
    """The injection tests hold what users type to be text; the assistant writes such tokens."""
    tokens = [AddedToken("<think>", 258, special=False), AddedToken("</think>", 259, special=False)]
    spec = TokenizerSpec.from_merges(SPEC.vocab, [], [*SPEC.added_tokens, *tokens])
    name = {"tokenizer": str(shared_store.publish(with_templates(spec), name="thinking"))}
    own = [{"role": "assistant", "content": "b</think>", "reasoning_content": "a"}]
    for added_tokens, expected in (("all", [258, 259, 259]), ("none", [258, 259])):
        ids = post("/chat/encode", messages=own, added_tokens=added_tokens, **name)["tokens"]
        assert [id_ for id_ in ids if id_ > 257] == expected
    wrong = refused("/chat/encode", messages=own, added_tokens="no", **name)
    assert wrong == ("invalid_request", "/added_tokens")


@pytest.mark.parametrize(("path", "size"), [("/chat/encode", 10), ("/tokenize", 200_000)])
@pytest.mark.parametrize("template", ["default", "centred"])
def test_a_template_without_bounds_has_threads_and_memory_of_its_own(
    client, post, monkeypatch, shared_store, path, size, template
):
    """Such a template may take its time; requests with large texts do not wait for it. A small
    conversation with another one is rendered on the event loop, once the template is compiled, if
    others have not just been."""
    seen = []
    budget, render_chat = client.app.services.budget, renderer.render_chat

    def watched(source, *arguments, **options):
        chat = render_chat(source, *arguments, **options)
        seen.append((threading.current_thread().name, budget.used))
        return chat

    monkeypatch.setattr(renderer, "render_chat", watched)
    centred = CHATML.replace("message.content }}", "message.content.center(1) }}")
    new = CHATML + f"{{# not compiled before {size} #}}"
    spec = SPEC.with_chat(ChatTemplates({"default": new, "centred": centred}))
    name = str(shared_store.publish(spec, name="centred"))
    asked = {"messages": say("a" * size), "chat_template": template, "tokenizer": name}
    for is_compiled, is_busy in ((False, False), (True, False), (True, True)):
        if is_busy:
            monkeypatch.setattr(TurnLimit, "take", lambda limit: False)
        before = metrics(client, "encode_tokens_total")
        answer = post(path, **asked)
        assert answer["tokens"] == chatml_ids(("user", "a" * size), prompt=path == "/tokenize")
        assert metrics(client, "encode_tokens_total") == [before[0] + answer["count"]]
        (thread, used), *_ = seen
        seen.clear()
        kept = "small" if size == 10 else "large"
        if is_compiled and size == 10 and not is_busy:
            kept = "asyncio"  # the thread of the event loop
        assert thread.startswith("chat" if template == "centred" else kept)
        if not thread.startswith("asyncio"):
            # The text and four bytes for each four of its characters, before the template runs.
            assert used >= 2 * size
        assert budget.used == 0


def test_conversations_of_one_template_in_child_processes_do_not_wait_for_each_other(
    monkeypatch, shared_store
):
    """None of the three is rendered before all of them are."""
    together = threading.Barrier(3)
    centred = CHATML.replace("message.content }}", "message.content.center(1) }}")
    spec = SPEC.with_chat(ChatTemplates({"default": centred}))
    name = str(shared_store.publish(spec, name="centred"))
    start = renderer._Worker

    def start_together(memory_bytes):
        together.wait(timeout=60)
        return start(memory_bytes)

    monkeypatch.setattr(renderer, "_Worker", start_together)
    asked = {"messages": say("a"), "tokenizer": name}
    with serve(shared_store, threads=1) as client, ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: client.post("/chat/encode", json=asked), range(3)))
    for answer in answers:
        assert answer.json()["tokens"] == chatml_ids(("user", "a"))
