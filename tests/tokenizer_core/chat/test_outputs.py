"""Outputs of models as parts of a message: whole, and in parts cut anywhere."""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.formats.tokenizer_json.test_metaspace import SPECS
from tokenizer_client.schemas.derender import DerenderChatRequest
from tokenizer_core import Tokenizer
from tokenizer_core.chat.outputs import FORMATS, Call, OutputParser, Part
from tokenizer_core.errors import OutputStateError, OutputTooLongError, UnknownTokenIdError
from tokenizer_core.spec.chat_templates import OUTPUT_PARSERS
from tokenizer_core.text import output_streams
from tokenizer_core.text.output_streams import OutputState, begin_output, continue_output

HERMES = '<tool_call>\n{"name": "f", "arguments": {"x": 1.50}}\n</tool_call>'
FENCED = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"x": 1.50}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
BARE = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1.50}<｜tool▁call▁end｜>'
    "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
CALL = Call("f", '{"x": 1.50}')
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", HERMES, FENCED, BARE, "\n", " ", "é",
    "🙂", "<", "<tool", "text", '{"name": "f"}', "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
]  # fmt: skip
SHAPES = {
    "bytes": Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<tool_call>", "<think>"]).spec,
    "metaspace-first": SPECS["metaspace-first"],
    "metaspace": SPECS["metaspace"],
}


def read(form, text, mode="start", **options):
    parser = OutputParser(FORMATS[form] if form else None, mode, **options)
    return joined(parser.feed(text) + parser.finish())


def joined(parts):
    """Neighbouring texts of one kind as one."""
    found = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Part) and isinstance(last, Part) and last.kind == part.kind:
            found[-1] = Part(part.kind, last.text + part.text)
        else:
            found.append(part)
    return found


def said(text):
    return Part("content", text)


def thought(text):
    return Part("reasoning", text)


@pytest.mark.parametrize(
    ("form", "text", "parts"),
    [
        ("hermes", f"Hi\n{HERMES}", [said("Hi\n"), CALL]),
        ("hermes", f"{HERMES}\n{HERMES}\n", [CALL, CALL]),
        ("hermes", f"{HERMES}\nso", [CALL, said("\nso")]),
        ("hermes", "<think>a</think>b", [said("<think>a</think>b")]),
        ("qwen3", f"<think>\na\n</think>\n\n{HERMES}", [thought("\na\n"), said("\n\n"), CALL]),
        ("qwen3", f"<think>{HERMES}", [thought(HERMES)]),
        ("qwen3", " <think>a</think>", [said(" <think>a</think>")]),
        ("qwen3", "<thin", [said("<thin")]),
        ("deepseek_v3", f"<think>a</think>b{FENCED}", [thought("a"), said("b"), CALL]),
        ("deepseek_v3", BARE, [said(BARE)]),
        ("deepseek_v31", BARE, [CALL, Call("g", "{}")]),
        ("deepseek_v31", FENCED, [said(FENCED)]),
        (None, f"<think>{HERMES}", [said(f"<think>{HERMES}")]),
    ],
)
def test_what_a_parser_reads(form, text, parts):
    assert read(form, text) == parts


@pytest.mark.parametrize(
    "inside",
    [
        "", "f", "[]", "{}", '{"name": "f"}', '{"name": 1, "arguments": {}}', "{" * 2000,
        '{"name": "f", "arguments": "{}"}', '{"name": "f", "arguments": {}, "name": "g"}',
        '{"name": "f", "arguments": {}, "id": 1}', '{"name": "f", "arguments": {},}',
        '{"name": "f", "arguments": {"x": NaN}}', '{"name": "\\ud800", "arguments": {}}',
        '{"name": " ", "arguments": {}}', '{"name": "a\\nb", "arguments": {}}',
        '{"name": "f", "arguments": {}} {}', '{"name": "f", "arguments": {"x": "</tool_call>"}}',
        '<tool_call>{"name": "f", "arguments": {}}',
        '{"name": "f", "arguments": {"x": ' + "[" * 9000 + "]" * 9000 + "}}",
    ],
)  # fmt: skip
def test_a_call_that_does_not_parse_is_content(inside):
    text = f"a<tool_call>{inside}</tool_call>\n{HERMES}"
    assert read("hermes", text) == [said(f"a<tool_call>{inside}</tool_call>\n"), CALL]
    assert read("hermes", f"a<tool_call>{inside}") == [said(f"a<tool_call>{inside}")]


