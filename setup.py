"""Builds the compiled engine, `tokenizer_core._native`, when there is a Rust toolchain.

All else about the package stands in pyproject.toml. Without Rust, or where its crates cannot be
had, the package installs all the same and the Python engine serves. With TOKENIZER_REQUIRE_NATIVE=1
in the environment a build that fails is an error, so that a compile error never hides.
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

REQUIRED = os.environ.get("TOKENIZER_REQUIRE_NATIVE", "") not in ("", "0")

if "editable_wheel" in sys.argv:
    # An editable installation runs what lies in the source tree: when this build fails, the module
    # of an older one must not stay and pass for it.
    for module in Path(__file__).parent.glob("tokenizer_core/_native*.so"):
        module.unlink()

setup(
    rust_extensions=[
        RustExtension(
            "tokenizer_core._native",
            path="tokenizer_core/native/Cargo.toml",
            binding=Binding.PyO3,
            args=["--locked"],
            debug=False,
            optional=not REQUIRED,
        )
    ]
)
