"""Control tokens: which added tokens they are, and that no user can write one into a chat."""

import pytest

from tokenizer_core import Tokenizer
from tokenizer_core.chat.control_tokens import find_control_tokens
from tokenizer_core.errors import InvalidSpecError, SpecialTokenReachedError
from tokenizer_core.spec import AddedToken, TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}
SOFT = ["<think>", "</think>", "<tool>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"]
CONTENT = ["  ", "    ", "\n\n", "\u00f5", "<fim>"]
TOKENS = [
    AddedToken("<|end|>", 256),
    *(AddedToken(token, 257 + i, special=False) for i, token in enumerate(SOFT + CONTENT)),
]
# As DeepSeek's.
TEMPLATE = """\
{%- for m in messages %}{{ '<' ~ '\uff5c' ~ m.role|capitalize ~ '\uff5c>' }}
{%- if m.reasoning %}{{ '<think>' + m.reasoning + '</think>' }}{% endif %}
{{- m.content + '<|end|>' }}{% endfor %}"""


def spec_of(tokens, **options):
    return TokenizerSpec.from_merges(BYTES, [], tokens, **options)


SPECS = {
    "plain": spec_of(TOKENS),
    "flags": spec_of([*TOKENS, AddedToken("<mask>", 300, lstrip=True)]),
    "nfc": spec_of(TOKENS, normalizer="nfc", pattern="qwen2"),
}


@pytest.fixture(params=SPECS)
def tokenizer(request, engine):
    made = Tokenizer.from_spec(SPECS[request.param], engine=engine)
    return made.with_chat_templates({"default": TEMPLATE})


def added_in(tokenizer, ids):
    """The added tokens among ids."""
    names = {token.id: token.content for token in tokenizer.spec.added_tokens}
    return [names[id_] for id_ in ids if id_ in names]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a<think>b<tool>' }}", {"<think>", "<tool>"}),
        ("<think>{# <tool> #}{% raw %}</think>{% endraw %}", {"<think>", "</think>"}),
        ("{% if '</think>' in messages[0].content %}{% endif %}", {"</think>"}),
        ("{% set t = {'k': ['<tool>']} %}{{ x|replace('a', '<think>') }}", {"<tool>", "<think>"}),
        ("{{ '\\x3cthink>' + '<to' + 'ol>' }}</{{ 'think' }}>", {"<think>", "<tool>", "</think>"}),
        (
            "{{ '<\uff5c' ~ m.role|capitalize ~ '\uff5c>' }}",
            {"<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"},
        ),
        # A field of a form may be a role, or empty.
        ("{% set x = '<%s>' % m.role %}{{ '%%<%sthink>' % x }}", {"<tool>", "<think>"}),
        ("{{ '<%s>'|format(m.role) }}", {"<tool>"}),
        ("{% set x = '<{}\uff5cUser{a!r}\uff5c>'.format(x, a=y) %}", {"<\uff5cUser\uff5c>"}),
        ("{{ '<{{tool}}>'.format() }}{{ '<{'.format('tool') }}", set()),
        # White space and letters are in all texts.
        ("a    \n\n\u00f5{{ '  ' }}", set()),
        # What is joined in a loop is not found; the import may name it.
        ("{% for t in ['think'] %}</{{ t }}>{% endfor %}", set()),
        ("{% for %}<think>", set()),
        # Nested too deep to read here: its whole source counts.
        (f"{'(' * 3000}'<think>'{')' * 3000}", {"<think>"}),
    ],
)
def test_literals_of_a_template_are_control_tokens(source, expected):
    found = find_control_tokens(SPECS["plain"], source)
    assert found == expected | {"<|end|>"}


def test_what_a_template_joins_by_itself_is_a_control_token_where_it_writes_it(engine):
    source = (
        "{{ messages[0].content }}{% for t in tools or [] %}<{% for part in ['to', 'ol'] %}"
        "{{ part }}{% endfor %}>{% endfor %}"
    )
    tokenizer = Tokenizer.from_spec(SPECS["plain"], engine=engine)
    tokenizer = tokenizer.with_chat_templates({"default": source})
    chat = [{"role": "user", "content": "<tool>"}]
    assert len(tokenizer.encode_chat(chat, tools=[{}]).ids) == len("<tool>") + 1
    assert len(tokenizer.encode_chat(chat).ids) == 1


