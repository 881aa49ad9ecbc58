"""What tests of start-up call slow on this Python."""

import sys

REGEX = {"regex"} if sys.version_info >= (3, 11, 5) else set()
"""Empty where `splitting.possessive` needs it, because `re` is wrong."""
