"""Build the compiled engine, `tokenizer_core._native`, if a Rust toolchain is available.

pyproject.toml has everything else about the package. Without Rust or its crates, the installation
succeeds and the Python engine computes the ids. With TOKENIZER_REQUIRE_NATIVE=1 in the environment
a failed build is an error, so that a compile error is not hidden.

The build also copies the starter tokenizer and the file of GPT-2's preset from artifacts/ into the
library, which finds them there outside a checkout.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import _StaticPth, editable_wheel
from setuptools_rust import Binding, RustExtension

REQUIRED = os.environ.get("TOKENIZER_REQUIRE_NATIVE", "") not in ("", "0")

# Remove old modules, or a failed build would use them: setuptools packs all of build/, and an
# editable installation imports from the source tree. There, remove only the module of this Python,
# because the tree may have one for each Python.
HERE = Path(__file__).parent
stale = [*HERE.glob("build/lib*/tokenizer_core/_native*")]
if "editable_wheel" in sys.argv:
    stale.append(HERE / "tokenizer_core" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")
for module in stale:
    module.unlink(missing_ok=True)


class BuildWithArtifacts(build_py):
    """Copies what is committed in artifacts/ into the library; the source tree has it once."""

    def run(self):
        """Build the modules, then copy."""
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib, "tokenizer_core", "artifacts")
        shutil.rmtree(built, ignore_errors=True)
        for folder in (Path("tokenizers", "starter"), Path("presets")):
            left_out = shutil.ignore_patterns("compiled")
            shutil.copytree(HERE / "artifacts" / folder, built / folder, ignore=left_out)


class EditableByPath(editable_wheel):
    """Puts the two source folders on the path: type checkers do not see setuptools' import hook."""

    def _select_strategy(self, name, *_):
        return _StaticPth(self.distribution, name, [HERE, HERE / "app"])


setup(
    cmdclass={"build_py": BuildWithArtifacts, "editable_wheel": EditableByPath},
    rust_extensions=[
        RustExtension(
            "tokenizer_core._native",
            path="tokenizer_core/native/Cargo.toml",
            binding=Binding.PyO3,
            args=["--locked"],
            debug=False,
            optional=not REQUIRED,
        )
    ],
)
