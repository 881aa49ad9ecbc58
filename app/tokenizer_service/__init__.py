"""The service: HTTP over `tokenizer_core`, with training jobs and a hot swap.

`main.create_app` builds it, `cli` runs it. `tokenizer_core` imports nothing of it.
"""
