# The service as a container: see deploy/README.md for how to run it.
#
#   docker build -t tokenizer-service .
#   docker build -t tokenizer-service --build-arg EXTRAS="s3 postgres" .      for replicas
#
# BASE_IMAGE is any Debian-like image whose `python3` is 3.11, 3.12 or 3.13 and has `venv`. The last
# two stages use it, so that the environment built in the one works in the other. RUST_IMAGE has
# rustup's toolchain in /usr/local; nothing of it is in the result. SOURCE_DATE_EPOCH is the time that
# files say they were made at, so that the same sources and the same base give the same files.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim-bookworm
ARG RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm

FROM ${RUST_IMAGE} AS rust

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV PATH=/usr/local/cargo/bin:$PATH \
    RUSTUP_HOME=/usr/local/rustup \
    CARGO_HOME=/usr/local/cargo \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python3 -m venv /opt/tokenizer
ARG SOURCE_DATE_EPOCH=1767225600
# The dependencies are a layer of their own: a change in the code does not install them again.
COPY pyproject.toml constraints.txt ./
ARG EXTRAS=""
RUN /opt/tokenizer/bin/python -c 'import os, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; extras = project["optional-dependencies"]; print(*project["dependencies"], *(line for name in ["service", *os.environ["EXTRAS"].split()] for line in extras[name]), sep="\n")' > requirements.txt \
 && /opt/tokenizer/bin/python -m pip install --no-compile --constraint constraints.txt --requirement requirements.txt
COPY setup.py README.md LICENSE ./
COPY tokenizer_core tokenizer_core
COPY tokenizer_client tokenizer_client
COPY app app
COPY artifacts/tokenizers/starter artifacts/tokenizers/starter
COPY artifacts/presets artifacts/presets
# An image without the native engine would be many times slower and look the same: it is an error.
RUN TOKENIZER_REQUIRE_NATIVE=1 /opt/tokenizer/bin/python -m pip wheel --no-deps --wheel-dir /wheels . \
 && /opt/tokenizer/bin/python -m pip install --no-compile --no-deps --no-index /wheels/*.whl
# A quarter less: what installs packages, numpy's own tests, uvloop's debugging information. Bytecode is
# made once, here, since the container cannot write it; with hashes for times, which differ from
# build to build, and which nobody has to compare at start.
RUN /opt/tokenizer/bin/python -m pip uninstall --yes setuptools pip \
 && find /opt/tokenizer/lib/python3*/site-packages/numpy -name tests -type d -prune -exec rm -r {} + \
 && strip --strip-debug /opt/tokenizer/lib/python3*/site-packages/uvloop/*.so \
 && find /opt/tokenizer -name __pycache__ -prune -exec rm -r {} + \
 && /opt/tokenizer/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/tokenizer/lib \
 && TOKENIZER_ENGINE=native PYTHONDONTWRITEBYTECODE=1 /opt/tokenizer/bin/tokenizer --version

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="tokenizer-service" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/tokenizer /opt/tokenizer
COPY artifacts/tokenizers/gpt2 /usr/local/share/tokenizer/tokenizers/gpt2
COPY artifacts/tokenizers/starter /usr/local/share/tokenizer/tokenizers/starter
COPY deploy/entrypoint.sh /usr/local/bin/tokenizer-entrypoint
COPY deploy/healthcheck.py /usr/local/bin/tokenizer-healthcheck
# The user has a number, not only a name, so that a platform can see it is not root. The folder
# belongs to it, so that a named volume mounted there does too.
RUN mkdir -p /data/artifacts /data/corpora && chown 10001:10001 /data/artifacts
USER 10001:10001
WORKDIR /data
ENV PATH=/opt/tokenizer/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TOKENIZER_HOST=0.0.0.0 \
    TOKENIZER_PORT=8000 \
    TOKENIZER_ARTIFACTS_DIR=/data/artifacts \
    TOKENIZER_CORPUS_ROOTS=/data/corpora \
    TOKENIZER_REQUIRE_ADMIN_KEY=1
VOLUME /data/artifacts
EXPOSE 8000
# The server ends by itself on SIGTERM, after the requests it has accepted (at most ten seconds).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["tokenizer-healthcheck"]
ENTRYPOINT ["tokenizer-entrypoint"]
CMD ["tokenizer", "serve"]
