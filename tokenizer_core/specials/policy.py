"""Which added tokens of a source count, and the functions that refuse a text for those that it
holds. The options (`allowed_special`, `disallowed_special`) have tiktoken's names.

How to ask that no added token counts:

    in a text                         `allowed_special="ordinary"` or `encode_ordinary`
    in untrusted segments, messages   `added_tokens="none"`; see `PolicyMatchers.trusts_of`
    in a text, by HTTP                `added_tokens="none"` too: `Policy.of_text`
    within this package               the matcher `NO_TOKENS`

Which tokens are control tokens: `chat.control_tokens`. The default for documents:
`corpus.token_plan.specials_of_documents`. `compat.tiktoken` has tiktoken's own rule, which ignores
unknown names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokenizer_core.errors import (
    SpecialTokenForbiddenError,
    SpecialTokenReachedError,
    UnknownSpecialTokenError,
)
from tokenizer_core.specials.matcher import SpecialTokenMatcher, is_any_outside
from tokenizer_core.specials.matchers import matcher_of_rest, matcher_of_spec, matcher_of_strings
from tokenizer_core.specials.parts import normalized_parts, search_for
from tokenizer_core.specials.segments import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokenizer_core.spec import AddedToken, TokenizerSpec

Allowed = (
    Literal["all", "none", "ordinary"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]
)

AddedTokens = Literal["all", "none"]
"""Whether added tokens that are no control tokens count in untrusted text."""

Disallowed = Literal["all"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]


class Policy(NamedTuple):
    """Which added tokens count: `allowed` and `disallowed` in a text, `added_tokens` in segments
    and conversations, for which `template` is the source of the chat template."""

    allowed: Allowed = "all"
    disallowed: Disallowed = ()
    added_tokens: AddedTokens = "all"
    template: str | None = None

    @classmethod
    def of_text(
        cls,
        allowed: Allowed = "all",
        disallowed: Disallowed = (),
        added_tokens: AddedTokens = "all",
    ) -> Policy:
        """That of a text: `allowed`, or with `added_tokens="none"` no added token at all. Raises
        ValueError: another `added_tokens`, or `"none"` with names in `allowed`."""
        _check_added_tokens(added_tokens)
        if added_tokens == "none" and not isinstance(allowed, str):
            raise ValueError("added_tokens='none' recognises no token of allowed_special; omit one")
        return cls("ordinary" if added_tokens == "none" else allowed, disallowed)

    @property
    def options(self) -> dict[str, Any]:
        """Those of a text, as arguments of a tokenizer's methods."""
        return {"allowed_special": self.allowed, "disallowed_special": self.disallowed}


class PolicyMatchers:
    """What finds the added tokens of a spec that count by a policy."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._added, self._special = frozenset(spec.added_ids), frozenset(spec.special_tokens)
        names: tuple[Allowed, ...] = ("all", "none", "ordinary")
        resolved = (resolve_policy(spec.added_tokens, name, ())[0] for name in names)
        self._by_name = {n: matcher_of_spec(spec, r) for n, r in zip(names, resolved, strict=True)}
        self.all = self._by_name["all"]
        """Finds every added token."""

    def for_any_text(self, policy: Policy) -> SpecialTokenMatcher | None:
        """What finds the tokens that count in any text; None if the policy names some, which are
        resolved each time, or disallows some, which are searched in each text."""
        allowed, disallowed = policy.allowed, policy.disallowed
        is_simple = isinstance(allowed, str) and not disallowed and disallowed is not None
        return self._by_name.get(allowed) if is_simple else None

    def for_text(self, text: str, policy: Policy) -> SpecialTokenMatcher:
        """What finds the added tokens that count in a text.

        Raises:
            SpecialTokenForbiddenError: the text has a token that the policy disallows.
            Exception: as `resolve_policy`.
        """
        matcher = self.for_any_text(policy)
        return self.for_texts([text], policy) if matcher is None else matcher

    def for_texts(
        self,
        texts: Sequence[str],
        policy: Policy,
        encode: Callable[[Sequence[str], SpecialTokenMatcher], object] = lambda *_: None,
    ) -> SpecialTokenMatcher:
        """As `for_text`, for many texts. `encode` is called with those before one that is refused:
        the error of an earlier text comes first."""
        spec, allowed, disallowed = self._spec, policy.allowed, policy.disallowed
        recognised, forbidden = resolve_policy(spec.added_tokens, allowed, disallowed)
        matcher = matcher_of_spec(spec, recognised)
        for number, text in enumerate(texts if forbidden else ()):
            try:
                forbid(text, forbidden)
                forbid_normalized(spec, matcher, forbidden, text)
            except SpecialTokenForbiddenError:
                encode(texts[:number], matcher)
                raise
        return matcher

    def trusts_of(
        self,
        policy: Policy,
        text: str,
        runs: list[tuple[int, int]],
        find_control: Callable[[], frozenset[str]],
        assistant_runs: Callable[[], list[tuple[int, int]]] | None = None,
    ) -> list[Trust]:
        """Where the guarded tokens count, which are the control tokens, or all by
        `added_tokens="none"`: in the trusted `runs`. In a conversation those of them that are not
        special count in the assistant's messages too. Raises ValueError: another `added_tokens`."""
        _check_added_tokens(policy.added_tokens)
        if policy.added_tokens == "none":
            return [Trust(self._added, runs)]
        control = find_control()
        written = control - self._special if assistant_runs is not None else frozenset[str]()
        own = assistant_runs() if assistant_runs is not None and written else runs
        if own == runs:
            return [Trust(control, runs)]
        trusts = [Trust(control - written, runs), Trust(written, own)]
        # Engines find tokens within one list of runs. Most users write no such token.
        is_simple = not (self._spec.normalizer.steps or self._spec.reachable_added_ids)
        if is_simple and not is_any_outside(text, matcher_of_strings(written), own):
            return trusts[:1]
        return trusts

    def for_runs(
        self,
        text: str,
        trusts: Sequence[Trust],
        encode: Callable[[str], list[int]],
        begins: Literal["text", "part", "inside"] = "text",
    ) -> SpecialTokenMatcher:
        """What finds the added tokens of a text with these trusts; the runs of the first are within
        those of the others. `begins` as `normalized_parts`. Raises SpecialTokenReachedError: plain
        text gives the id of a guarded token."""
        if trusts[0].runs == [(0, len(text))]:
            return self.all
        matcher: SpecialTokenMatcher
        if any(trust.runs for trust in trusts):
            matcher = self.all.trusting(*trusts)
        else:
            matcher = matcher_of_rest(self._spec, *(trust.control for trust in trusts))
        guarded = (self._spec.added_ids[token] for trust in trusts for token in trust.control)
        ids = self._spec.reachable_added_ids.intersection(guarded)
        parts = normalized_parts(self._spec, matcher, text, begins=begins) if ids else ()
        for plain, _ in parts:
            if reached := ids.intersection(encode(plain)):
                id_ = min(reached)
                raise SpecialTokenReachedError(id_, self._spec.vocab[id_])
        return matcher


