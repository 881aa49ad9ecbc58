"""No text of a user becomes a control token: 24 families x fields x tokens, in the library and
through every route.

Each conversation is encoded twice: with a control token typed into a field, and with a harmless
text of the same shape in its place. Every added token must be there equally often. `make injection`
prints the table of docs/chat.md.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from fastapi.routing import iter_route_contexts

from tests.conftest import REPOSITORY
from tests.security.families import FAMILIES, Family
from tests.security.typed_fields import FIELDS, NAMES, fill, forms_of, harmless, is_split
from tests.security.typed_requests import LIKE_ROUTES, OTHER_ROUTES, ROUTES, SAME_FIELDS
from tests.tokenizer_service.chats import rendering_here
from tests.tokenizer_service.conftest import serve
from tokenizer_core import Tokenizer
from tokenizer_core.chat.traced_text import ROLES
from tokenizer_core.corpus.conversation_encoding import ConversationEncoder
from tokenizer_core.engines import ARRAY
from tokenizer_core.errors import ChatError
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.specials.policy import Policy

__all__ = ["rendering_here"]

pytestmark = pytest.mark.usefixtures("rendering_here")

HEADER = ["family", "tokens", "not special", *FIELDS, "requests", "ids outside the template"]
CUTS = (0.5, 0.01, 0.99)
"""Where a text is split that goes into two fields."""


@dataclass
class Row:
    """What was typed into one family, and what came of it."""

    name: str
    family: Family
    cases: Counter[str] = field(default_factory=Counter)
    outside: list[tuple[Any, ...]] = field(default_factory=list)
    """Where, what was typed, and the added tokens that it changed."""
    written: set[tuple[str, str]] = field(default_factory=set)
    """Group and name of the fields that the template writes."""

    def compare(self, group, where, typed, innocent):
        """Count a case. The assistant's messages may hold tokens that are not special, unless the
        place says `none`."""
        self.cases[group] += 1
        may = self.family.soft if group == "assistant" and "none" not in where else frozenset()
        changed = {
            token: typed[token] - innocent[token]
            for token in {*typed, *innocent} - may
            if typed[token] != innocent[token]
        }
        if changed:
            self.outside.append((group, *where, changed))

    @property
    def line(self):
        """The row of the table in docs/chat.md."""
        family = self.family
        cells = [self.name, len(family.control), len(family.soft)]
        cells += [self.cases[group] for group in (*FIELDS, "requests")]
        return f"| {' | '.join(map(str, cells))} | {len(self.outside)} |"


class Encoder:
    """The added tokens of conversations, as both engines find them."""

    def __init__(self, family, spec=None):
        self.tokenizer = family.tokenizer(spec or family.spec(), "auto")
        self._other = Tokenizer.from_spec(self.tokenizer.spec, engine="python")
        self._source = self.tokenizer.chat_templates["default"]
        self._names = {token.id: token.content for token in self.tokenizer.spec.added_tokens}
        self._control = [id_ for id_, name in self._names.items() if name in family.control]
        self._encoded = {}

    def encode(self, chat, **options):
        """The encoding, or None if the template refuses the conversation."""
        try:
            encoded = self.tokenizer.encode_chat(**chat, **options)
        except ChatError:
            return None
        if len(encoded.ids) > 200:  # the longer ones have most in them
            policy = Policy(added_tokens=options.get("added_tokens", "all"), template=self._source)
            ids = self._other.encode_source(encoded.rendered, policy, ARRAY)
            assert ids.tolist() == encoded.ids.tolist()
        return encoded

    def innocent(self, chat, **options):
        """The text and the added tokens of a conversation without typed tokens; many are equal."""
        key = repr((chat, options))
        if key not in self._encoded:
            encoded = self.encode(chat, **options)
            self._encoded[key] = encoded and (encoded.text, self.added(encoded.ids.tolist()))
        return self._encoded[key]

    def added(self, ids):
        return Counter(self._names[id_] for id_ in ids if id_ in self._names)

    def outside(self, encoded):
        """The control tokens that are not within one run of the template's text."""
        data, trusted = encoded.text.encode(), encoded.rendered.trusted_runs
        borders = [len(encoded.text[:at].encode()) for run in trusted for at in run]
        runs = list(zip(borders[::2], borders[1::2], strict=True))
        found = []
        for index in np.flatnonzero(np.isin(encoded.ids, self._control)).tolist():
            start, end = encoded.offsets[index].tolist()
            end = start + len(data[start:end].rstrip())  # tokens may include white space
            start += len(data[start:end]) - len(data[start:end].lstrip())
            if not any(first <= start and end <= last for first, last in runs):
                found.append(self._names[int(encoded.ids[index])])
        return Counter(found)


