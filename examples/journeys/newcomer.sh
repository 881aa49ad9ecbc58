#!/bin/sh
# The first minutes with the command and the library: no network, no service, no data.
# Run it in an empty folder.
set -eu

# The package has a tokenizer of its own, and GPT-2's.
tokenizer encode 'Hello, world!'
tokenizer encode --tokenizer gpt2 'Hello, world!' | tokenizer decode --tokenizer gpt2
echo # decode adds no newline
tokenizer encode --tokenizer gpt2 --pieces 'naïve café'

# Learn one, choose it, and use it without naming it.
python3 -c 'import this' > zen.txt
tokenizer train zen.txt --vocab-size 400 --name zen --promote --quiet
tokenizer inspect zen --longest 3
tokenizer count 'Beautiful is better than ugly.'

# Which needs fewer tokens? And take it to another program.
tokenizer report zen gpt2 --corpus zen=zen.txt --quiet
tokenizer convert zen --to tokenizer.json --output zen.json
python3 - <<'END'
from tokenizer_core import Tokenizer

tokenizer = Tokenizer.load("zen.json")
ids = tokenizer.encode("Beautiful is better than ugly.")
print(len(ids), "tokens:", tokenizer.pieces("Beautiful is better than ugly."))
END
