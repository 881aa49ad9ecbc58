"""The tokenizers that this process serves, and the hot swap."""
