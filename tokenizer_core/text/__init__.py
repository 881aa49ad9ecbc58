"""Operations on a text with a tokenizer: truncating, chunking, round trips and merge trees."""
