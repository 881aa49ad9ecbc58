"""JSON values that are not lists of token ids, and the pointers that the response names."""

NO_IDS = [
    ("[true]", ["/tokens/0"]),
    ("[1, 1.0]", ["/tokens/1"]),
    ('["1"]', ["/tokens/0"]),
    ("[1, 2, -1, null]", ["/tokens/2", "/tokens/3"]),
    ("[9223372036854775808]", ["/tokens/0"]),
    ("[4294967296]", ["/tokens/0"]),
    (f"[{'9' * 4000}]", ["/tokens/0"]),
    ("1", ["/tokens"]),
    ('"text"', ["/tokens"]),
    ("{}", ["/tokens"]),
]
