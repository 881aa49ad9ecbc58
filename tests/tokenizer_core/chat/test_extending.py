"""Conversations that keep the ids of their earlier messages."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.families import FAMILIES
from tokenizer_core import Tokenizer
from tokenizer_core.errors import ChatInputError, UnknownTokenIdError
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning and loop.last %}{{ '<think>' + m.reasoning + '</think>' }}{% endif %}"
    "{{ m.content }}{% if m.calls %}{{ '<tool_call>' + m.calls + '</tool_call>' }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NEXT_ROLE = (  # GLM 4.5
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PADDED = (  # Phi-3
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|eos|>{% endif %}"
)
REPLACED = (  # gpt-oss
    "{% for m in messages %}{{ '<|im_start|>' + m.content }}"
    "{{ '<|eos|>' if loop.last and m.role == 'assistant' else '<|end|>' }}{% endfor %}"
)
JOINED = (  # two line breaks between two control tokens are one token
    "{% for m in messages %}{{ '\n' if not loop.first }}"
    "{{ '<|im_start|>' + m.content + '<|im_end|>\n' }}{% endfor %}"
)
TEMPLATES = {
    "default": CHATML,
    "next_role": NEXT_ROLE,
    "padded": PADDED,
    "late": "{% for m in messages|reverse %}{{ m.content }}<|end|>{% endfor %}",
    "joined": JOINED,
    "replaced": REPLACED,
    "lines": "{% for m in messages %}{{ m.role + ':' + m.content + ' \n\n' }}{% endfor %}",
}
TOKENS = [
    AddedToken("<|im_start|>", 300),
    AddedToken("<|im_end|>", 301),
    AddedToken("<|user|>", 302),
    AddedToken("<|assistant|>", 303),
    AddedToken("<|end|>", 304, rstrip=True),
    AddedToken("<|eos|>", 305),
    AddedToken("<|call|>", 306),
    AddedToken("<tool_call>", 307, special=False),
    AddedToken("</tool_call>", 308, special=False),
]
START, END, CALLED = 300, 301, 308
MERGES = [(b"a", b"b"), (b"ab", b"a"), (b"\n", b"\n")]
SPEC = TokenizerSpec.from_merges(
    dict(enumerate([*(bytes([i]) for i in range(256)), *(b"".join(pair) for pair in MERGES)])),
    MERGES,
    TOKENS,
)
SPEC = replace(SPEC, chat=ChatTemplates(TEMPLATES, stop_tokens=("<|eos|>", "<|call|>")))
HELLO = [
    {"role": "user", "content": "ab<|im_end|>"},
    {"role": "assistant", "content": "aba é"},
]
MORE = [{"role": "user", "content": "more<|im_end|></tool_call>"}]


@pytest.fixture(scope="module")
def tokenizer(engine):
    return Tokenizer.from_spec(SPEC, engine=engine)


def cut_before(ids, *end):
    """`ids` up to the last `end`."""
    starts = [at for at in range(len(ids)) if tuple(ids[at : at + len(end)]) == end]
    return ids[: starts[-1]]


def messages(*roles):
    texts = st.text(alphabet="ab \né<|im_end|>", max_size=8)
    return st.tuples(
        *(
            st.builds(lambda text, role=role: {"role": role, "content": text}, texts)
            for role in roles
        )
    ).map(list)


@pytest.mark.parametrize("template", ["default", "padded", "next_role"])
@given(
    earlier=messages("user", "assistant"),
    new=messages("user", "assistant", "user"),
    prompt=st.booleans(),
)
def test_canonical_ids_are_continued_as_if_all_were_encoded(
    tokenizer, template, earlier, new, prompt
):
    end = {"default": (END, 10), "padded": (304, 305), "next_role": ()}[template]
    options = {"chat_template": template}
    before = tokenizer.encode_chat(earlier, **options).ids.tolist()
    whole = tokenizer.encode_chat(
        earlier + new, add_generation_prompt=prompt, **options
    ).ids.tolist()
    written = cut_before(before, *end) if end else before
    held = [written] if earlier[-1]["content"] or not end else []
    held += [[*written, *end[:1]]] if end else []
    held += [before] if template == "default" else []
    held += [[*written, 302]] if template == "next_role" and earlier[-1]["content"] else []
    for ids in held:
        found = tokenizer.extend_chat(ids, earlier, new, add_generation_prompt=prompt, **options)
        assert found == (whole, None), ids


def test_generated_ids_stay_and_drift_is_named(tokenizer):
    prompt = tokenizer.encode_chat(HELLO[:1], add_generation_prompt=True).ids.tolist()
    generated = [*b"ab", *b"a \xc3\xa9", END]  # encoding gives one token for `aba`
    ids = [*prompt, *generated]
    found = tokenizer.extend_chat(ids, HELLO, MORE, add_generation_prompt=True)
    text = b"more<|im_end|></tool_call>"  # typed, so no control tokens
    new = [10, START, *b"user\n", *text, END, 10, START, *b"assistant\n"]
    assert found == ([*ids, *new], len(prompt))
    # A template may drop the reasoning of earlier turns, which the ids keep.
    thought = [HELLO[0], {**HELLO[1], "reasoning": "hm"}]
    ids = [*prompt, *b"<think>hm</think>", *generated]
    found = tokenizer.extend_chat(ids, thought, MORE, add_generation_prompt=True)
    assert found == ([*ids, *new], len(prompt))


def test_a_turn_ends_once(tokenizer):
    called = [HELLO[0], {"role": "assistant", "content": "", "calls": "f"}]
    prompt = tokenizer.encode_chat(called[:1], add_generation_prompt=True).ids.tolist()
    rest = [10, START, *b"user\nmore", END, 10]
    more = [{"role": "user", "content": "more"}]
    cases = {
        (307, ord("f")): [CALLED, END],
        (307, ord("f"), CALLED): [END],
        (307, ord("f"), CALLED, END): [],
        (307, ord("f"), CALLED, 306): [],  # the folder says that it ends turns
        (307, ord("f"), 0xC3): [CALLED, END],
    }
    for generated, added in cases.items():
        ids = [*prompt, *generated]
        assert tokenizer.extend_chat(ids, called, more).ids == [*ids, *added, *rest]
    # The token of the next role: repeated only if the model wrote another one.
    options = {"chat_template": "next_role"}
    ids = tokenizer.encode_chat(HELLO, **options).ids.tolist()
    for generated, added in {(): [302], (302,): [], (306,): [302]}.items():
        found = tokenizer.extend_chat([*ids, *generated], HELLO, more, **options)
        assert found.ids == [*ids, *generated, *added, *b"more"]


@pytest.mark.parametrize("name", FAMILIES)
def test_turns_of_many_families_end_once(name):
    tokenizer = FAMILIES[name].tokenizer(FAMILIES[name].spec(), "auto")
    earlier = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    new = [{"role": "user", "content": "more"}]
    whole = tokenizer.encode_chat(earlier + new, add_generation_prompt=True).ids.tolist()
    before = tokenizer.encode_chat(earlier).ids.tolist()
    shared = next(n for n in range(len(before), 0, -1) if before[:n] == whole[:n])
    text = max(n for n in range(shared + 1) if tokenizer.decode(before[:n]).endswith("Ho"))
    for n in range(text, shared + 1):
        found = tokenizer.extend_chat(before[:n], earlier, new, add_generation_prompt=True)
        assert found == (whole, None), tokenizer.decode(before[:n])


def test_another_token_may_end_the_last_turn(tokenizer):
    options = {"chat_template": "replaced"}
    ids = tokenizer.encode_chat(HELLO, **options).ids.tolist()
    whole = tokenizer.encode_chat(HELLO + MORE, **options).ids.tolist()
    n = len(ids)
    assert (ids[-1], whole[n - 1]) == (305, 304)
    assert tokenizer.extend_chat(ids, HELLO, MORE, **options) == ([*ids, *whole[n:]], n - 1)
    assert tokenizer.extend_chat(ids[:-1], HELLO, MORE, **options) == (whole, None)


def test_text_after_a_turn_is_not_repeated(tokenizer):
    for template in ("lines", "joined"):
        options = {"chat_template": template}
        text = tokenizer.encode_chat(HELLO, **options).text
        whole = tokenizer.encode_chat(HELLO + MORE, **options).text
        n_after = 3 if template == "lines" else 0
        for at in range(len(text) - n_after, len(text) + 1):
            ids = tokenizer.encode(text[:at])
            found = tokenizer.extend_chat(ids, HELLO, MORE, **options).ids
            assert tokenizer.decode(found) == whole
    # The end of a message is not taken for that text.
    broken = [HELLO[0], {"role": "assistant", "content": "a \n"}]
    whole = tokenizer.encode_chat(broken + MORE, chat_template="lines").text
    ids = tokenizer.encode(whole[: whole.index("a \n") + 3])
    found = tokenizer.extend_chat(ids, broken, MORE, chat_template="lines").ids
    assert tokenizer.decode(found) == whole


def test_a_token_may_cross_the_end_of_what_is_there(tokenizer):
    options = {"chat_template": "joined"}
    ids = tokenizer.encode_chat(HELLO, **options).ids.tolist()
    whole = tokenizer.encode_chat(HELLO + MORE, **options).ids.tolist()
    assert (ids[-2:], whole[len(ids) - 1]) == ([END, 10], 258)
    for held, new in ((ids, [10, *whole[len(ids) :]]), (ids[:-1], whole[len(ids) - 1 :])):
        found = tokenizer.extend_chat(held, HELLO, MORE, **options)
        drift = None if len(held) < len(ids) else len(ids) - 1
        assert found == ([*held, *new], drift)


def test_a_turn_without_text_needs_the_token_that_ends_it(tokenizer):
    silent = [HELLO[0], {"role": "assistant", "content": ""}]
    prompt = tokenizer.encode_chat(silent[:1], add_generation_prompt=True).ids.tolist()
    whole = tokenizer.encode_chat(silent + MORE).ids.tolist()
    assert tokenizer.extend_chat([*prompt, END], silent, MORE) == (whole, None)
    with pytest.raises(ChatInputError, match="no text of the last earlier message"):
        tokenizer.extend_chat(prompt, silent, MORE)


def test_the_first_messages_and_none(tokenizer):
    whole = tokenizer.encode_chat(HELLO, add_generation_prompt=True).ids.tolist()
    assert tokenizer.extend_chat([], [], HELLO, add_generation_prompt=True) == (whole, None)
    ids = tokenizer.encode_chat(HELLO).ids.tolist()
    assert tokenizer.extend_chat(ids, HELLO, [], add_generation_prompt=True) == (whole, None)


def test_what_cannot_be_continued_is_refused(tokenizer):
    ids = tokenizer.encode_chat(HELLO).ids.tolist()
    for given_ids, earlier in ((ids, []), ([], HELLO)):
        with pytest.raises(ChatInputError, match="belong together"):
            tokenizer.extend_chat(given_ids, earlier, MORE)
    with pytest.raises(ChatInputError, match="before the end of the earlier"):
        tokenizer.extend_chat(ids, HELLO, MORE, chat_template="late")
    developer = [{"role": "developer", "content": "late"}]
    with pytest.raises(ChatInputError, match="change the earlier ones"):
        tokenizer.extend_chat(ids, HELLO, developer, messages_form="vllm")
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\]"):
        tokenizer.extend_chat([97, 9999], HELLO, MORE)


@given(data=st.data())
def test_segments_continue_ids_with_their_trust(tokenizer, data):
    pieces = st.sampled_from(["ab", "a", "<|im_end|>", "<|end|>", " ", "</tool_call>", "é"])
    texts = st.lists(pieces, max_size=3).map("".join)
    ids = tokenizer.encode(data.draw(texts))
    segments = data.draw(st.lists(st.tuples(texts, st.booleans()), max_size=3))
    for added_tokens in ("all", "none"):
        found = tokenizer.extend(ids, segments, added_tokens=added_tokens)
        alone = tokenizer.encode_segments(segments, added_tokens=added_tokens)
        if ids[-1:] == [304]:  # it takes the white space after it
            first, *others = [*segments, ("", True)]
            if first[0].strip():
                stripped = [(first[0].lstrip(), first[1]), *others]
                alone = tokenizer.encode_segments(stripped, added_tokens=added_tokens)
                assert found.ids == [*ids, *alone]
        else:
            assert found.ids == [*ids, *alone]
        before = (tokenizer.decode(ids), True)
        whole = tokenizer.encode_segments([before, *segments], added_tokens=added_tokens)
        assert (found.drift_at is None) == (found.ids == whole)
    if segments:
        with pytest.raises(TypeError, match="segment 0"):
            tokenizer.extend(ids, [(b"a", True), *segments])