def _check_added_tokens(value: str) -> None:
    if value not in ("all", "none"):
        raise ValueError(f"added_tokens must be 'all' or 'none', not {value!r:.40}")


def resolve_policy(
    added_tokens: Collection[AddedToken], allowed: Allowed, disallowed: Disallowed
) -> tuple[frozenset[str], frozenset[str]]:
    """The strings to recognise and the strings to forbid, for these options.

    Added tokens that are not special are content: they are recognised under every policy but
    "ordinary", which recognises no added token. With `disallowed` "all", every special token is
    forbidden that `allowed` does not name. (In tiktoken the pair "all", "all" forbids none.)

    Raises:
        UnknownSpecialTokenError: `allowed` names a token that this tokenizer does not have.
        ValueError: another string than those, or an empty one among the disallowed.
        TypeError: `allowed` or `disallowed` is an iterator.
    """
    special = {token.content for token in added_tokens if token.special}
    content = {token.content for token in added_tokens if not token.special}
    if allowed == "ordinary":
        allowed, content = "none", set()
    recognised = _resolve_allowed(special | content, special, allowed) | content
    if isinstance(disallowed, str):
        if disallowed != "all":
            raise ValueError(
                f"disallowed_special must be 'all' or a collection of strings, "
                f"not {disallowed!r:.60}"
            )
        forbidden = frozenset(special if isinstance(allowed, str) else special - recognised)
    else:
        forbidden = frozenset(_collected(disallowed, "disallowed_special"))
        if not all(isinstance(name, str) and name for name in forbidden):
            raise ValueError("disallowed_special must hold strings that are not empty")
    return recognised, forbidden


def _collected(names: object, option: str) -> Collection[str]:
    """`names`, unless they can be read only once: an option applies to every text."""
    if not isinstance(names, Collection):
        raise TypeError(f"{option} must be a set or list of strings, not {type(names).__name__}")
    return names


def _resolve_allowed(known: set[str], special: set[str], allowed: Allowed) -> frozenset[str]:
    if isinstance(allowed, str):
        if allowed == "all":
            return frozenset(special)
        if allowed == "none":
            return frozenset()
        raise ValueError(
            f"allowed_special must be 'all', 'none', 'ordinary' or a collection of strings, "
            f"not {allowed!r:.60}"
        )
    names = frozenset(_collected(allowed, "allowed_special"))
    unknown = sorted(names - known)
    if unknown:
        listed = ", ".join(map(repr, sorted(special)[:8])) or "none at all"
        raise UnknownSpecialTokenError(
            "allowed_special",
            f"allowed_special names {unknown[0]!r:.60}, which this tokenizer does not have; "
            f"its special tokens: {listed}",
        )
    return names


def forbid(text: str, forbidden: frozenset[str]) -> None:
    """Raise SpecialTokenForbiddenError if `text` contains one of `forbidden`."""
    forbid_matches(matcher_of_strings(forbidden), text)


def forbid_normalized(
    spec: TokenizerSpec, matcher: SpecialTokenMatcher, forbidden: frozenset[str], text: str
) -> None:
    """Raise SpecialTokenForbiddenError if a normalized part of `text`, in which `matcher` finds
    the recognised tokens, has one of `forbidden` that is searched there."""
    if not spec.normalizer.steps or not spec.normalized_tokens & forbidden:
        return
    guard, normalize = search_for(spec, matcher_of_strings(forbidden)), spec.normalizer.normalize
    for start, end, _ in search_for(spec, matcher).parts(text):
        forbid_matches(guard.second, normalize(text[start:end]), guard.names)


def forbid_matches(
    guard: SpecialTokenMatcher, text: str, names: Mapping[str, str] | None = None
) -> None:
    """Raise SpecialTokenForbiddenError if `guard` finds a token in `text`; `names`: the tokens that
    its strings stand for, if not themselves."""
    found = guard.find(text)
    if found is not None:
        raise SpecialTokenForbiddenError(names[found] if names else found)
