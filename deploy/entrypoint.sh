#!/bin/sh
# Give an empty artifacts folder the tokenizers of the image, then become the command.
#
# The image is read-only and the folder is a volume, so they cannot lie in it beforehand. A
# folder that already holds tokenizers is left as it is. The copy is made beside its place and
# renamed, so that a container killed half-way leaves nothing that looks whole.
set -eu

seed=/usr/local/share/tokenizer/tokenizers
folder=${TOKENIZER_ARTIFACTS_DIR:?is where tokenizers are kept; the image sets it}

if [ -z "$(ls -A "$folder/tokenizers" 2>/dev/null)" ]; then
    staging=$folder/.seeding
    if ! { rm -rf "$staging" && cp -R "$seed" "$staging"; }; then
        echo "cannot write to $folder as user $(id -u); give the volume to that user" \
            "(chown $(id -u):$(id -g)) or mount one that holds tokenizers" >&2
        exit 1
    fi
    if [ -d "$folder/tokenizers" ]; then rmdir "$folder/tokenizers"; fi
    mv "$staging" "$folder/tokenizers"
fi

exec "$@"
