"""The service: HTTP over `tokenizer_core`, with training jobs and a hot swap.

`app.main.create_app` builds it, `app.cli` runs it. Imports go down: routes know the live
tokenizers, those know the settings, and nothing here is imported by `tokenizer_core`.
"""
