"""Targets that read files: each takes any bytes, see `targets`.

A tokenizer's vocabulary needs a token for each of the 256 bytes. Two kilobytes of them in every
input would slow the fuzzer down, so in a text a NUL means these entries.
"""

import base64
import contextlib
import json
import pickle
import re
from urllib.parse import unquote, urlsplit

from tokenizer_client.schemas.tokens import BatchTooLargeError
from tokenizer_core import Tokenizer
from tokenizer_core.documents.corpus_addresses import WEB, check_allowed, parse_address
from tokenizer_core.errors import CorpusError, FormatError, TokenizerCoreError
from tokenizer_core.formats import tiktoken_file
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.manifest_fields import MANIFEST, build_spec
from tokenizer_core.formats.pickle_files import parse_plain_pickle, render_pickle
from tokenizer_core.formats.tiktoken_file import parse_tiktoken_ranks, recover_merges
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.registry import Manifest
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.text.round_trips import check_text
from tokenizer_service.access.errors import AccessError
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs.errors import JobsError

BYTES = {byte: bytes([byte]) for byte in range(256)}
MERGES = [(b"a", b"b"), (b"ab", b"c"), (b" ", b"ab"), (b"\xf0", b"\x9f")]
VOCAB = BYTES | {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
SPECIAL = "<|endoftext|>"
SPEC = TokenizerSpec.from_merges(VOCAB, MERGES, [SPECIAL])
BYTE_ENTRIES = json.dumps(
    {render_token(token): id_ for id_, token in BYTES.items()},
    ensure_ascii=False,
    separators=(",", ":"),
)[1:-1].encode()
BYTE_LINES = b"".join(base64.b64encode(token) + b" %d\n" % id_ for id_, token in BYTES.items())


@contextlib.contextmanager
def taken():
    """The reader has accepted its input; nothing inside this block may refuse it."""
    try:
        yield
    except (TokenizerCoreError, Problem, AccessError, BatchTooLargeError, JobsError) as error:
        raise AssertionError("what was taken is refused afterwards") from error


def plain_pickle(data):
    """`pickle` reads what the target accepts, and it can be written and read again."""
    value = parse_plain_pickle(data)
    with taken():
        assert pickle.loads(data) == value  # it is plain
        assert parse_plain_pickle(render_pickle(value)) == value


def tiktoken(data):
    """Reading at once equals reading by lines; ranks and their merges give the same ids."""
    data = data.replace(b"\0", BYTE_LINES)
    ranks = parse_tiktoken_ranks(data)  # by the native engine, if it is there
    assert ranks == tiktoken_file._parse_line_by_line(data)
    spec = TokenizerSpec.from_ranks(ranks, pattern="gpt2")
    with taken():
        assert parse_tiktoken_ranks(tiktoken_file.render_tiktoken(spec)) == ranks
        text = b"".join(sorted(ranks, key=len)[-20:]).decode(errors="replace")
        ids = Tokenizer.from_spec(spec, engine="python").encode(text)
    merges = recover_merges(ranks)  # refuses ranks that no merge reaches
    with taken():
        merging = TokenizerSpec.from_merges(spec.vocab, merges)
        assert Tokenizer.from_spec(merging, engine="python").encode(text) == ids


def tokenizer_json(data):
    """An accepted tokenizer that can be written can be read again; its texts round-trip."""
    spec = parse_tokenizer_json(data.replace(b"\0", BYTE_ENTRIES))
    with taken():
        tokenizer = Tokenizer.from_spec(spec, engine="python")
        text = "".join(["ab c", *spec.special_tokens, "'ll 12 \n"])
        if spec.normalizer.name == "none":
            assert check_text(tokenizer, text).first_difference is None
    written = render_tokenizer_json(spec)
    with taken():
        assert parse_tokenizer_json(written) == spec


def manifest(data):
    """The reader checks the seal first; a valid seal tests the code after that check."""
    for sealed in (data, _sealed(data)):
        try:
            fields = MANIFEST.parse(sealed)
            read = Manifest.from_json(sealed)
        except FormatError:
            continue
        with taken():
            assert MANIFEST.parse(MANIFEST.render(fields)) == fields
            assert Manifest.from_json(read.to_json()) == read
        assert build_spec(read.spec_fields, SPEC.vocab, SPEC.merges) == SPEC


def _sealed(data):
    """The manifest `data` with a valid seal; unchanged where it cannot have one."""
    try:
        fields = json.loads(data)
        for name in ("format", "format_version", "checksum"):
            del fields[name]
        return MANIFEST.render(fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return data


def corpus_address(data):
    """A root, then an address below it: the standard library reads both in the same way, and
    messages show no password and no query."""
    root, _, path = data.decode("latin-1").partition("\n")
    above, address = parse_address(root), parse_address(path)
    assert parse_address(address.text) == address
    assert not re.match(r"[^/]*:[^/]*@", address.shown.split("://", 1)[1])
    check_allowed(path, [root])
    with contextlib.suppress(CorpusError):
        check_allowed(path, [f"{root}/elsewhere"])
        assert "/elsewhere" in address.text
    with taken():
        assert ".." not in re.split(r"[/\\]", unquote(address.text))
        if address.scheme not in WEB:
            assert address.text.startswith(above.text.rstrip("/"))
            return
        outer, inner = urlsplit(above.text), urlsplit(address.text)
        assert (outer.scheme, outer.netloc) == (inner.scheme, inner.netloc)
        assert f"{inner.path}/".startswith(outer.path.rstrip("/") + "/")
        assert urlsplit(address.shown)[1:] == (inner.netloc.rpartition("@")[2], inner.path, "", "")
