"""Errors cross processes by pickle."""

import copy
import errno

import pytest

from tokenizer_core import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownTokenIdError(3, 9, 5, "row 1"),
        errors.InvalidUtf8Error(7, is_cut=True),
        errors.ChatShapeError("/content", "must be a text", 2),
        errors.ConversationError("no turns", "no_turns"),
        errors.DocumentRefusedError(3, "a token", "<|end|>"),
        errors.StorageTooLargeError("too large", "v1"),
        errors.ArtifactStorageError(errno.ENOSPC, "No space left"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_pickled_error_keeps_its_message_and_fields(error):
    again = copy.copy(error)  # by the same protocol
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert getattr(again, "errno", None) == getattr(error, "errno", None)