@pytest.mark.parametrize(
    ("form", "inside"),
    [
        ("deepseek_v3", " " * 200_000),
        ("deepseek_v3", "function<｜tool▁sep｜>f\n```json\n{}\n```" + " \n" * 100_000 + "x"),
        ("deepseek_v31", " " * 200_000),
        ("deepseek_v31", "a" * 100_000 + "<｜tool▁sep｜>" * 20_000),
        ("deepseek_v31", "f<｜tool▁sep｜>" + "[" * 100_000),
        ("qwen3", '{"name": "f", "arguments": {' + " " * 500_000),
        ("qwen3", "</tool_call><tool_call>" * 20_000),
    ],
)
def test_hostile_outputs_take_linear_time(form, inside):
    begin, end = FORMATS[form].call_marks
    if form != "qwen3":
        inside = f"<｜tool▁call▁begin｜>{inside}<｜tool▁call▁end｜>"
    started = time.process_time()
    assert read(form, f"{begin}{inside}{end}") == [said(f"{begin}{inside}{end}")]
    assert time.process_time() - started < 2


def test_arguments_stay_as_they_were_written():
    for arguments in ('{ "x":1e400,"é": "\\u00e9",  "n": ' + "9" * 5000 + "}", '{"x": 1, "x": 2}'):
        text = f'<tool_call>{{"arguments": {arguments} , "name":"f"}}</tool_call>'
        found = read("hermes", text)
        # A key twice is no object that a caller could read in one way.
        assert found == ([Call("f", arguments)] if "é" in arguments else [said(text)])


def test_calls_are_text_where_no_tools_were_offered():
    assert read("qwen3", f"<think>a</think>{HERMES}", with_calls=False) == [
        thought("a"),
        said(HERMES),
    ]


def read_slowly(form, text):
    """What a parser reads, by expressions over the whole text."""
    parts = []
    if form.reasoning_marks and text.startswith("<think>"):
        reasoning, _, text = text.removeprefix("<think>").partition("</think>")
        parts += [thought(reasoning)] if reasoning else []
    begin, end = map(re.escape, form.call_marks)
    found = []
    for piece in re.split(f"({begin}.*?{end})", text, flags=re.DOTALL):
        inside = piece[len(form.call_marks[0]) : -len(form.call_marks[1])]
        is_call = re.fullmatch(f"{begin}.*{end}", piece, flags=re.DOTALL)
        found += (is_call and parse(form, inside)) or [said(piece)]
    found = [part for part in joined(found) if part != said("")]
    for index, part in enumerate(found):
        is_between = index and isinstance(found[index - 1], Call)
        if not (is_between and isinstance(part, Part) and not part.text.strip()):
            parts.append(part)
    return parts


def parse(form, inside):
    try:
        return form.parse(inside)
    except ValueError:
        return []


