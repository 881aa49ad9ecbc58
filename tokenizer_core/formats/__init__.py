"""The file formats of tokenizers, one module each, which read and write a TokenizerSpec."""
