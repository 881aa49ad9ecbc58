"""HTTP: request bodies, headers, responses, framing and connections. Knows no tokenizer."""
