"""Random expressions and texts for the two foreign dialects, and what their libraries make of them.

The grammar has more than a translation accepts: what is refused must be refused by name, and what
is accepted must split as in the library.
"""

import tiktoken
from tokenizers import Regex, pre_tokenizers

SIGNS = "abcdsSktflixzAF019_-.,'\"&~^$#/[]{}()|*+?\\<>"
SPACES = " \n\r\t\x0b\x85\u00a0\u2028\u3000"
OTHERS = (
    "\u017f\u212a\u00df\ufb01\ufb06\u00e9\u00c9\u0301\u0345\u00b2\u0663\u216b\u24d0\u01c5\u02b0\u200d"
    "\u6f22\u5b57\u3042\u30ab\uac00\u0416\u03c3\u03c2\u2019\u20ac\U0001f600\U00020000\U0001d7ce"
)

_CATEGORIES = (
    "L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Nd", "Nl", "No", "Pd",
    "Sm", "So", "Zs", "Cc", "Han", "Hiragana", "Latin", "Greek", "Cyrillic", "Letter",
    "uppercase letter", "Alphabetic", "White_Space", "IsGreek", "Script=Han", "sc=Latin", "gc=Lu",
    "Greek_Extended", "Alnum", "Word", "Any", "Punct", "Hangul", "Common", "Emoji",
)  # fmt: skip
_POSIX = ("alpha", "digit", "alnum", "upper", "lower", "punct", "space", "blank", "cntrl", "graph",
          "print", "xdigit", "word", "ascii", "^alpha", "foo")  # fmt: skip


def random_text(random, n_chars):
    """Characters of all kinds, in runs."""
    made = []
    while len(made) < n_chars:
        kind = random.choice([SIGNS[:16], SIGNS, SPACES, OTHERS])
        one = random.choice(kind)
        made += [one] * random.choice([1, 1, 1, 2, 3])
    return "".join(made)


class Grammar:
    """Makes expressions."""

    def __init__(self, random):
        self.random = random

    def expression(self):
        start = self.random.choice(["", "", "", "", "(?i)", "(?m)"])
        return start + self.alternatives(3)

    def alternatives(self, depth):
        return "|".join(self.sequence(depth) for _ in range(self.random.choice([1, 1, 1, 2, 3])))

    def sequence(self, depth):
        n_parts = self.random.choice([1, 1, 2, 2, 3, 4])
        return "".join(self.atom(depth) + self.quantifier() for _ in range(n_parts))

    def quantifier(self):
        if self.random.random() < 0.55:
            return ""
        least = self.random.randrange(3)
        made = self.random.choice(
            ["?", "*", "+", "+", "+", f"{{{least}}}", f"{{{least},}}", f"{{{least},{least + 2}}}",
             f"{{,{least + 1}}}"]
        )  # fmt: skip
        return made + self.random.choice(["", "", "", "?", "+"])

    def atom(self, depth):
        random = self.random
        kind = random.random()
        if kind < 0.35:
            return self.literal()
        if kind < 0.6:
            return self.brackets(2)
        if kind < 0.72:
            return self.shorthand()
        if kind < 0.78:
            return random.choice([".", "^", "$", r"\A", r"\z", r"\Z", r"\b", r"\B"])
        if depth <= 0:
            return self.literal()
        opening = random.choice(
            ["(", "(?:", "(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?i:", "(?m:", "(?s:",
             "(?-i:", "(?<n>", "(?#c)("]
        )  # fmt: skip
        return f"{opening}{self.alternatives(depth - 1)})"

    def literal(self):
        character = self.random.choice(self.random.choice([SIGNS[:16], SIGNS, SPACES[:4], OTHERS]))
        if character in r"\^$.[]{}()|*+?#&~-'<>\"/,":
            return "\\" + character
        code = ord(character)
        return self.random.choice([character] * 6 + [f"\\x{{{code:x}}}", f"\\u{code % 65536:04X}"])

    def shorthand(self):
        random = self.random
        kind = random.random()
        if kind < 0.6:
            return "\\" + random.choice("sdwhSDWH")
        if kind < 0.7:
            return random.choice([r"\pL", r"\PL", r"\pN"])
        negation = random.choice(["", "", "", "^"])
        return f"\\{random.choice('pppP')}{{{negation}{random.choice(_CATEGORIES)}}}"

    def brackets(self, depth):
        random = self.random
        made = random.choice(["[", "[", "[^"])
        if random.random() < 0.06:
            made += random.choice(["]", "-", "--", "&&"])
        for _ in range(random.choice([1, 1, 2, 3])):
            made += self.member(depth) + random.choice(["", self.member(depth)])
            if random.random() < 0.25:
                made += random.choice(["&&", "&&", "--", "~~", "-", "&"]) + self.member(depth)
        return made + random.choice(["]", "]", "]", "]", "-]"])

    def member(self, depth):
        random = self.random
        first = random.choice("aAdms0 \u3042")
        makers = [
            *[self.literal] * 6,
            *[lambda: f"{first}-{chr(ord(first) + random.randrange(12))}"] * 4,
            *[self.shorthand] * 4,
            *[lambda: f"[:{random.choice(_POSIX)}:]"] * 2,
            lambda: r"\b",
            *[lambda: self.brackets(depth - 1) if depth > 0 else ""] * 3,
        ]
        return random.choice(makers)()


class LibraryError(Exception):
    """The library refuses the expression, or stops while it matches."""


def split_by_tiktoken(expression, texts):
    """The pieces of each text in tiktoken: every substring is a token, so each piece is one id."""
    pieces = sorted(
        {
            text[start:end].encode()
            for text in texts
            for start in range(len(text))
            for end in range(start + 1, len(text) + 1)
        }
    )
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    try:
        encoding = tiktoken.Encoding(
            "pieces", pat_str=expression, mergeable_ranks=ranks, special_tokens={}
        )
        ids = [encoding.encode_ordinary(text) for text in texts]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise LibraryError(str(error)) from None
    return [[pieces[id_].decode() for id_ in found] for found in ids]


def split_by_tokenizers(expression, texts, behavior="isolated", *, invert=False):
    """The pieces of each text in Hugging Face's `Split`."""
    try:
        split = pre_tokenizers.Split(Regex(expression), behavior, invert)
        return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise LibraryError(str(error)) from None
