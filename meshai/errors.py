"""One error tree, split by what the caller does about it.

::

    MeshAIError                    everything MeshAI raises on purpose
    ├── CheckFailedError           a check the operator asked for found something      exit 1
    ├── UsageError                 the operator must correct what was typed or written exit 2
    │   └── ConfigError            … in the configuration; carries every mistake at once
    ├── MissingError               the environment lacks something                     exit 3
    │   ├── UnsupportedLibraryError   … a library outside the supported range
    │   └── AlreadyRunningError    … another daemon holds the database
    ├── RadioError                 the radio side; the supervisor reconnects
    │   ├── LinkDownError          no node at the moment: wait, then try again
    │   └── NotOnAirError          the node refused this packet: look at the reason
    ├── ModelError                 no answer from the model; ``notice`` says it to the person
    │   ├── ModelUnavailableError  not reachable, 5xx, broken stream: try the next endpoint
    │   ├── ModelTimeoutError      silence for too long
    │   ├── ModelKeyError          401/403: needs the operator
    │   ├── ModelRateLimitError    429: carries ``retry_after_s``
    │   ├── ModelRequestError      400/404: the request or the endpoint is wrong
    │   │   └── ContextTooLongError    the prompt does not fit; carries ``context_tokens``
    │   ├── EmptyAnswerError       nothing to say, or only thinking
    │   └── PreemptedError         a background call gave its slot to a waiting reply: try later, not a failed attempt
    └── StorageError               the database
        ├── DatabaseNewerError     written by a newer program                          exit 3
        ├── DatabaseCorruptError   fails its integrity check
        └── DatabaseUnavailableError   read-only, full, or gone: keep answering, retry

A programming error is none of these: it ends in exit code 70.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class MeshAIError(Exception):
    """Base of everything MeshAI raises on purpose; ``str()`` is fit for the operator's eyes."""

    exit_code: ClassVar[int] = 1


class CheckFailedError(MeshAIError):
    """A check the operator asked for found something wrong."""


class UsageError(MeshAIError):
    """The operator must correct what was typed or written."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a configuration; line and column count from 1, 0 when unknown. ``source`` when not the file."""

    key: str
    message: str
    line: int = 0
    column: int = 0
    source: str = ""


class ConfigError(UsageError):
    """A configuration with every mistake at once, each rendered as ``FILE:LINE:COL: key: what is wrong``."""

    def __init__(self, source: str, mistakes: list[Mistake]) -> None:
        self.source = source
        self.mistakes = mistakes
        super().__init__("\n".join(self._line(mistake) for mistake in mistakes))

    def _line(self, mistake: Mistake) -> str:
        source = mistake.source or self.source
        place = f"{source}:{mistake.line}:{mistake.column}" if mistake.line else source
        text = f"{place}: {mistake.key}: {mistake.message}" if mistake.key else f"{place}: {mistake.message}"
        return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class MissingError(MeshAIError):
    """The environment lacks something: a package, a permission, a device."""

    exit_code: ClassVar[int] = 3


class UnsupportedLibraryError(MissingError):
    """An installed library is outside the supported range."""


class AlreadyRunningError(MissingError):
    """Another daemon holds the database's lock."""


class RadioError(MeshAIError):
    """The radio side failed; the link supervisor reconnects."""


class LinkDownError(RadioError):
    """There is no node at the moment."""


class NotOnAirError(RadioError):
    """The node took the packet but will not transmit it; ``reason`` is the Routing.Error name or queue status."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the node refused the packet: {reason}")


class ModelError(MeshAIError):
    """No answer from a model. ``notice`` is one short sentence for the person who asked."""

    notice: ClassVar[str] = "The language model failed. Please try again later."


class ModelUnavailableError(ModelError):
    """Not reachable, 5xx, or the stream broke."""

    notice: ClassVar[str] = "The language model is not reachable right now. Please try again later."


class ModelTimeoutError(ModelError):
    """The model was silent for too long."""

    notice: ClassVar[str] = "The language model took too long. Please try again, perhaps with a shorter question."


class ModelKeyError(ModelError):
    """The endpoint refused the key (401, 403)."""

    notice: ClassVar[str] = "The language model refuses this bot's key. Its owner has to fix that."


class ModelRateLimitError(ModelError):
    """429 after the client's own retries; ``retry_after_s`` is None when the server did not say."""

    notice: ClassVar[str] = "The language model is at its rate limit. Please try again in a few minutes."

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ModelRequestError(ModelError):
    """400 or 404: the request or the endpoint's settings are wrong."""

    notice: ClassVar[str] = "The language model rejected the question. The bot's owner can see why in the log."


class ContextTooLongError(ModelRequestError):
    """The prompt does not fit; ``context_tokens`` is what the server said it can take, None if it did not."""

    notice: ClassVar[str] = "That was too long for the language model. Please ask in fewer words."

    def __init__(self, message: str, context_tokens: int | None = None) -> None:
        self.context_tokens = context_tokens
        super().__init__(message)


class EmptyAnswerError(ModelError):
    """The model had nothing to say; ``only_thinking`` when it spent everything on its reasoning."""

    notice: ClassVar[str] = "The language model gave an empty answer. Please ask in other words."

    def __init__(self, message: str = "empty answer", *, only_thinking: bool = False) -> None:
        self.only_thinking = only_thinking
        super().__init__(message)


class PreemptedError(ModelError):
    """A background call gave its slot to a waiting reply (``llm.parallel``): not an attempt that failed, try later."""


class StorageError(MeshAIError):
    """The database failed."""


class DatabaseNewerError(StorageError):
    """The file was written by a newer program."""

    exit_code: ClassVar[int] = 3


class DatabaseCorruptError(StorageError):
    """The file fails its integrity check."""


class DatabaseUnavailableError(StorageError):
    """Read-only, full, or gone."""
