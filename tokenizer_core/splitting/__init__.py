"""Cuts a text into pre-tokens: split patterns, their dialects, and Unicode tables."""
