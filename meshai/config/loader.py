"""Finds the configuration, reads it, and tells every mistake at once (DESIGN §4.2)."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from meshai.config import later
from meshai.config.advice import advise, advise_file
from meshai.config.document import MAX_BYTES, Document, Path, parse, path_text
from meshai.config.environment import SOURCE, Overrides
from meshai.config.explain import conflict, explain
from meshai.config.model import Settings
from meshai.errors import ConfigError, Mistake

VARIABLE = "MESHAI_CONFIG"
PLACEHOLDER = "http://x"
"""Stands in for a missing name, URL or model while the rest is checked."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration. ``warnings`` deserve the operator's attention, ``notes`` are only worth knowing."""

    settings: Settings
    source: FilePath | None  # None: no file, built-in defaults
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()  # the environment variables that took effect

    @property
    def name(self) -> str:
        """The file as it is shown."""
        return str(self.source) if self.source is not None else "built-in defaults"


def load_settings(path: FilePath | str | None, env: Mapping[str, str]) -> Loaded:
    """The settings of ``path``, else of the first file found. Raises ConfigError with every mistake.

    A file that was named (``-c``, ``$MESHAI_CONFIG``) must exist; without any file the defaults hold, with a warning.
    """
    source = find(path, env)
    document = parse(_read(source)) if source is not None else Document()
    overrides = Overrides(env)
    mistakes = [*document.mistakes, *overrides.mistakes]
    if document.mistakes and not document.data:
        raise _error(source, mistakes)
    data = _without_empty_sections(document.data, Settings)
    before = len(overrides.mistakes)
    overrides.apply(data)
    given = dict(_leaves(data))
    settings, wrong = _validate(data, document, overrides)
    mistakes += [*overrides.mistakes[before:], *wrong]
    if settings is None or mistakes:
        raise _error(source, mistakes)
    warnings = [*overrides.warnings, *advise(settings)]
    if source is None:
        warnings.insert(0, f"no configuration file found, the defaults are used ({', '.join(map(str, places(env)))})")
    else:
        warnings += advise_file(source, document.data)
    return Loaded(
        settings, source, tuple(warnings), later.notes(given.items()), tuple(sorted(overrides.names.values()))
    )


def find(path: FilePath | str | None, env: Mapping[str, str]) -> FilePath | None:
    """The file to read, None when there is none. A named file is returned whether it exists or not."""
    named = str(path) if path is not None else env.get(VARIABLE, "")
    if named:
        return FilePath(named).expanduser()
    return next((place for place in places(env) if _is_there(place)), None)


def places(env: Mapping[str, str]) -> tuple[FilePath, ...]:
    """Where a file is looked for when none is named."""
    home = env.get("HOME", "")
    user = (FilePath(home) / ".config" / "meshai" / "config.yaml",) if home else ()
    return (FilePath("config.yaml"), *user, FilePath("/etc/meshai/config.yaml"))


def _is_there(place: FilePath) -> bool:
    """Also when it may not be looked at: reading then says why, instead of silently taking the next place."""
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(source: FilePath) -> bytes:
    try:
        if stat.S_ISDIR(source.stat().st_mode):
            raise ConfigError(str(source), [Mistake("", "this is a directory, not a file")])
        with source.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(str(source), [Mistake("", "there is no such file")]) from None
    except PermissionError:
        raise ConfigError(str(source), [Mistake("", "cannot be read by this user: try again with sudo")]) from None
    except OSError as error:
        raise ConfigError(str(source), [Mistake("", f"cannot be read: {error.strerror or 'error'}")]) from None


def _error(source: FilePath | None, mistakes: list[Mistake]) -> ConfigError:
    ordered = sorted(mistakes, key=lambda mistake: (mistake.source, mistake.line, mistake.column))
    return ConfigError(str(source) if source is not None else SOURCE, ordered)


def _without_empty_sections(data: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """``llm:`` with every key below it commented out is a section of defaults, not a mistake."""
    kept: dict[str, Any] = {}
    for key, value in data.items():
        field = model.model_fields.get(key)
        inner = field.annotation if field is not None else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            if value is None:
                continue
            kept[key] = _without_empty_sections(value, inner) if isinstance(value, dict) else value
        else:
            kept[key] = value
    return kept


def _leaves(
    data: Mapping[str, Any], prefix: str = "", model: type[BaseModel] = Settings
) -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        field = model.model_fields.get(key)
        inner = field.annotation if field is not None else None
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(value, f"{prefix}{key}.", inner)
        else:
            yield f"{prefix}{key}", value


def _validate(data: dict[str, Any], document: Document, overrides: Overrides) -> tuple[Settings | None, list[Mistake]]:
    """Validate again and again without what was found wrong, so that rules between settings are checked, too."""
    told: set[Path] = set(document.broken)
    mistakes: list[Mistake] = []
    first: Settings | None = None
    for attempt in range(10):  # a mistake hides at most a few rules around it
        try:
            settings = Settings.model_validate(data)
        except ValidationError as failure:
            moved = False
            for error in failure.errors(include_url=False):
                path, involved = _places(error)
                if not told & involved and not any(path[: len(above)] == above for above in told):
                    mistakes.append(_mistake(error, path, document, overrides))
                told.add(path)
                moved |= _prune(data, path, missing=error["type"] == "missing")
            if not moved:
                break
        else:
            first = settings if attempt == 0 else None
            break
    return first, mistakes


def _places(error: ErrorDetails) -> tuple[Path, set[Path]]:
    """Where a mistake is shown, and every path it depends on."""
    base: Path = tuple(error["loc"])
    rule = conflict(error)
    if rule is None:
        return base, {base}
    return base + _split(rule.key), {base + _split(key) for key in rule.involves}


def _split(key: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _mistake(error: ErrorDetails, path: Path, document: Document, overrides: Overrides) -> Mistake:
    spot = document.spot(path)
    variable = overrides.name_of(path)
    if variable:
        return Mistake(variable, explain(error, spot), source=SOURCE)
    return Mistake(path_text(path), explain(error, spot), spot.line, spot.column)


def _prune(data: dict[str, Any], path: Path, *, missing: bool) -> bool:
    """Take a wrong value out (put a missing one in); True when that changed anything."""
    *above, last = path
    here: Any = data
    for part in above:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(here, list):
        return bool(above) and _prune(data, tuple(above), missing=False)
    if not isinstance(here, dict) or (last not in here and not missing):
        return False
    if missing:
        here[last] = PLACEHOLDER
    else:
        del here[last]
    return True