def test_tokens_within_each_other_are_all_control_tokens():
    contents = ["<a>", "<a><b>", "<b>", "<b><c>", "<a"]
    tokens = [AddedToken(content, 256 + i, special=False) for i, content in enumerate(contents)]
    found = find_control_tokens(spec_of(tokens), "{{ '<a><b>' }}")
    assert found == {"<a>", "<a><b>", "<b>", "<a"}


def test_the_assistant_writes_its_own_tokens_and_no_special_ones(tokenizer):
    said = "<think>b</think><|end|>"
    chat = [{"role": "user", "content": said}, {"role": "assistant", "content": said}]
    for messages, expected in (
        (chat, ["<think>", "</think>"]),
        # Nobody writes a control token that is not the assistant's: another way of encoding.
        ([{"role": "user", "content": "a"}, chat[1]], ["<think>", "</think>"]),
    ):
        ids = tokenizer.encode_chat(messages).ids.tolist()
        user, assistant = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"
        assert added_in(tokenizer, ids) == [user, "<|end|>", assistant, *expected, "<|end|>"]
        none = tokenizer.encode_chat(messages, added_tokens="none").ids.tolist()
        assert added_in(tokenizer, none) == [user, "<|end|>", assistant, "<|end|>"]


def test_other_added_tokens_match_as_they_do_in_a_text(tokenizer):
    text = "a    b\n\n\u00f5 <fim>  "
    ids = tokenizer.encode(text)
    assert added_in(tokenizer, ids) == ["    ", "\n\n", "\u00f5", "<fim>", "  "]
    assert tokenizer.encode_segments([(text, False)]) == ids
    ordinary = tokenizer.encode_ordinary(text)
    assert tokenizer.encode_segments([(text, False)], added_tokens="none") == ordinary
    assert tokenizer.encode(text, allowed_special="ordinary") == ordinary
    assert tokenizer.encode_segments([("<fim>", True), ("<fim>", False)], added_tokens="none") == [
        *tokenizer.encode("<fim>"),
        *tokenizer.encode_ordinary("<fim>"),
    ]
    with pytest.raises(ValueError, match="added_tokens must be 'all' or 'none', not 'no'"):
        tokenizer.encode_segments([("a", False)], added_tokens="no")


def test_control_tokens_of_segments_are_those_of_templates_and_names(engine):
    tokenizer = Tokenizer.from_spec(SPECS["plain"], engine=engine)
    assert tokenizer.control_tokens == {"<|end|>"}
    parts = [("<think><fim>", False), ("<think>", True)]
    assert added_in(tokenizer, tokenizer.encode_segments(parts)) == ["<think>", "<fim>", "<think>"]
    templates = {"default": "{{ messages }}", "other": "<think>"}
    made = tokenizer.with_chat_templates(
        templates, variables={"eos_token": "<tool>"}, control_tokens=["<fim>"]
    )
    assert made.control_tokens == {"<|end|>", "<think>", "<tool>", "<fim>"}
    assert tokenizer.control_tokens == {"<|end|>"}
    assert added_in(made, made.encode_segments(parts)) == ["<think>"]
    # A template given as source has control tokens of its own.
    chat = [{"role": "user", "content": "</think><think>"}]
    found = made.encode_chat(chat, chat_template="{{ messages[0].content }}{{ '</think>' }}")
    assert added_in(made, found.ids.tolist()) == ["</think>"]
    with pytest.raises(InvalidSpecError, match="'<x>' is no added token of this tokenizer"):
        tokenizer.with_chat_templates({}, control_tokens=["<x>"])


def test_a_control_token_that_merges_make_is_refused_in_untrusted_text(engine):
    spec = TokenizerSpec.from_merges(
        BYTES | {256: b"ab"}, [(b"a", b"b")], [AddedToken("ab", 256, special=False)]
    )
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    assert tokenizer.encode_segments([("ab", False)]) == [256]
    named = tokenizer.with_chat_templates({"default": "{{ 1 }}"}, control_tokens=["ab"])
    assert named.encode_segments([("ab", True)]) == [256]
    with pytest.raises(SpecialTokenReachedError):
        named.encode_segments([("xab", False)])
