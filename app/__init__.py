"""The service: HTTP over `tokenizer_core`, with training jobs and a hot swap.

`app.main.create_app` builds it, `app.cli` runs it. `tokenizer_core` imports nothing of it.
"""
