"""Expressions with possessive groups, `(...)++`, matched right by every Python.

Before 3.11.5, `re` keeps what a failed repetition of such a group took: `(?:ab?c|d)++` matches
`dda` in `ddab`. The Python of Debian 12 is such a one.
"""

from __future__ import annotations

import re
import sys
from typing import AnyStr, cast


def compile_possessive(expression: AnyStr) -> re.Pattern[AnyStr]:
    """Compile an expression in which `re` and `regex` agree.

    Only a Python whose `re` is wrong uses `regex`: it takes three to six times as long (measured).
    """
    if sys.version_info >= (3, 11, 5):
        return re.compile(expression)
    import regex

    return cast("re.Pattern[AnyStr]", regex.compile(expression))
