"""Which special tokens a call recognises, and which it forbids."""

import pytest

from tokenizer_core.errors import SpecialTokenForbiddenError
from tokenizer_core.spec import AddedToken
from tokenizer_core.specials.policy import forbid, resolve_policy

ADDED = [AddedToken("<s>", 1), AddedToken("</s>", 2), AddedToken("<think>", 3, special=False)]


def test_policy():
    assert resolve_policy(ADDED, "all", ()) == ({"<s>", "</s>", "<think>"}, frozenset())
    assert resolve_policy(ADDED, "ordinary", "all") == (frozenset(), {"<s>", "</s>"})
    assert resolve_policy(ADDED, "none", "all") == ({"<think>"}, {"<s>", "</s>"})
    assert resolve_policy(ADDED, {"<s>"}, "all") == ({"<s>", "<think>"}, {"</s>"})
    assert resolve_policy(ADDED, set(), ["anything"]) == ({"<think>"}, {"anything"})
    forbid("a <s> b", frozenset())
    with pytest.raises(SpecialTokenForbiddenError, match=r"'<s>'.*allowed_special"):
        forbid("a <s> b", frozenset({"<s>", "zzz"}))


@pytest.mark.parametrize(
    ("allowed", "disallowed", "error"),
    [
        ({"<typo>"}, (), ValueError),
        ("some", (), ValueError),
        (iter(["<s>"]), (), TypeError),  # can be read only once
        ("all", iter(["<s>"]), TypeError),
        (None, (), TypeError),
    ],
)
def test_a_wrong_policy_is_refused(allowed, disallowed, error):
    with pytest.raises(error, match=r"special|must be a set or list"):
        resolve_policy(ADDED, allowed, disallowed)