def type_in_fields(row, encoder):
    """Type each control token into each field of a conversation, by the library."""
    everything = " z ".join(row.family.control)
    for group, fields in FIELDS.items():
        for name, chat in fields.items():
            where = (group, name)
            if not type_in(row, encoder, where, chat, everything, cuts=CUTS):
                continue  # the template does not write this field
            row.written.add(where)
            type_in(row, encoder, where, chat, everything, added_tokens="none")
            for form in ("decoded", "vllm"):
                type_in(row, encoder, where, chat, everything, messages_form=form)
            # Each token alone into every second field; all together go into every one.
            first = len(row.written)
            for turn, token in enumerate(row.family.control[first % 2 :: 2], first):
                type_in(row, encoder, where, chat, token, cuts=[CUTS[turn % len(CUTS)]])
                if name in NAMES and (inner := token[2:-2]) not in ROLES:
                    type_in(row, encoder, where, chat, inner)
                if turn % 4 == 0 and not is_split(name):
                    type_in(row, encoder, where, chat, forms_of(token))


def type_in(row, encoder, where, chat, text, cuts=(0.5,), **options):
    """Type a text into a field, and compare; returns whether the template wrote it."""
    group, name = where
    is_written = False
    for part in cuts if is_split(name) else [1]:
        cut = min(max(1, round(part * len(text))), len(text) - 1)
        typed = encoder.encode(fill(chat, text, cut), **options)
        innocent = encoder.innocent(fill(chat, harmless(text), cut), **options)
        assert (typed is None) == (innocent is None), (where, text)
        if typed is None or innocent is None:
            continue
        shape = harmless(text[:cut] if is_split(name) else text).strip().partition("\n")[0]
        if shape.casefold() in innocent[0].casefold():
            is_written = True
            place = (name, *options.values(), text)
            row.compare(group, place, encoder.added(typed.ids.tolist()), innocent[1])
            if group != "assistant":
                row.outside += [(group, *place, token) for token in encoder.outside(typed)]
    return is_written


def send_requests(row, encoder, client):
    """Type all control tokens into the fields of each route."""
    special = " z ".join(row.family.special)
    everything = " z ".join(row.family.control)
    first = list(FAMILIES).index(row.name)
    # Three routes take the same conversations: each field goes to one of them, in the next family
    # to the next one.
    for turn, (group, name) in enumerate(sorted(row.written), first):
        path = list(SAME_FIELDS)[turn % len(SAME_FIELDS)]
        request = SAME_FIELDS[path](FIELDS[group][name])
        text = special if group == "assistant" else everything
        send_both(row, encoder, client, (path, group, name), request, text)
    # Of the others, each field goes to every second family.
    places = [
        (path, group, name)
        for path, groups in ROUTES.items()
        for group, fields in groups.items()
        for name in fields
    ]
    for path, group, name in places[first % 2 :: 2]:
        text = special if group in ("assistant", "special") else everything
        send_both(row, encoder, client, (path, group, name), ROUTES[path][group][name], text)


def send_both(row, encoder, client, where, request, text):
    """Send a request with a text and one with a harmless text, and compare."""
    typed, innocent = (
        send(client, where[0], row.name, fill(request, given, len(text) // 2), encoder)
        for given in (text, harmless(text))
    )
    assert (typed is None) == (innocent is None), where
    if typed is not None and innocent is not None:
        row.compare("requests", where, typed, innocent)


def send(client, path, name, request, encoder):
    """The added tokens of a response, or the number of its tokens; None if it is a 422."""
    path = path.replace("{model:path}", name_of(name))
    response = client.post(path, json={**request, "tokenizer": name_of(name)})
    body = response.json()
    if response.status_code in (400, 422):
        return None
    assert response.status_code == 200, body
    for key in ("tokens", "token_ids"):
        if key in body:
            return encoder.added(body[key])
    if "chunks" in body:
        return encoder.added([id_ for chunk in body["chunks"] for id_ in chunk["tokens"]])
    [count] = [body[key] for key in ("input_tokens", "count", "totalTokens") if key in body]
    return Counter({"tokens": count})


def name_of(family):
    return family.lower().replace(" ", "-")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    store = ArtifactStore(tmp_path_factory.mktemp("families"))
    for name, family in FAMILIES.items():
        store.publish(family.tokenizer(family.spec(), "auto").spec, name=name_of(name))
    with serve(store, default=name_of("ChatML")) as client:
        yield client


@pytest.fixture(scope="module")
def table():
    """The rows of the table, printed at the end for `make injection`."""
    rows = []
    yield rows
    print("", f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER), *rows, sep="\n")


@pytest.mark.row(38)
@pytest.mark.parametrize("name", FAMILIES)
def test_no_typed_token_counts(name, client, table):
    row = Row(name, FAMILIES[name])
    encoder = Encoder(row.family)
    type_in_fields(row, encoder)
    send_requests(row, encoder, client)
    table.append(row.line)
    assert row.outside == [], f"{len(row.outside)} of {name}"
    documented = (REPOSITORY / "docs" / "chat.md").read_text(encoding="utf-8")
    assert row.line in documented, f"docs/chat.md lacks this row: {row.line}"


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].shared])
def test_no_typed_token_counts_in_a_real_vocabulary(name, shared_data):
    family = FAMILIES[name]
    spec = Tokenizer.load(shared_data / family.shared).spec
    known = {token.content for token in spec.added_tokens}
    special, written, fim = (
        tuple(filter(known.__contains__, tokens))
        for tokens in (family.special, family.written, family.fim)
    )
    row = Row(name, replace(family, special=special, written=written, fim=fim))
    encoder = Encoder(row.family, spec)
    everything = " z ".join(row.family.control)
    for group, fields in FIELDS.items():
        for field_name, chat in fields.items():
            for added_tokens in ("all", "none"):
                where = (group, field_name)
                type_in(row, encoder, where, chat, everything, added_tokens=added_tokens)
    assert row.cases["messages"] > 10
    assert row.outside == []


