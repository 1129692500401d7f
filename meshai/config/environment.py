"""``MESHAI_<SECTION>__<KEY>=value`` in place of a line in the file.

Text is taken as it stands, everything else is read as YAML (``[a, b]``, ``{x: 1}``, ``true``, ``5``). A list of
texts may be written ``a,b``. An entry of a list is reached by its number: ``MESHAI_LLM__ENDPOINTS__0__MODEL``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from meshai.config.document import MAX_BYTES, Path, parse
from meshai.config.explain import all_keys, section_at
from meshai.errors import Mistake

PREFIX = "MESHAI_"
OTHERS = frozenset({"MESHAI_CONFIG", "MESHAI_DEBUG"})
"""Names of ours that are not settings."""
SOURCE = "environment"


class Overrides:
    """What the environment changes: apply to the file's values, then ask where a path came from."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.names: dict[Path, str] = {}
        self.mistakes: list[Mistake] = []
        self.warnings: list[str] = []
        self._values: dict[Path, Any] = {}
        for name in sorted(env):
            if name.startswith(PREFIX) and name not in OTHERS:
                self._read(name, env[name])

    def apply(self, data: dict[str, Any]) -> None:
        """Put every value into ``data``; a list that the file does not give starts as the default one."""
        for path, value in self._values.items():
            if not _put(data, path, value):
                self._wrong(self.names[path], "the list has no such entry (they are counted from 0)")

    def name_of(self, path: Path) -> str:
        """The variable a value came from; empty when it did not."""
        return next((name for at, name in self.names.items() if path[: len(at)] == at), "")

    def _read(self, name: str, text: str) -> None:
        path = tuple(int(part) if part.isdigit() else part.lower() for part in name[len(PREFIX) :].split("__"))
        field, near = _field(path), _did_you_mean(name)
        if field is None and len(path) == 1 and not near:
            self.warnings.append(f"{name} is not a setting of MeshAI")  # somebody else's variable, perhaps
            return
        if field is None:
            self._wrong(name, f"there is no such setting{near}")
            return
        try:
            self._values[path] = _value(field, path, text)
            self.names[path] = name
        except ValueError as error:
            self._wrong(name, str(error))

    def _wrong(self, name: str, message: str) -> None:
        self.mistakes.append(Mistake(name, message, source=SOURCE))


def variable(key: str) -> str:
    """``reply.max_bytes`` is ``MESHAI_REPLY__MAX_BYTES``."""
    return PREFIX + key.replace(".", "__").upper()


def _did_you_mean(name: str) -> str:
    known = [variable(key) for key in all_keys() if "." in key]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


class _Anything:
    """Stands for a value inside a free mapping (``extra_body``, ``shares``) or a list of texts."""

    annotation = Any


def _field(path: Path) -> FieldInfo | _Anything | None:
    """The setting a path names; None when there is no such setting."""
    for length in reversed(range(len(path))):
        around = section_at(path[:length])
        if around is None or isinstance(path[length], int):
            continue
        field, rest = around.model_fields.get(str(path[length])), path[length + 1 :]
        if field is None or not rest:
            return field
        return _Anything() if _free(field) or all(isinstance(part, int) for part in rest) else None
    return None


def _free(field: FieldInfo) -> bool:
    return str(field.annotation).startswith("dict")


def _value(field: FieldInfo | _Anything, path: Path, text: str) -> Any:  # noqa: ANN401 - YAML holds anything
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        raise ValueError(  # noqa: TRY004 - it is the name that is wrong
            f"this is a section; set {variable('.'.join(map(str, path)))}__<KEY>"
        )
    if annotation is str or annotation is SecretStr or isinstance(next(iter(get_args(annotation)), None), str):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    if str(annotation).startswith("list") and not text.lstrip().startswith(("[", "-")):
        return [part.strip().strip("\"'") for part in text.split(",") if part.strip()]
    if len(text) > MAX_BYTES:
        raise ValueError("too long")
    document = parse(f"value: {text}".encode("utf-8", "replace"))
    if document.mistakes:
        raise ValueError(document.mistakes[0].message)
    return document.data["value"]


def _put(data: dict[str, Any], path: Path, value: object) -> bool:
    """Set a value deep inside; False when a list has no such entry."""
    here: Any = data
    for depth, part in enumerate(path[:-1]):
        if isinstance(here, dict) and here.get(part) is None:
            here[part] = _default(path[: depth + 1])
        if isinstance(here, list) and not (isinstance(part, int) and part < len(here)):
            return False
        here = here[part]
        if not isinstance(here, dict | list):
            return True  # the file has nonsense here, which is told anyhow
    last = path[-1]
    if isinstance(here, list):
        if not (isinstance(last, int) and last < len(here)):
            return False
        here[last] = value
        return True
    here[last] = value
    return True


def _default(path: Path) -> Any:  # noqa: ANN401 - a section or a list
    around = section_at(path[:-1])
    field = around.model_fields.get(str(path[-1])) if around is not None else None
    if field is not None and str(field.annotation).startswith("list"):
        default = field.get_default(call_default_factory=True)
        return [item.model_dump() if isinstance(item, BaseModel) else item for item in default]
    return {}
