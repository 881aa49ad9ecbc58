"""Hugging Face `tokenizer.json`: byte-level BPE, read and written exactly; a module for each stage.

`document` reads and writes the whole file, and every other module both reads and writes one field.
GPT-2, Llama 3 and Qwen files merge bytes. A vocabulary of characters with byte fallback, as
SentencePiece makes them (Llama 2, Mistral 7B, Gemma), is another case of each stage: such a file
writes a space as U+2581 and has a token for each byte, `<0x00>` to `<0xFF>`. In a spec, tokens hold
the space itself and the byte itself: the normalizer reads U+2581 in a text as a space, which is all
that the file's normalizer and pre-tokenizer do, except for the space that some put before a text.

Other settings of the file (a dropout, another model, normalizer or post-processor) change ids, so
the reader refuses an unknown field by its name and never skips it. The rules for ids come from the
sources of `tokenizers` 0.23 (`added_vocabulary.rs`, `models/bpe/model.rs`,
`pre_tokenizers/byte_level.rs`).
"""
