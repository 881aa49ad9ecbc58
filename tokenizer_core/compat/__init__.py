"""Other libraries' interfaces to this library's tokenizers: same names, same ids.

- `tiktoken`: replaces `import tiktoken`; tiktoken itself is not needed.
- `transformers`: a tokenizer class of Hugging Face's `transformers`, which is needed.
"""
