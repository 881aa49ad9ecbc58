"""The tree agrees with the documents: its top level, names, pins and links."""

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY
from tokenizer_core.splitting.unicode_data import RELEASE
from tokenizer_service.settings import render_page

PACKAGES = ("app", "tokenizer_client", "tokenizer_core")
TOP_LEVEL = {
    # the project
    *PACKAGES, "artifacts", "tests", "Dockerfile", "pyproject.toml",
    # what every project has
    ".ci", ".dockerignore", ".editorconfig", ".github", ".gitignore", "CHANGELOG.md",
    "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "SECURITY.md",
    "benchmarks", "constraints.txt", "deploy", "docs", "examples", "findings", "setup.py",
}  # fmt: skip
NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "common", "manager", "core", "misc"}
DOCS = REPOSITORY / "docs"
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
REQUIREMENTS = {
    "base": PROJECT["dependencies"],
    **PROJECT["optional-dependencies"],
    **PYPROJECT["dependency-groups"],
}


@pytest.fixture(scope="module")
def tracked():
    """The files in git, relative to the top."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    files = [Path(name) for name in listed.stdout.split("\0") if name]
    return [file for file in files if (REPOSITORY / file).exists()]


def documents():
    top = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "deploy").glob("*.md")]
    found = sorted([*top, *(REPOSITORY / "docs").glob("*.md")])
    return [path.relative_to(REPOSITORY) for path in found]


def test_nothing_new_stands_at_the_top(tracked):
    assert {file.parts[0] for file in tracked} - TOP_LEVEL == set()


def test_files_are_named_for_what_they_hold(tracked):
    named = {part.removesuffix(".py") for file in tracked for part in file.parts[-2:]}
    assert named & NAMES_THAT_SAY_NOTHING == set()


def test_no_file_knows_the_machine_it_was_written_on(tracked):
    home = re.compile(rb"(?<![\w.:-])/(?:root|work|home/\w+|Users/\w+)/")
    found = [
        f"{file}: {match.group().decode()}"
        for file in tracked
        if file.suffix != ".pkl" and (match := home.search((REPOSITORY / file).read_bytes()))
    ]
    assert found == []


def test_only_the_starter_tokenizer_and_gpt2_are_committed(tracked):
    artifacts = {file.parts[:3] for file in tracked if file.parts[0] == "artifacts"}
    assert artifacts == {
        ("artifacts", "tokenizers", "gpt2"),
        ("artifacts", "tokenizers", "starter"),
        ("artifacts", "presets", "r50k_base.tiktoken"),
    }


def read(file):
    return (REPOSITORY / file).read_text(encoding="utf-8")


def constraints():
    """Name -> the versions of constraints.txt; more than one where Pythons differ."""
    found = {}
    for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            (specifier,) = pin.specifier
            assert specifier.operator == "==", f"{line} is not pinned"
            found.setdefault(canonicalize_name(pin.name), set()).add(specifier.version)
    return found


def test_the_tests_use_the_release_of_regex_that_the_tables_come_from():
    assert constraints()["regex"] == {RELEASE}, "make_unicode_tables.py needs it: keep the pin"


@pytest.mark.parametrize("extra", REQUIREMENTS)
def test_ranges_of_dependencies_contain_the_constraints(extra):
    pinned = constraints()
    for line in REQUIREMENTS[extra]:
        requirement = Requirement(line)
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"{line} is not in constraints.txt: run `make lock`"
        outside = [version for version in versions if version not in requirement.specifier]
        assert not outside, f"{line} excludes {outside} of constraints.txt: run `make lock`"
        operators = {specifier.operator for specifier in requirement.specifier}
        if extra == "dev":
            assert operators == {"=="}, f"{line}: tools are pinned exactly"
        else:
            assert ">=" in operators, f"{line} has no lower end to test"


def test_the_service_has_what_the_client_has():
    assert set(REQUIREMENTS["client"]) < set(REQUIREMENTS["service"])


def test_the_tested_pythons_are_the_same_everywhere():
    declared = [
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if re.search(r":: 3\.\d+$", classifier)
    ]
    looked_for = (REPOSITORY / ".ci" / "find-python").read_text(encoding="utf-8")
    lock = (REPOSITORY / ".ci" / "lock").read_text(encoding="utf-8")
    versions = " ".join(declared)
    assert f'tested="{versions}"' in looked_for
    assert f"for version in {versions}; do" in MAKEFILE
    assert f"for version in {versions}; do" in lock
    assert PROJECT["requires-python"] == f">={declared[0]}"


def test_the_page_of_settings_is_generated_from_them():
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert page == render_page(), "run `python -m tokenizer_service.settings > docs/settings.md`"


def test_http_reference_is_that_of_the_service():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "make_http_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.render(), module.__doc__


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", name.lower()).strip().replace(" ", "-") for name in named}


@pytest.mark.parametrize("document", documents(), ids=str)
def test_documents_name_targets_and_files_that_exist(document):
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    in_code = re.findall(r"`make ([a-z-]+)|^(?:\$ )?make ([a-z-]+)", text, flags=re.MULTILINE)
    assert {first or second for first, second in in_code} - targets == set()
    links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", text)
    pages = {link: REPOSITORY / document.parent / link if link else document for link, _ in links}
    assert [link for link, page in pages.items() if not (REPOSITORY / page).exists()] == []
    parts = [(link, part) for link, part in links if part and pages[link].suffix == ".md"]
    assert [(link, part) for link, part in parts if part not in headings(pages[link])] == []
    tests = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text)
    for name, file in tests:
        assert f"def {name}(" in read(document.parent / file)
