"""Builds the compiled engine, `tokenizer_core._native`, when there is a Rust toolchain.

All else about the package stands in pyproject.toml. Without Rust, or where its crates cannot be
had, the package installs all the same and the Python engine serves. With TOKENIZER_REQUIRE_NATIVE=1
in the environment a build that fails is an error, so that a compile error never hides.
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

REQUIRED = os.environ.get("TOKENIZER_REQUIRE_NATIVE", "") not in ("", "0")

# When this build fails, the module of an older one must not stay and pass for it: setuptools packs
# whatever lies in build/, and an editable installation runs what lies in the source tree. There
# only this Python's own goes: a module for each Python may lie side by side.
HERE = Path(__file__).parent
stale = [*HERE.glob("build/lib*/tokenizer_core/_native*")]
if "editable_wheel" in sys.argv:
    stale.append(HERE / "tokenizer_core" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")
for module in stale:
    module.unlink(missing_ok=True)

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
