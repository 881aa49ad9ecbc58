"""What can be asked of a text and a tokenizer: cuts, round trips, merge trees."""
