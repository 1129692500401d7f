"""A16: no setting that nothing reads. docs/field.md promises it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from pydantic import BaseModel
from support.papers import ROOT

from meshai.config.later import note
from meshai.config.model import ChannelEntry, Endpoint, Settings


def attributes_read() -> set[str]:
    return {
        node.attr
        for path in (ROOT / "meshai").rglob("*.py")
        if "config" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, entry in model.model_fields.items():
        inner = entry.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.fixture(scope="module")
def read() -> set[str]:
    return attributes_read()


@pytest.mark.parametrize("key", [*keys(Settings), *keys(Endpoint, "llm.endpoints."), *keys(ChannelEntry, "channels.")])
def test_setting_is_read_or_said_to_wait(read, key):
    assert key.rpartition(".")[2] in read or note(key)
