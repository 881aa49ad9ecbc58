"""Tokenizer: the public class for encoding and decoding.

It combines special tokens, normalization and an engine, and returns results as lists, arrays,
offsets or JSON. `from_*` and `save_*` call `formats`. Immutable, thread-safe, picklable, and safe
under fork and spawn.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tokenizer_core import compiled
from tokenizer_core.engines import ARRAY, ARRAYS, COUNT, LIST, LISTS, create_engine
from tokenizer_core.engines.base import (
    checked_number,
    list_ids,
    plain_ints,
    require_characters,
    require_text,
)
from tokenizer_core.engines.native_calls import join_segments
from tokenizer_core.engines.protocol import is_array
from tokenizer_core.errors import (
    ChatInputError,
    InvalidSpecError,
    OtherModelError,
    SpecialTokenForbiddenError,
    UnknownTokenIdError,
)
from tokenizer_core.presets import (
    download_model_folder,
    find_packaged,
    load_path_spec,
    read_preset,
)
from tokenizer_core.spec import TokenizerSpec, require_spec
from tokenizer_core.spec.added_tokens import check_as_given, first_cut_token, list_added_tokens
from tokenizer_core.spec.chat_templates import ChosenTemplate, choose_template
from tokenizer_core.spec.document_end import find_document_end
from tokenizer_core.specials.parts import NO_TOKENS, normalized_parts
from tokenizer_core.specials.policy import Policy, PolicyMatchers
from tokenizer_core.specials.segments import Trust
from tokenizer_core.stopping import check_stop
from tokenizer_core.text.drift import (
    UNDECIDED,
    Extension,
    continue_text,
    decode_rows,
    first_difference,
    first_differences,
    list_rows,
    rows_of,
)
from tokenizer_core.text.pieces import Pieces
from tokenizer_core.text.streaming import StreamingEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.chat.loss_mask import ChatEncoding
    from tokenizer_core.chat.messages import MessagesForm
    from tokenizer_core.chat.renderer import RenderedChat, RenderLimits
    from tokenizer_core.engines import Engine, Wanted
    from tokenizer_core.engines.protocol import BodyEncoder, CacheStatistics, Result
    from tokenizer_core.formats.any_format import Target
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.policy import AddedTokens, Allowed, Disallowed
    from tokenizer_core.specials.segments import Segment
    from tokenizer_core.splitting.patterns import SplitPattern

    Path = str | PathLike[str]
    Ids = Iterable[int] | NDArray[np.integer]
    Batch = Iterable[Ids] | NDArray[np.integer]
    Source = str | Iterable[Segment] | RenderedChat

_FEED_CHARS = 1 << 14
_SAMPLE = "Hello, world! Naïve café, 東京, 👩‍👩‍👧\n\tdef f(x): return x + 12345"


class Tokenizer:
    """Byte-level BPE: text to token ids and back, always the same ids as the reference.

    `vocab` maps id to bytes and `merges` lists pairs in order, as the course's trainer returns
    them; special tokens missing from the vocabulary are appended after the largest id, in the
    given order. Special tokens given here are recognised in text by default: for untrusted text,
    encode with `allowed_special="none"`. A merge that makes a token which the pattern `gpt2`
    cuts is a UserWarning: it is the default, and these merges may belong to another one.

    Raises:
        InvalidSpecError: the vocabulary, merges or special tokens do not fit together.
        UnknownPatternError: no split pattern has that name.

    Example:
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"low"}
        >>> tokenizer = Tokenizer(vocab, [(b"l", b"o"), (b"lo", b"w")], ["<|end|>"])
        >>> tokenizer.encode("low<|end|>")
        [257, 258]
        >>> tokenizer.decode([257, 258])
        'low<|end|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | SplitPattern = "gpt2",
        engine: str = "auto",
    ) -> None:
        spec = TokenizerSpec.from_merges(vocab, merges, special_tokens or (), pattern=pattern)
        check_as_given(spec)
        cut = first_cut_token(spec) if spec.pattern.name == "gpt2" else None
        if cut is not None:
            warnings.warn(
                f"the merges make {cut!r:.60}, which the split pattern gpt2 cuts, so no text gives "
                f"it. If they belong to another pattern, give that (pattern='cl100k'). Special "
                f"tokens are added to a tokenizer by Tokenizer.with_special_tokens",
                stacklevel=2,
            )
        self._set_up(spec, create_engine(spec, engine))

    @classmethod
    def from_spec(cls, spec: TokenizerSpec, *, engine: str | Engine = "auto") -> Tokenizer:
        """Create a tokenizer for an existing spec, with an engine of this name, or this one of the
        spec. Raises InvalidSpecError: the parts of the spec do not fit together."""
        require_spec(spec)
        if isinstance(engine, str):
            spec.check()
        tokenizer = cls.__new__(cls)
        made = create_engine(spec, engine) if isinstance(engine, str) else engine
        tokenizer._set_up(spec, made)
        return tokenizer

    def save(self, path: Path) -> None:
        """Write a `tokenizer.json` to a path that ends in `.json`, else the folder that
        `AutoTokenizer` of transformers reads, with the chat templates, and the stop tokens in
        `generation_config.json` (but without named control tokens). `load` reads both. Files of
        these names are replaced, each completely or not at all; a `generation_config.json` stays.

        Raises:
            FormatError: ids depend on what the format cannot hold.
            ConversionError: the folder has chat templates in files of their own, or other stop
                tokens, which would count in place of those of the tokenizer.
            OSError: a file cannot be written.
        """
        import pathlib

        from tokenizer_core.formats.model_folder import names_to_write

        folder = pathlib.Path(path)
        if folder.suffix == ".json":
            self._write("tokenizer.json", folder)
            return
        names = names_to_write(self._spec, folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._write("transformers", *(folder / name for name in names))

    @classmethod
    def load(cls, path: Path, *, ids: str | None = None, engine: str = "auto") -> Tokenizer:
        """Load a file or a folder of any supported format; the content determines the format.

        `starter` is the tokenizer of the package, unless a file or folder has this name.
        A file is a `tokenizer.json`, a `tekken.json`, SentencePiece's `tokenizer.model` or the
        published `.tiktoken` file of a preset. A folder is that of a published version, or a model
        folder of Hugging Face: `tokenizer.json` (or `vocab.json` and `merges.txt`) and the files
        beside it (`tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`,
        `config.json`). A `tokenizer.model` there that gives other ids is a UserWarning.
        For a model folder, `encode(text, add_special_tokens=True)` gives the ids of `AutoTokenizer`
        of `transformers`. If releases of it give a folder different ids (Llama 2, SmolLM), choose
        with `ids`: `transformers4` (release 4.57.6), `transformers5` (5.24.0) or `file`, those of
        `tokenizer.json` alone. Behaviour of a release that is not known here is refused by name.

        Raises:
            FormatError: no supported format, or a setting that is not supported. A vocabulary with
                merges (`from_files`) and other `.tiktoken` files (`from_tiktoken`) need arguments.
            InvalidSpecError: the parts do not form a tokenizer.
            OSError: a file cannot be read.
        """
        path = find_packaged(path)
        find_key = partial(compiled.key_of_path, path, ids=ids)
        read = partial(load_path_spec, path, ids=ids)
        try:
            spec, made = compiled.load(find_key, read, engine)
        except OtherModelError as error:
            from tokenizer_core.compat.other_models import load_library_tokenizer

            return load_library_tokenizer(path, error)
        return cls.from_spec(spec, engine=made)

    @classmethod
    def from_preset(cls, name: str, *, path: Path | None = None, engine: str = "auto") -> Tokenizer:
        """Load a published vocabulary by name: `gpt2`, `r50k_base`, `p50k_base`, `p50k_edit`,
        `cl100k_base`, `o200k_base` or `o200k_harmony`.

        The preset supplies the split pattern and the special tokens. Its `.tiktoken` file, which
        must have the pinned sha256, is `path`, or found by `presets.cached_paths` (the command
        `tokenizer pull` puts it there). This method downloads nothing.

        Raises:
            PresetError: no preset has this name, or its file is not on this machine.
            FormatError: the file at `path` is not the published one.
        """
        preset, data = read_preset(name, path)
        find_key = partial(compiled.key_of, b"preset", preset.name.encode(), data)
        spec, made = compiled.load(find_key, partial(preset.build_spec, data), engine)
        return cls.from_spec(spec, engine=made)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        revision: str | None = None,
        ids: str | None = None,
        engine: str = "auto",
    ) -> Tokenizer:
        """Download the tokenizer of a model from the Hugging Face Hub and `load` its folder.

        `name` is `owner/name`; `revision` is a branch, a tag or a commit. Only the files of the
        tokenizer are fetched. Needs the extra `hub`; the variables of `huggingface_hub` apply
        (`HF_ENDPOINT`, `HF_HOME`, `HF_HUB_OFFLINE`). Raises HubError: `huggingface_hub` is not
        installed, or the download failed.
        """
        folder = download_model_folder(name, revision)
        return cls.load(folder, ids=ids, engine=engine)

    @classmethod
    def from_files(
        cls,
        vocab_filepath: Path,
        merges_filepath: Path,
        special_tokens: Mapping[str, int] | Iterable[str] | None = None,
        *,
        pattern: str | SplitPattern | None = None,
        engine: str = "auto",
    ) -> Tokenizer:
        """Load pickles as the trainer writes them, or GPT-2's `vocab.json` and `merges.txt`; the
        content determines the format.

        `special_tokens` may be a dict with the ids that they must have. These files contain no
        split pattern. A `manifest.json` in the same folder does, and must agree with the arguments.
        Without one the pattern is `gpt2`, as in the course, and a token of the vocabulary that
        looks special (`<|endoftext|>`) and is not in `special_tokens` is a UserWarning: no text
        would give its id. Raises FormatError: a file is malformed, or the manifest or the ids
        disagree with an argument.
        """
        from tokenizer_core.formats.any_format import load_files_spec

        spec = load_files_spec(vocab_filepath, merges_filepath, special_tokens, pattern)
        return cls.from_spec(spec, engine=engine)

    @classmethod
    def from_tiktoken(
        cls,
        path: Path,
        *,
        pattern: str | SplitPattern,
        special_tokens: Mapping[str, int],
        engine: str = "auto",
    ) -> Tokenizer:
        """Load a `.tiktoken` rank file. The file contains neither pattern nor special tokens: pass
        both."""
        from tokenizer_core.formats.tiktoken_file import load_tiktoken_ranks

        def find_key() -> bytes | None:
            if not (isinstance(pattern, str) and isinstance(special_tokens, dict)):
                return None
            given = repr([pattern, *special_tokens.items()])
            key = compiled.key_of_path(path)
            return key and compiled.key_of(b"ranks", key, given.encode())

        def read() -> TokenizerSpec:
            ranks = load_tiktoken_ranks(path)
            return TokenizerSpec.from_ranks(ranks, special_tokens, pattern=pattern)

        spec, made = compiled.load(find_key, read, engine)
        return cls.from_spec(spec, engine=made)

    def save_files(self, vocab_filepath: Path, merges_filepath: Path) -> None:
        """Write the vocabulary and merges as pickles."""
        self._write("pickle", vocab_filepath, merges_filepath)

    def save_gpt2_files(self, vocab_json: Path, merges_txt: Path) -> None:
        """Write `vocab.json` and `merges.txt` in GPT-2's alphabet."""
        self._write("gpt2", vocab_json, merges_txt)

    def save_tiktoken(self, path: Path) -> None:
        """Write a `.tiktoken` rank file. Raises FormatError: no ranks give the same ids as the
        merges."""
        self._write("tiktoken", path)

    def _write(self, target: Target, *paths: Path) -> None:
        from tokenizer_core.formats.any_format import write_files

        write_files(target, self._spec, *paths)

    @property
    def spec(self) -> TokenizerSpec:
        """The spec of the tokenizer."""
        return self._spec

    @property
    def engine(self) -> Engine:
        """The engine that computes the ids."""
        return self._engine

    @property
    def engine_name(self) -> str:
        """`python` or `native`."""
        return self._engine.name

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including added ones; ids may have gaps, see `spec.largest_id`."""
        return self._spec.vocab_size

    @property
    def n_vocab(self) -> int:
        """The largest id + 1: the rows that an embedding needs. `vocab_size` counts the tokens."""
        return self._spec.largest_id + 1

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens and their ids, a new dict."""
        return dict(self._spec.special_tokens)

    @cached_property
    def control_tokens(self) -> frozenset[str]:
        """The added tokens that untrusted text does not give: the special tokens, those that the
        literals of a chat template write, and those that the import names. See docs/chat.md."""
        from tokenizer_core.chat.control_tokens import find_control_tokens

        return find_control_tokens(self._spec)

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """The chat templates: name -> Jinja source, `default` first; read-only. They come with a
        model folder or a published version, or from `with_chat_templates`."""
        return MappingProxyType(self._spec.chat.sources)

    @property
    def template_variables(self) -> Mapping[str, str]:
        """What a chat template reads of the tokenizer: `bos_token`, `eos_token` and the other named
        tokens, as `transformers` 5 passes them; read-only. If no file names them, they are
        `bos_token`, `eos_token` and `unk_token` as far as the special tokens tell."""
        return MappingProxyType(self._template_variables)

    @cached_property
    def _template_variables(self) -> Mapping[str, str]:
        from tokenizer_core.formats.model_folder import named_special_tokens

        variables = self._spec.chat.variables
        return named_special_tokens(self._spec) if variables is None else variables

    @property
    def eot_token(self) -> int:
        """The id of the token that ends a document: see `find_document_end`. Raises LookupError:
        nothing says which token it is."""
        known = self._spec.special_tokens
        try:
            return known[find_document_end(self._spec)[0]]
        except LookupError as error:
            way_on = "it has no special token"
            if known:
                listed = ", ".join(map(repr, list(known)[:8]))
                way_on = f"choose one of its special tokens with token_to_id: {listed}"
            raise LookupError(f"{error}; {way_on}") from None

    def with_chat_templates(
        self,
        templates: Mapping[str, str],
        *,
        variables: Mapping[str, str] | None = None,
        control_tokens: Iterable[str] | None = None,
    ) -> Tokenizer:
        """A copy with these chat templates, name -> Jinja source; the one called `default` is used
        where no name is given. `variables` replace `template_variables`; `control_tokens` are
        further added tokens that no user may write. The ids of a text and the fingerprint stay.
        Raises InvalidSpecError: a malformed name, more than 16 templates, more than 1 MiB in one,
        or a control token that is no added token.

        Example:
            >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> copy = tokenizer.with_chat_templates({"default": "{{ messages }}"})
            >>> copy.chat_templates["default"], copy == tokenizer
            ('{{ messages }}', True)
        """
        kept = self._spec.chat.variables if variables is None else variables
        named = self._spec.chat.control_tokens if control_tokens is None else tuple(control_tokens)
        chat = replace(self._spec.chat, sources=templates, variables=kept, control_tokens=named)
        made = object.__new__(type(self))
        made._set_up(self._spec.with_chat(chat), self._engine)
        return made

    def with_special_tokens(self, tokens: Iterable[str]) -> Tokenizer:
        """A copy with these special tokens besides its own: one that is new gets the next id after
        the largest. All else stays: the ids of a text without them, the split pattern, the chat
        templates and the stop tokens. Raises InvalidSpecError: a token is empty, given twice, a
        token of plain text, or an added token that is not special.

        Example:
            >>> tokenizer = Tokenizer.from_preset("gpt2").with_special_tokens(["<pad>"])
            >>> tokenizer.encode("Hello<pad><|endoftext|>")
            [15496, 50257, 50256]
        """
        spec = self._spec
        known = spec.special_tokens
        new = [token for token in list_added_tokens(tokens) if token not in known]
        content = next((token for token in spec.added_ids if token in new), None)
        if content is not None:
            raise InvalidSpecError(
                f"{content!r:.60} is an added token already (id {spec.added_ids[content]}) and not "
                f"special: a text gives its id whatever special tokens are allowed. Leave it out, "
                f"or write special: true in its tokenizer.json, and load that"
            )
        made = spec.with_added_tokens(new)
        for token in made.added_tokens[len(spec.added_tokens) :]:
            if token.id in spec.vocab:
                raise InvalidSpecError(
                    f"{token.content!r:.60} is a token of the vocabulary already (id {token.id}), "
                    f"which the ids of plain text may need; choose another text, or declare it "
                    f"special where the tokenizer is loaded"
                )
        return self.from_spec(made, engine=self.engine_name)

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of a token, or None if there is none. A string that is an added token gives its
        id. Of tokens with equal bytes, the one that encoding gives is returned.

        The text of the token is as in the text that it encodes (` the`, not `Ġthe`).
        """
        if isinstance(token, str):
            if token in self._spec.added_ids:
                return self._spec.added_ids[token]
            token = token.encode()
        elif not isinstance(token, bytes):
            raise TypeError(f"token must be a str or bytes, not {type(token).__name__}")
        found = self._spec.token_to_id.get(token)
        if found is not None:
            return found
        return next((id_ for id_, data in self._spec.vocab.items() if data == token), None)

    def id_to_token(self, id_: int) -> bytes | None:
        """The bytes of a token, or None if no token has this id. A token may be a part of a
        character, so that only its bytes are exact."""
        vocab = self._spec.vocab
        return vocab.get(id_ if type(id_) is int else plain_ints(vocab, [id_])[0])

    def encode(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The token ids of `text`.

        `allowed_special` (`"all"`, `"none"` or names) selects the special tokens to recognise;
        `"ordinary"` recognises no added token at all. A special token of `disallowed_special`
        (`"all"` or names) in the text is an error. All other special tokens are plain text.
        `add_special_tokens` adds the ids of the tokenizer's post-processor (Llama 3's
        `<|begin_of_text|>`).

        Raises:
            SpecialTokenForbiddenError: the text contains a disallowed special token.
            UnicodeEncodeError: the text contains a lone surrogate.
        """
        if allowed_special == "all" and disallowed_special == () and not add_special_tokens:
            try:
                return self._encode_to_list(text)
            except TypeError:
                require_text(text)
                raise
        require_text(text)
        policy = Policy(allowed_special, disallowed_special)
        return self.encode_source(text, policy, LIST, add_special_tokens=add_special_tokens)

    def encode_ordinary(self, text: str) -> list[int]:
        """The token ids of `text` as plain text: no added token is recognised, not even content
        tokens. For untrusted text."""
        return self._engine.encode(text, NO_TOKENS)

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        num_threads: int | None = None,
    ) -> NDArray[np.uint32]:
        """As `encode`, as an array of shape (n_tokens,), uint32.

        `num_threads` bounds the threads of an engine that has them (default: one); the Python
        engine always uses one.
        """
        is_default = allowed_special == "all" and disallowed_special == ()
        if is_default and num_threads is None and not add_special_tokens:
            try:
                return self._encode_to_array(text)
            except TypeError:
                require_text(text)
                raise
        require_text(text)
        policy, wanted = Policy(allowed_special, disallowed_special), _array_by(num_threads)
        return self.encode_source(text, policy, wanted, add_special_tokens=add_special_tokens)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        unit: Literal["byte", "char"] = "byte",
    ) -> tuple[list[int], NDArray[np.uint64]]:
        """The token ids, and each token's start and end in `text`: shape (n_tokens, 2), uint64.

        `unit="byte"` counts UTF-8 bytes. `unit="char"` counts characters and includes every
        character of which a token has a byte, so neighbours may overlap. With a normalizer, the
        offsets refer to `text` as given. With NFC alone, a token of composed characters covers all
        of them; with other normalizers it covers what Hugging Face says, often the first of them.
        An added token with `lstrip` or `rstrip` includes the white space around it. Ids that
        `add_special_tokens` adds are empty, at the start and at the end of the text.
        """
        require_text(text)
        policy = Policy(allowed_special, disallowed_special)
        ids, offsets = self.encode_source_with_offsets(
            text, policy, unit, add_special_tokens=add_special_tokens
        )
        return ids.tolist(), offsets

    def encode_segments(
        self,
        segments: Iterable[Segment],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
    ) -> list[int]:
        """The token ids of a text of which only some parts may hold control tokens.

        A segment is a text and whether it is trusted: `("<|user|>", True), (question, False)`. The
        ids are those of the joined text, with one restriction: one of `control_tokens` is
        recognised only where all its characters are trusted (adjacent trusted segments count as
        one). Elsewhere it is plain text. Other added tokens are recognised everywhere, or with
        `added_tokens="none"` as control tokens are. See docs/chat.md for the definition with flags
        and normalizers.

        Raises:
            SpecialTokenReachedError: the vocabulary makes a control token of plain text, by its
                merges, and would do so here.
            TypeError: a segment is no pair of a `str` and a `bool`.
            UnicodeEncodeError: a segment contains a lone surrogate.

        Example:
            >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
            >>> tokenizer.encode_segments([("a<|e", False), ("nd|><|end|>", True)])[-4:]
            [100, 124, 62, 256]
        """
        policy = Policy(added_tokens=added_tokens)
        return self.encode_source(
            _pairs(segments), policy, LIST, add_special_tokens=add_special_tokens
        )

    def encode_segments_to_numpy(
        self,
        segments: Iterable[Segment],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
        num_threads: int | None = None,
    ) -> NDArray[np.uint32]:
        """As `encode_segments`, as an array of shape (n_tokens,), uint32; `num_threads` as for
        `encode_to_numpy`."""
        policy, wanted = Policy(added_tokens=added_tokens), _array_by(num_threads)
        return self.encode_source(
            _pairs(segments), policy, wanted, add_special_tokens=add_special_tokens
        )

    def encode_segments_with_offsets(
        self,
        segments: Iterable[Segment],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
        unit: Literal["byte", "char"] = "byte",
    ) -> tuple[list[int], NDArray[np.uint64]]:
        """As `encode_segments`, and each token's start and end in the joined text, as
        `encode_with_offsets`: shape (n_tokens, 2), uint64."""
        policy = Policy(added_tokens=added_tokens)
        ids, offsets = self.encode_source_with_offsets(
            _pairs(segments), policy, unit, add_special_tokens=add_special_tokens
        )
        return ids.tolist(), offsets

    def count_segments(
        self,
        segments: Iterable[Segment],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
        limit: int | None = None,
    ) -> int:
        """The number of token ids of `encode_segments`; `limit` as for `count`."""
        policy = Policy(added_tokens=added_tokens)
        return self._count(_pairs(segments), policy, limit, add_special_tokens)

    def encode_source(
        self,
        source: Source,
        policy: Policy,
        wanted: Wanted[Result],
        *,
        add_special_tokens: bool = False,
    ) -> Result:
        """What is `wanted` of the ids of a text, segments or a rendered conversation, in which
        `policy` says which added tokens count; errors as of the methods above.

        Example:
            >>> from tokenizer_core.engines import COUNT
            >>> from tokenizer_core.specials.policy import Policy
            >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
            >>> tokenizer.encode_source([("a<|end|>", True)], Policy(), COUNT)
            2
        """
        if isinstance(source, str) and (matcher := self._matchers.for_any_text(policy)) is not None:
            key = matcher, wanted, add_special_tokens
            encode: Callable[[str], Result] | None = self._encoders.get(key)
            if encode is None:
                encode = self._engine.encoder(matcher, self._around(wanted, add_special_tokens))
                if wanted.limit is None and wanted.num_threads is None:  # so there are few keys
                    self._encoders[key] = encode
            return encode(source)
        text, matcher = self._find_tokens(source, policy)
        return self._engine.encode(text, matcher, self._around(wanted, add_special_tokens))

    def body_encoder(self, policy_of: Callable[[bytes], Policy | None]) -> BodyEncoder:
        """As `Engine.body_encoder`. `policy_of` takes the body with an empty text, and returns its
        policy, or None for a body that the function must not encode."""

        def matcher_of(options: bytes) -> SpecialTokenMatcher | None:
            policy = policy_of(options)
            return None if policy is None else self._matchers.for_any_text(policy)

        return self._engine.body_encoder(matcher_of)

    def encode_source_with_offsets(
        self,
        source: Source,
        policy: Policy,
        unit: Literal["byte", "char"] = "byte",
        *,
        add_special_tokens: bool = False,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """As `encode_source`, an array of the ids, and where each token is in the text, as
        `encode_with_offsets`. The ids that `add_special_tokens` adds are empty, at the start and at
        the end of the text."""
        if unit not in ("byte", "char"):
            raise ValueError(f"unit must be 'byte' or 'char', not {unit!r:.40}")
        text, matcher = self._find_tokens(source, policy)
        ids = self._engine.encode(text, matcher, self._around(ARRAY, add_special_tokens))
        offsets = self._find_offsets(text, matcher, ids, add_special_tokens)
        if unit == "byte":
            return ids, offsets
        from tokenizer_core.text.offsets import char_offsets

        return ids, char_offsets(text, offsets)

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        num_threads: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> list[list[int]]:
        """The token ids of each text, in order; the options are those of `encode`.

        With `num_threads` above 1 (default: one), the native engine divides the work between that
        many threads. The Python engine divides it between this process and `num_threads - 1`
        others, in blocks of at least 128 kB. Starting these processes for each call takes some
        tenths of a second, so they save time only from some megabytes on.
        """
        workers = checked_number(num_threads, "num_threads") or 1
        texts = list_texts(texts)
        if not self._engine.has_threads:
            from tokenizer_core.parallel.batches import encode_batch_over_processes, plain_policy

            options = (plain_policy(allowed_special), plain_policy(disallowed_special))
            with _naming_wrong(texts):
                listed = encode_batch_over_processes(self, texts, options, workers)
        else:
            wanted = LISTS._replace(num_threads=workers)
            listed = self._encode_batch(texts, allowed_special, disallowed_special, wanted)
        before, after = self._ids_around(add_special_tokens)
        return [[*before, *ids, *after] for ids in listed] if before or after else listed

    def encode_batch_to_numpy(
        self,
        texts: Sequence[str],
        *,
        num_threads: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """The token ids of all texts, shape (n_tokens,), uint32, and offsets of shape
        (n_texts + 1,), uint64: the ids of text `i` are `ids[offsets[i]:offsets[i + 1]]`.

        The options are those of `encode_to_numpy`.
        """
        wanted = ARRAYS._replace(num_threads=checked_number(num_threads, "num_threads"))
        ids, offsets = self._encode_batch(
            list_texts(texts), allowed_special, disallowed_special, wanted
        )
        before, after = self._ids_around(add_special_tokens)
        if not (before or after):
            return ids, offsets
        import numpy as np

        # Ids for the same position keep this order: those after a text, those before the next one.
        at = np.stack([offsets[:-1]] * len(before) + [offsets[1:]] * len(after), axis=1).ravel()
        added = np.array([before + after] * (len(offsets) - 1), dtype=np.uint32).ravel()
        n_added = np.arange(len(offsets), dtype=np.uint64) * np.uint64(len(before + after))
        return np.insert(ids, at.astype(np.int64), added), offsets + n_added

    def encode_iterable(
        self,
        iterable: Iterable[str],
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> Iterator[int]:
        """The token ids of the joined texts, lazily and in bounded memory.

        The ids do not depend on where the texts were cut.
        """
        stream = StreamingEncoder(
            self,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )
        waiting: list[str] = []
        n_chars = 0
        # Collect lines: a call of the stream takes as long as encoding some hundred bytes.
        for number, text in enumerate(iterable):
            if not isinstance(text, str):
                raise TypeError(f"texts[{number}] must be a str, not {type(text).__name__}")
            waiting.append(text)
            n_chars += len(text)
            if n_chars >= _FEED_CHARS:
                yield from stream.feed("".join(waiting))
                waiting, n_chars = [], 0
        yield from stream.feed("".join(waiting))
        yield from stream.finish()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | ChosenTemplate | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        messages_form: MessagesForm = "raw",
        with_loss: bool = False,
        limits: RenderLimits | None = None,
    ) -> RenderedChat:
        """The text of a conversation by a chat template, as `apply_chat_template` of transformers
        gives it, with the origin of each character.

        `chat_template` is the name of one of `chat_templates`, a Jinja source, or a template that
        `choose_template` gave. Without it, the template `tool_use` is used if it exists and there
        are tools, else `default`. `template_kwargs` are further variables for the template
        (`enable_thinking`). `continue_final_message` ends the text after the content of the last
        message, or after the field that it names. A template of the tokenizer runs in this process
        if all of its operations have a bound; any other runs in a child process within `limits`.

        Raises:
            ChatTemplateMissingError: the tokenizer has no such template.
            ChatInputError: `messages` is no list of objects, or does not fit the options.
            ChatTemplateError: the template is invalid or refuses these messages.
            ChatLimitError: rendering takes more time, memory or text than `limits` allow.
        """
        from tokenizer_core.chat.messages import form_messages
        from tokenizer_core.chat.renderer import render_chat

        template = choose_template(self.chat_templates, chat_template, with_tools=tools is not None)
        variables = self.template_variables
        formed = form_messages(
            messages_form,
            template.source,
            messages,
            tools,
            documents,
            variables=variables,
            kwargs=template_kwargs,
            may_run_here=template.is_own,
            limits=limits,
        )
        with formed.naming_request():
            return render_chat(
                template.source,
                formed.messages,
                variables=variables,
                tools=formed.tools,
                documents=documents,
                kwargs=template_kwargs,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                with_turn_borders=with_loss,
                may_run_here=template.is_own,
                limits=limits,
            )

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | ChosenTemplate | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        add_special_tokens: bool = False,
        messages_form: MessagesForm = "raw",
        with_loss: bool = False,
        limits: RenderLimits | None = None,
    ) -> ChatEncoding:
        """The ids of a conversation; arguments and errors as `render_chat`.

        Control tokens (`control_tokens`, and those that `chat_template` writes) come
        from the template and the tokenizer's variables only. In the text of messages, tools and
        documents they are plain text (see `encode_segments`), but the assistant's messages may hold
        those that are not special. With `added_tokens="none"`, all added tokens come from the
        template only. `add_special_tokens` is as in `encode`, for the few templates that leave
        those tokens out. `with_loss` prepares `ChatEncoding.loss_mask`.

        Example:
            >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
            >>> template = "{% for m in messages %}{{ m.content + '<|end|>' }}{% endfor %}"
            >>> tokenizer = tokenizer.with_chat_templates({"default": template})
            >>> tokenizer.encode_chat([{"role": "user", "content": "hi"}]).ids.tolist()
            [104, 105, 256]
        """
        from tokenizer_core.chat.loss_mask import ChatEncoding

        template = choose_template(self.chat_templates, chat_template, with_tools=tools is not None)
        rendered = self.render_chat(
            messages,
            tools=tools,
            documents=documents,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=template_kwargs,
            messages_form=messages_form,
            with_loss=with_loss,
            limits=limits,
        )
        text = rendered.text
        policy = Policy(added_tokens=added_tokens, template=template.source)
        _, matcher = self._find_tokens(rendered, policy)
        ids = self._engine.encode(text, matcher, self._around(ARRAY, add_special_tokens))
        return ChatEncoding(
            ids,
            rendered,
            self._spec.added_tokens,
            lambda: self._find_offsets(text, matcher, ids, add_special_tokens),
            template,
            self._spec.chat.turn_ends,
        )

    def pieces(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> Pieces:
        """The text cut into its tokens, to look at; a notebook shows them in colour."""
        ids = self.encode(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )
        return Pieces(text, ids, self._spec.vocab)

    def count(
        self,
        text: str,
        *,
        limit: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> int:
        """The number of token ids of `text`, without building them.

        With a `limit`, counting may stop once it is exceeded: a result above `limit` means "more
        than the limit" and need not be the full number; one up to `limit` is.
        """
        require_text(text)
        policy = Policy(allowed_special, disallowed_special)
        return self._count(text, policy, limit, add_special_tokens)

    def decode(self, ids: Ids, errors: str = "replace", skip_special_tokens: bool = False) -> str:
        """The text of `ids` (a sequence of ints or an integer array).

        Bytes that are not UTF-8 become U+FFFD, or an error with `errors="strict"`.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary; names index and id.
            TypeError: an element is no integer (a float, a bool, a string).
            UnicodeDecodeError: with `errors="strict"`.
        """
        checked = _check_ids(ids)
        if skip_special_tokens:
            checked = list_ids(checked.tolist() if is_array(checked) else checked)
            with suppress(TypeError, UnknownTokenIdError):  # the rest names the index in `ids`
                return self.decode([id_ for id_ in checked if id_ not in self._special_ids], errors)
        if self._spec.alphabet.has_characters:
            from tokenizer_core.text.decode_streams import StreamingDecoder

            decoder = StreamingDecoder(self, errors=errors)
            return decoder.feed(checked) + decoder.flush()
        return self._engine.decode(checked, errors)

    def decode_batch(
        self,
        batch: Iterable[Ids],
        errors: str = "replace",
        skip_special_tokens: bool = False,
        *,
        num_threads: int | None = None,
    ) -> list[str]:
        """The text of each element, in order; the rest as `decode`. `num_threads` as for
        `encode_to_numpy`."""
        checked_number(num_threads, "num_threads")
        rows = list_rows(batch)
        texts = None
        if errors == "replace":
            skips = skip_special_tokens
            with suppress(TypeError, UnknownTokenIdError):  # `decode_rows` names the row
                texts = self._engine.decode_batch(rows, num_threads, skip_special=skips)
        if texts is None:
            return decode_rows(rows, lambda ids: self.decode(ids, errors, skip_special_tokens))
        return texts

    def decode_bytes(self, ids: Ids) -> bytes:
        """The bytes of `ids`, joined; they are not UTF-8 if they end inside a character. The first
        space is left out where encoding puts one before a text (Llama 2, Mistral).

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary; names index and id.
            TypeError: an element is no integer (a float, a bool, a string).
        """
        data = self._engine.decode(_check_ids(ids), None)
        return data.removeprefix(b" ") if self._spec.normalizer.strips_space else data

    def extend(
        self,
        ids: Ids,
        text: str | Iterable[Segment],
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        added_tokens: AddedTokens = "all",
    ) -> Extension:
        """`ids` unchanged, then the ids of `text` as it continues them; and the first index where
        `encode(decode(ids) + text)` differs from that.

        For a conversation with a model: what it has seen and made keeps its ids. `text` is encoded
        by itself, as if a boundary were before it. After an added token it is encoded as `encode`
        does there; after other ids, the normalizer puts no space before it. The special-token
        options are those of `text`; `added_tokens="none"` recognises none in it. Of segments, the
        ids are those of `encode_segments`, with which the whole is compared too, after the trusted
        text of `ids`.

        Raises:
            UnknownTokenIdError, TypeError: as `decode`.
            SpecialTokenForbiddenError: `text` contains a disallowed special token.
            UnicodeEncodeError: `text` contains a lone surrogate.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
            >>> tokenizer = Tokenizer(vocab, [(b"a", b"b")], ["<|end|>"])
            >>> tokenizer.extend([97, 98, 257], "ab")  # 257 is <|end|>
            Extension(ids=[97, 98, 257, 256], drift_at=0)
        """
        given, before = self._checked_ids(ids)
        if not hasattr(text, "__iter__"):
            require_text(text)
        if isinstance(text, str | bytes):
            require_characters(text)
            policy = Policy.of_text(allowed_special, disallowed_special, added_tokens)
            extended = self._continue(given, text, policy)
            again = self.encode_to_numpy(before + text)
        else:
            if allowed_special != "all" or disallowed_special:
                raise ValueError("allowed_special and disallowed_special belong to a text alone")
            segments, policy = _pairs(text), Policy(added_tokens=added_tokens)
            extended = self._continue(given, segments, policy)
            again = self.encode_source([(before, True), *segments], policy, ARRAY)
        return Extension(extended, first_difference(extended, again))

    def extend_chat(
        self,
        ids: Ids,
        earlier: Sequence[Mapping[str, Any]],
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | ChosenTemplate | None = None,
        add_generation_prompt: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        limits: RenderLimits | None = None,
    ) -> Extension:
        """`ids` unchanged, then the ids of what the chat template writes for `messages` after the
        `earlier` ones, which `ids` hold; and the first index where `encode_chat` of all of them
        differs from that.

        For training with tools: the ids that a model generated stay, whatever the template would
        write for its message. The text that ends its turn is added unless it is there: `ids` may
        end with the turn's text, with the token that the model wrote to end it (that of the
        template or of the model folder), or with text that the template writes after the turn.
        Arguments and errors as `encode_chat`.

        Raises:
            UnknownTokenIdError, TypeError: as `decode`.
            ChatInputError: there are ids or earlier messages, and not both; `messages` change what
                the template is given of the earlier ones; or it does not say where they end.

        Example:
            >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
            >>> template = "{% for m in messages %}{{ m.content + '<|end|>' }}{% endfor %}"
            >>> tokenizer = tokenizer.with_chat_templates({"default": template})
            >>> chat = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
            >>> tokenizer.extend_chat([97], chat[:1], chat[1:])
            Extension(ids=[97, 256, 98, 256], drift_at=None)
        """
        given, _ = self._checked_ids(ids)
        template = choose_template(self.chat_templates, chat_template, with_tools=tools is not None)
        options: dict[str, Any] = {
            "tools": tools,
            "documents": documents,
            "chat_template": template,
            "template_kwargs": template_kwargs,
            "messages_form": messages_form,
            "limits": limits,
        }
        if bool(given) != bool(earlier):
            raise ChatInputError(
                "ids and earlier messages belong together: give the messages that the ids hold"
            )
        chat = self.encode_chat(
            [*earlier, *messages],
            add_generation_prompt=add_generation_prompt,
            added_tokens=added_tokens,
            **options,
        )
        at = 0
        if given:
            at = chat.end_of(self.render_chat(earlier, **options), given, self.decode)
        policy = Policy(added_tokens=added_tokens, template=template.source)
        extended = self._continue(given, chat.rendered, policy, at)
        return Extension(extended, first_difference(extended, chat.ids))

    def canonical(self, ids: Ids) -> bool:
        """Whether `encode(decode(ids))` gives `ids`; see `first_drift`."""
        return self.first_drift(ids) is None

    def canonical_batch(
        self,
        batch: Batch,
        offsets: NDArray[np.integer] | None = None,
        *,
        num_threads: int | None = None,
    ) -> NDArray[np.bool_]:
        """`canonical` of each row, shape (n_rows,); the rest as `first_drift_batch`."""
        return self.first_drift_batch(batch, offsets, num_threads=num_threads) < 0

    def first_drift(
        self, ids: Ids, *, allowed_special: Allowed = "all", disallowed_special: Disallowed = ()
    ) -> int | None:
        """The first index where `encode(decode(ids))` differs from `ids`; None if they are equal.
        If one is the beginning of the other, this is its length.

        Ids whose bytes are not UTF-8 decode to U+FFFD, so encoding never returns them.

        Raises:
            UnknownTokenIdError, TypeError: as `decode`.
            SpecialTokenForbiddenError: the decoded text contains a disallowed special token.
            CancelledError: another thread cancelled the call.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
            >>> tokenizer = Tokenizer(vocab, [(b"a", b"b")])
            >>> tokenizer.first_drift([120, 97, 98]), tokenizer.first_drift([120, 256])
            (1, None)
        """
        listed = ids if is_array(ids) else list_ids(ids)
        text = self.decode(listed)
        check_stop()
        again = self.encode_to_numpy(
            text, allowed_special=allowed_special, disallowed_special=disallowed_special
        )
        check_stop()
        return first_difference(listed, again)

    def first_drift_batch(
        self,
        batch: Batch,
        offsets: NDArray[np.integer] | None = None,
        *,
        num_threads: int | None = None,
    ) -> NDArray[np.int64]:
        """The `first_drift` of each row, -1 where there is none, shape (n_rows,).

        `batch` is a list of ids, an array of shape (n_rows, n_tokens), or all ids in one array with
        `offsets` of shape (n_rows + 1,), as `encode_batch_to_numpy` returns them. `num_threads` as
        for `encode_to_numpy`.

        Raises:
            UnknownTokenIdError, TypeError: as `decode`; names the row.
            ValueError: the offsets do not fit the ids.
        """
        import numpy as np

        checked_number(num_threads, "num_threads")
        rows = rows_of(batch, offsets)
        found = self._engine.first_drifts(rows, self._matchers.all, num_threads)
        if found is None:
            found = np.full(len(rows), UNDECIDED, dtype=np.int64)
        left = np.flatnonzero(found == UNDECIDED).tolist()
        if left:
            chosen = [rows[index] for index in left]
            texts = self._engine.decode_batch(chosen, num_threads)
            if texts is None:
                texts = decode_rows(chosen, self.decode)
            encode = partial(self.encode_batch_to_numpy, num_threads=num_threads)
            found[left] = first_differences(chosen, texts, encode)
        return found

    def cache_statistics(self) -> CacheStatistics:
        """The statistics of the engine's pre-token cache."""
        return self._engine.cache_statistics()

    def __repr__(self) -> str:
        spec = self._spec
        return (
            f"<Tokenizer {spec.kind}, {self.vocab_size} tokens, pattern {spec.pattern.name}, "
            f"{self.engine_name} engine, {spec.fingerprint[:8]}>"
        )

    def _repr_html_(self) -> str:
        sample = self.pieces(_SAMPLE + next(iter(self._spec.special_tokens), ""))
        from html import escape

        return f"<div><code>{escape(repr(self))}</code></div>{sample._repr_html_()}"

    def __len__(self) -> int:
        """`vocab_size`."""
        return self.vocab_size

    def __eq__(self, other: object) -> bool:
        """Whether both give the same ids by definition: equal fingerprints, with any engine."""
        return self._spec == other._spec if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._spec)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name[:1] != "_" or name[:2] == "__"]

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self).from_spec, engine=self.engine_name), (self._spec,)

    def __setattr__(self, name: str, value: object) -> None:
        if type(self) is Tokenizer and not name.startswith("_"):
            raise AttributeError(f"a Tokenizer is immutable; it has no {name!r:.80} to set")
        super().__setattr__(name, value)

    def _set_up(self, spec: TokenizerSpec, engine: Engine) -> None:
        self._spec, self._engine = spec, engine
        self._special_ids = frozenset(spec.special_tokens.values())
        self._matchers = PolicyMatchers(spec)
        self._encode_to_list = self._engine.encoder(self._matchers.all, LIST)
        self._encode_to_array = self._engine.encoder(self._matchers.all, ARRAY)
        self._encoders: dict[tuple[object, ...], Callable[[str], Any]] = {}

    def _encode_batch(
        self,
        texts: list[str],
        allowed: Allowed,
        disallowed: Disallowed,
        wanted: Wanted[Result],
    ) -> Result:
        encode = partial(self._engine.encode_batch, wanted=wanted)
        with _naming_wrong(texts):
            matcher = self._matchers.for_texts(texts, Policy(allowed, disallowed), encode)
            return self._engine.encode_batch(texts, matcher, wanted)

    def _find_tokens(self, source: Source, policy: Policy) -> tuple[str, SpecialTokenMatcher]:
        """The text of a source, and what finds the added tokens that count in it."""
        if isinstance(source, str):
            return source, self._matchers.for_text(source, policy)
        text, trusts = self._trusted(source, policy)
        return text, self._matchers.for_runs(text, trusts, self._engine.encode)

    def _trusted(
        self, source: Iterable[Segment] | RenderedChat, policy: Policy
    ) -> tuple[str, list[Trust]]:
        """The text of a source, and where the guarded tokens count in it."""
        from tokenizer_core.chat.control_tokens import find_control_tokens
        from tokenizer_core.chat.renderer import RenderedChat

        trusts_of, template = self._matchers.trusts_of, policy.template
        if not isinstance(source, RenderedChat):
            text, runs = join_segments(source)
            return text, trusts_of(policy, text, runs, lambda: self.control_tokens)
        text, runs = source.text, source.trusted_runs
        written = (text[start:end] for start, end in runs)
        find = partial(
            find_control_tokens, self._spec, template, () if template is None else written
        )
        return text, trusts_of(policy, text, runs, find, lambda: source.assistant_runs)

    def _checked_ids(self, ids: Ids) -> tuple[list[int], str]:
        """The ids as plain ints, and their text; raises as `decode`."""
        listed = ids.tolist() if is_array(ids) else list_ids(ids)
        text = self.decode(listed)
        return list(map(index, listed)), text

    def _continue(self, given: list[int], source: Source, policy: Policy, at: int = 0) -> list[int]:
        """`given`, and after them the ids of the text of `source` from its character `at` on."""
        text, trusts = (source, []) if isinstance(source, str) else self._trusted(source, policy)
        rest, begins = continue_text(self._spec, given[-1] if given else None, text[at:])
        if isinstance(source, str):
            matcher = self._matchers.for_text(text, policy)
        else:
            within = [trust.within(len(text) - len(rest), len(text)) for trust in trusts]
            matcher = self._matchers.for_runs(rest, within, self._engine.encode, begins)
        extended = [*given]
        for plain, token in normalized_parts(self._spec, matcher, rest, begins=begins):
            extended += self._engine.encode(plain)
            extended += [] if token is None else [self._spec.added_ids[token]]
        return extended

    def _count(
        self, source: Source, policy: Policy, limit: int | None, add_special_tokens: bool
    ) -> int:
        n_ids = self.encode_source(source, policy, _count_to(limit))
        return n_ids + sum(map(len, self._ids_around(True))) if add_special_tokens else n_ids

    def _ids_around(self, add_special_tokens: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that are put before and after each text."""
        spec = self._spec
        return (spec.prefix_ids, spec.suffix_ids) if add_special_tokens else ((), ())

    def _around(self, wanted: Wanted[Result], add_special_tokens: bool) -> Wanted[Result]:
        before, after = self._ids_around(add_special_tokens)
        return wanted._replace(prefix_ids=before, suffix_ids=after) if before or after else wanted

    def _find_offsets(
        self,
        text: str,
        matcher: SpecialTokenMatcher,
        ids: NDArray[np.uint32],
        add_special_tokens: bool,
    ) -> NDArray[np.uint64]:
        spec = self._spec
        around = tuple(map(len, self._ids_around(add_special_tokens)))
        ids = ids[around[0] : len(ids) - around[1]]
        from tokenizer_core.text.offsets import find_byte_offsets

        found = find_byte_offsets(spec, self._engine, matcher, text, ids, self._token_sizes)
        if not any(around):
            return found
        import numpy as np

        ends = (0, len(text.encode()))
        return np.pad(found, (around, (0, 0)), constant_values=(ends, (0, 0)))

    @cached_property
    def _token_sizes(self) -> NDArray[np.uint32] | None:
        from tokenizer_core.text.offsets import token_sizes

        return token_sizes(self._spec, self._engine)


def _check_ids(ids: Ids) -> Iterable[int] | NDArray[np.integer]:
    """Return the ids; refuse arrays that do not contain integers, and what has no elements."""
    if not is_array(ids):
        return ids if isinstance(ids, list) else list_ids(ids)
    if ids.dtype.kind not in "iu":
        if ids.size:
            raise TypeError(f"ids must be integers, not an array of {ids.dtype}")
        return []
    return ids


def _pairs(segments: Iterable[Segment] | str) -> Iterable[Segment]:
    """Return `segments`; refuse a text, which would count as trusted, also in their place."""
    is_listed = hasattr(segments, "__iter__") and not isinstance(segments, str)
    pairs: list[Any] = list(segments) if is_listed else [segments]
    for pair in pairs:
        if isinstance(pair, str) or not is_listed:
            kind = type(pair).__name__
            raise TypeError(
                f"segments must be pairs of a text and whether it is trusted, not {kind}"
            )
    return pairs


def _array_by(num_threads: int | None) -> Wanted[NDArray[np.uint32]]:
    threads = checked_number(num_threads, "num_threads")
    return ARRAY if threads is None else ARRAY._replace(num_threads=threads)


@contextmanager
def _naming_wrong(texts: Sequence[object]) -> Iterator[None]:
    """Make an error name the first of `texts` that is no str, has a lone surrogate or a token that
    is disallowed."""
    try:
        yield
    except SpecialTokenForbiddenError as error:
        token = error.token
        number = next((n for n, text in enumerate(texts) if token in str(text)), None)
        if number is None:  # the normalized text has it
            raise
        raise SpecialTokenForbiddenError(token, which=f"texts[{number}]") from None
    except (AttributeError, TypeError, UnicodeEncodeError):
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise TypeError(f"texts[{number}] must be a str, not {kind}") from None
            try:
                text.encode()
            except UnicodeEncodeError as error:
                error.reason += f", in texts[{number}]"
                raise error from None
        raise


def _count_to(limit: int | None) -> Wanted[int]:
    """A count with a limit that every engine can hold. Raises ValueError: the limit is below 0."""
    if limit is None:
        return COUNT
    if index(limit) < 0:
        raise ValueError(f"limit must be at least 0, not {limit}")
    return COUNT._replace(limit=min(index(limit), sys.maxsize))


def list_texts(texts: Sequence[str]) -> list[str]:
    """A list that no other thread can change while its texts are checked and encoded. Refuses what
    would give names in place of texts: a dict, and a table, which has two dimensions."""
    is_sequence = hasattr(texts, "__getitem__") and not isinstance(texts, str | Mapping)
    if not is_sequence or getattr(texts, "ndim", 1) != 1:
        remedy = "; list(texts) makes one" if hasattr(texts, "__next__") else ""
        raise TypeError(f"texts must be a list of strings{remedy}")
    return list(texts)
