"""The lock file, the bounds of the dependencies and the vocabulary that is shipped."""

import hashlib
import lzma
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import meshai
from meshai.llm import base

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]


def locked():
    """Versions in requirements.lock, by normalised name."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}[ \\]*)+)", text, re.MULTILINE
    )
    assert len(entries) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)), "an entry without version or hash"
    return {name: version for name, version, _ in entries}


@pytest.mark.parametrize("requirement", [*RUNTIME, *DEV], ids=lambda requirement: requirement.name)
def test_lock_satisfies_the_project(requirement):
    """After a change of pyproject.toml: make lock."""
    version = locked()[requirement.name.lower().replace("_", "-")]
    assert requirement.specifier.contains(version)


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda requirement: requirement.name)
def test_runtime_dependency_has_both_bounds(requirement):
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators in ({">=", "<"}, {"=="})


def test_lock_needs_no_private_index():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text


def test_shipped_vocabulary_is_the_one_tiktoken_expects():
    """The hash tiktoken has for o200k_base: with another it would fetch the file."""
    packed = Path(base.__file__).parent / "vocab" / "o200k_base.tiktoken.xz"
    digest = hashlib.sha256(lzma.decompress(packed.read_bytes())).hexdigest()
    assert digest == "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    assert "MIT License" in (packed.parent / "LICENSE.txt").read_text(encoding="utf-8")


def test_licence_is_the_one_declared():
    assert PROJECT["license"] == "GPL-3.0-or-later"
    assert "Version 3, 29 June 2007" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_package_is_typed():
    assert (Path(meshai.__file__).parent / "py.typed").exists()