@given(st.sampled_from(sorted(FORMATS)), st.lists(st.sampled_from(FRAGMENTS), max_size=8))
def test_no_text_is_dropped(form, fragments):
    text = "".join(fragments)
    assert read(form, text) == read_slowly(FORMATS[form], text)
    # Where no call parses, the parts and the two marks of reasoning are the text.
    parser = OutputParser(FORMATS[form]._replace(parse=lambda _: []))
    found = joined(parser.feed(text) + parser.finish())
    whole = "".join(part.text for part in found)
    marked = text.startswith("<think>") and FORMATS[form].reasoning_marks
    assert whole == (text.replace("<think>", "", 1).replace("</think>", "", 1) if marked else text)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_where_the_ids_are_cut_changes_nothing(shape, engine, data):
    tokenizer = Tokenizer.from_spec(SHAPES[shape], engine=engine)
    form = FORMATS[data.draw(st.sampled_from(sorted(FORMATS)))]
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=5)))
    ids = tokenizer.encode(text)
    noise = st.lists(st.sampled_from(sorted(tokenizer.spec.vocab)), max_size=4)
    at = data.draw(st.integers(0, len(ids)))
    ids[at:at] = data.draw(noise)
    prompt = data.draw(st.sampled_from([[], tokenizer.encode("<think>\n"), tokenizer.encode("a")]))
    begin = begin_output(tokenizer, form, prompt)
    whole, end = continue_output(tokenizer, form, begin, ids, is_last=True)
    assert end.mode == "finished"
    texts = "".join(part.text for part in whole if isinstance(part, Part))
    if not prompt and len(whole) == 1 and texts:
        assert tokenizer.decode(ids).endswith(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    state, parts = begin, []
    for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
        is_last = stop is None
        new, state = continue_output(tokenizer, form, state, ids[start:stop], is_last=is_last)
        parts += new
    assert joined(parts) == joined(whole)


def test_the_names_of_parsers_are_those_of_imports_and_requests():
    field = DerenderChatRequest.model_json_schema()["properties"]["parser"]
    assert tuple(FORMATS) == OUTPUT_PARSERS == tuple(field["anyOf"][0]["enum"])


@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_first_space_of_a_text_is_left_out(shape, engine):
    tokenizer = Tokenizer.from_spec(SHAPES[shape], engine=engine)
    ids = [id_ for word in ("  a", " b", "  ", "é") for id_ in tokenizer.encode(word)]
    state, texts = OutputState(), []
    for id_ in ids:
        new, state = continue_output(tokenizer, None, state, [id_], is_last=False)
        texts += [part.text for part in new]
    new, _ = continue_output(tokenizer, None, state, [], is_last=True)
    assert "".join(texts + [part.text for part in new]) == tokenizer.decode(ids)


def test_every_single_id_is_a_part(engine):
    tokenizer = Tokenizer.from_spec(SHAPES["bytes"], engine=engine)
    text = f"<think>é🙂</think>\n{HERMES} {HERMES}\n<tool_call>x</tool_call>🙂<tool_ca"
    ids = tokenizer.encode(text)
    state, parts = OutputState(), []
    for id_ in ids:
        new, state = continue_output(tokenizer, FORMATS["qwen3"], state, [id_], is_last=False)
        parts += new
        assert len(state.held) <= len(HERMES)
    new, state = continue_output(tokenizer, FORMATS["qwen3"], state, [], is_last=True)
    assert joined(parts + new) == read("qwen3", text)
    assert state == OutputState("finished", is_first=False)


def test_a_prompt_may_begin_the_reasoning(engine):
    tokenizer = Tokenizer.from_spec(SHAPES["bytes"], engine=engine)
    for prompt, mode in (("a<think>\n", "reasoning"), ("<think>a", "start"), ("", "start")):
        state = begin_output(tokenizer, FORMATS["qwen3"], tokenizer.encode(prompt))
        assert (state.mode, state.is_first) == (mode, not prompt)
        assert begin_output(tokenizer, FORMATS["hermes"], tokenizer.encode(prompt)).mode == "start"


def test_states_that_do_not_fit_are_refused(engine, monkeypatch):
    tokenizer = Tokenizer.from_spec(SHAPES["bytes"], engine=engine)
    for is_last in (False, True):
        state = OutputState(held=(97,), n_given=2)
        with pytest.raises(OutputStateError, match="n_given"):
            continue_output(tokenizer, None, state, [98, 99], is_last=is_last)
        with pytest.raises(OutputStateError, match="finished"):
            continue_output(tokenizer, None, OutputState("finished"), [98], is_last=is_last)
        with pytest.raises(UnknownTokenIdError):
            continue_output(tokenizer, None, OutputState(held=(9999,)), [98], is_last=is_last)
    monkeypatch.setattr(output_streams, "MAX_HELD_IDS", 20)
    ids = tokenizer.encode("<tool_call>" + "x" * 30)
    with pytest.raises(OutputTooLongError, match="more than 20 ids"):
        continue_output(tokenizer, FORMATS["hermes"], OutputState(), ids, is_last=False)
    assert continue_output(tokenizer, FORMATS["hermes"], OutputState(), ids, is_last=True)
    assert json.loads(CALL.arguments) == {"x": 1.5}
