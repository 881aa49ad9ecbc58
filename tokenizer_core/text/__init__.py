"""Functions of a text and a tokenizer: truncating and chunking, round trips, merge trees."""
