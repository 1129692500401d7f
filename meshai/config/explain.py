"""From pydantic's errors to the sentences an operator reads. Secrets and whole sections are never echoed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from meshai.config.document import Path, Spot, is_secret
from meshai.config.model import ConflictError, Settings
from meshai.config.spelling import explain_not_number, explain_not_text

MAX_SHOWN = 60

_WANTED = {
    "string_type": "text is needed",
    "int_type": "a whole number is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed, without quotes",
    "list_type": "a list is needed",
    "dict_type": "a mapping (name: value) is needed",
    "model_type": "a section is needed, with its keys indented below it",
    "finite_number": "a finite number is needed",
}
_BOUNDS = {
    "greater_than": ("must be more than", "gt"),
    "greater_than_equal": ("must be at least", "ge"),
    "less_than": ("must be less than", "lt"),
    "less_than_equal": ("must be at most", "le"),
}


def explain(error: ErrorDetails, spot: Spot) -> str:
    """What is wrong with one value and how to put it right."""
    kind, value, path = error["type"], error["input"], tuple(error["loc"])
    if kind == "extra_forbidden":
        return unknown_key(path)
    if kind == "missing":
        return "missing"
    if value is None and kind != "value_error":
        return _nothing(kind, spot)
    sentence = _sentence(error)
    hint = "" if is_secret(path) else _hint(kind, value, spot)
    return f"{sentence}{_got(value, path, kind, spot)}{'; ' if hint else ''}{hint}"


def unknown_key(path: Path) -> str:
    """Suggests the nearest key of the same section, else the same key of another section."""
    word, around = str(path[-1]), section_at(path[:-1])
    if around is not None:
        near = difflib.get_close_matches(word, list(around.model_fields), n=1, cutoff=0.6)
        if near:
            return f"unknown key; did you mean {near[0]}?"
    elsewhere = [key for key in all_keys() if key.split(".")[-1] == word]
    if elsewhere:
        return f"unknown key; did you mean {elsewhere[0]}?"
    return "unknown key"


def section_at(path: Path) -> type[BaseModel] | None:
    """The section a path leads to; None when it leads elsewhere."""
    model: type[BaseModel] = Settings
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        inner = next(_models(field.annotation), None) if field is not None else None
        if inner is None:
            return None
        model = inner
    return model


def all_keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Every key by its dotted path, the sections' own included; keys of list items are left out."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from all_keys(field.annotation, f"{prefix}{name}.")


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _sentence(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in _WANTED:
        return _WANTED[kind]
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{words} {_number(context[bound])}"
    if kind == "literal_error":
        return f"must be {context['expected']}".replace("'", "")
    if kind == "string_too_short":
        return (
            "must not be empty" if context["min_length"] == 1 else f"needs {context['min_length']} characters or more"
        )
    if kind == "string_too_long":
        return f"has more than {context['max_length']} characters"
    if kind == "string_pattern_mismatch":
        return _pattern(context)
    return str(error["msg"])


def _pattern(context: Mapping[str, Any]) -> str:
    if context["pattern"].startswith("^https?"):
        return "must begin with http:// or https:// and have no spaces"
    return "may contain letters, digits, _ and - only"


def _number(bound: object) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _got(value: object, path: Path, kind: str, spot: Spot) -> str:
    """`` (got 'bluetooth')``: only short single values, never a secret, never a container's content."""
    if is_secret(path) or kind in ("value_error", "string_too_short", "string_too_long"):
        return ""
    if isinstance(value, dict | list):
        return f" (got a {'section' if isinstance(value, dict) else 'list'})"
    shown = repr(value) if isinstance(value, str) else spot.text or str(value)
    if len(shown) > MAX_SHOWN or "@" in shown:  # a URL may carry a password in front of its @
        return ""
    return f" (got {shown})"


def _nothing(kind: str, spot: Spot) -> str:
    if spot.comment:
        return "no value: what follows a # is a comment; put a text that begins with # in quotes"
    empty = {"string_type": 'write "" for an empty text', "list_type": "write [] for none"}.get(kind)
    return f"no value; {empty or 'write one'}, or remove the line"


def _hint(kind: str, value: object, spot: Spot) -> str:
    if kind in ("string_type", "literal_error", "value_error") and spot.plain:
        return explain_not_text(spot.text, value)
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return explain_not_number(value, plain=spot.plain)
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    return ""


def conflict(error: ErrorDetails) -> ConflictError | None:
    """The rule between settings behind an error, if it is one."""
    cause = error.get("ctx", {}).get("error")
    return cause if isinstance(cause, ConflictError) else None
