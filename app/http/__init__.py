"""Bytes to requests and back: bodies, headers, framing, connections. Knows no tokenizer."""