@pytest.mark.parametrize("path", LIKE_ROUTES)
def test_no_typed_token_counts_in_a_route_like_others(path, client):
    for name in ("Qwen 3", "Command R7B"):
        row = Row(name, FAMILIES[name])
        encoder = Encoder(row.family)
        for group, fields in LIKE_ROUTES[path].items():
            tokens = row.family.special if group == "assistant" else row.family.control
            for field_name, request in fields.items():
                where = (path, group, field_name)
                send_both(row, encoder, client, where, request, " z ".join(tokens))
        assert row.cases["requests"] > len(LIKE_ROUTES[path]["messages"]) / 2
        assert row.outside == []


def test_every_route_is_typed_into_or_listed(client):
    app = client.app
    paths = {
        context.path
        for context in iter_route_contexts(app.routes)
        if {"POST", "PUT"} & set(context.methods or ()) and not context.path.startswith("/v1/")
    }
    assert {*ROUTES, *SAME_FIELDS, *LIKE_ROUTES} | OTHER_ROUTES.keys() == paths


def test_a_streamed_text_gives_no_control_token(client):
    for name, family in FAMILIES.items():
        text = " z ".join(family.control)
        query = {"tokenizer": name_of(name), "allowed_special": "none", "added_tokens": "none"}
        response = client.post(
            "/encode_stream", params=query, content=text, headers={"content-type": "text/plain"}
        )
        records = [json.loads(line) for line in response.text.splitlines()]
        ids = [id_ for record in records for id_ in record.get("tokens", ())]
        assert len(ids) >= len(text), response.text[:200]
        assert not Encoder(family).added(ids), name


def test_files_of_conversations_give_no_control_token():
    """As the job of `/corpora/{corpus_id}/encode` and `tokenizer encode` encode them."""
    for name in ("Qwen 3", "GLM 4.5", "Kimi K2", "EXAONE"):
        encoder = Encoder(FAMILIES[name])
        counts = []
        everything = " z ".join(FAMILIES[name].control)
        for text in (everything, harmless(everything)):
            messages = [
                {"role": "system", "content": text},
                {"role": "user", "content": text},
                {"role": "assistant", "content": "a"},
            ]
            line = json.dumps({"messages": messages}).encode()
            files = ConversationEncoder(encoder.tokenizer, turn_ends=FAMILIES[name].special)
            [(ids, _, _)] = files.encode(encoder.tokenizer, [line])
            counts.append(encoder.added(ids.tolist()))
        assert counts[0] == counts[1], name


def test_the_assistant_may_hold_tokens_that_are_not_special():
    """As documented: they are tokens in the assistant's messages, and `none` makes them text."""
    for name, family in FAMILIES.items():
        encoder = Encoder(family)
        for token in family.control:
            chat = {"messages": [{"role": "assistant", "content": f"a {token} b"}]}
            encoded = encoder.encode(chat)
            assert encoded is not None
            innocent = encoder.innocent({"messages": [{"role": "assistant", "content": "a b"}]})
            assert innocent is not None
            added = encoder.added(encoded.ids.tolist()) - innocent[1]
            expected = [token] if token in family.soft and f"a {token} b" in encoded.text else []
            assert list(added) == expected, (name, token)


def test_an_added_token_that_nothing_names_is_a_token_everywhere():
    """As documented: `--control-token` names it, and `added_tokens="none"` makes it text."""
    family = FAMILIES["Qwen 3"]
    tokenizer = family.tokenizer(family.spec(), "auto")
    unnamed = tokenizer.with_chat_templates(dict(tokenizer.chat_templates), control_tokens=())
    for token in family.fim:
        chat = [{"role": "user", "content": token}]
        ids = [unnamed.token_to_id(token)]
        assert [id_ for id_ in unnamed.encode_chat(chat).ids if id_ in ids] == ids
        for made, options in ((tokenizer, {}), (unnamed, {"added_tokens": "none"})):
            assert ids[0] not in made.encode_chat(chat, **options).ids
