"""What a server's refusal means, and what to leave out the next time. Pure: error bodies in, decisions out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from meshai.errors import ContextTooLongError, ModelRequestError

# max_tokens was renamed; some models take only their own temperature; older servers know no stream_options.
_DROPPABLE = ("stream_options", "temperature", "max_completion_tokens", "max_tokens", "stream")
_CONTEXT = re.compile(
    r"exceed_context_size|context_length_exceeded|context (?:length|size|window)|(?:prompt|input) is too long"
    r"|maximum context|loaded with context|too large for model",
    re.IGNORECASE,
)
_CONTEXT_TOKENS = (
    re.compile(r"maximum context length (?:is|of) (\d{3,8})", re.IGNORECASE),
    re.compile(r"context (?:size|length|window)(?: of| is)?(?: only)?\s*\(?(\d{3,8})", re.IGNORECASE),
    re.compile(r"(\d{3,8}) (?:tokens )?(?:maximum|context)", re.IGNORECASE),
    re.compile(r"> (\d{3,8})"),
)
_OUTPUT_CAP = re.compile(r"at most (\d{2,7}) (?:completion|output|new)? ?tokens", re.IGNORECASE)
_MODEL_MISSING = re.compile(
    r"model\b.{0,200}?(?:not found|not exist|not available|not loaded|unknown|pull(?:ing)? it)"
    r"|model_not_found|no such model|unknown model|invalid model",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error as a server told it."""

    status: int
    message: str = ""
    param: str = ""
    code: str = ""
    n_ctx: int = 0

    @classmethod
    def parse(cls, status: int, body: object) -> Refusal:
        """From OpenAI's ``{"error": {...}}``, its unwrapped form, Ollama's ``{"error": "text"}``, or plain text."""
        inner = body.get("error", body) if isinstance(body, dict) else body
        if not isinstance(inner, dict):
            return cls(status, str(inner or "")[:1000])
        n_ctx = inner.get("n_ctx")
        return cls(
            status,
            str(inner.get("message") or inner.get("detail") or "")[:1000],
            str(inner.get("param") or ""),
            f"{inner.get('code') or ''} {inner.get('type') or ''}".strip(),
            n_ctx if isinstance(n_ctx, int) else 0,
        )

    @property
    def about_context(self) -> bool:
        """The prompt does not fit."""
        said = f"{self.code} {self.message}"
        if self.status not in {400, 413, 422, 500}:
            return False
        if self.status == 500 and "exceed" not in said.lower():
            return False  # llama.cpp said it with a 500 for years; other 500s only mention a context
        return self.status == 413 or bool(_CONTEXT.search(said))

    @property
    def about_model(self) -> bool:
        """The server does not have the model."""
        return self.status in {400, 404} and bool(_MODEL_MISSING.search(f"{self.code} {self.message}"))

    @property
    def context_tokens(self) -> int | None:
        """The context length the server named."""
        if self.n_ctx:
            return self.n_ctx
        found = (pattern.search(self.message) for pattern in _CONTEXT_TOKENS)
        return next((int(match[1]) for match in found if match), None)


@dataclass(slots=True)
class Quirks:
    """What one endpoint does not take, learned from its refusals; lives as long as the client."""

    completion_tokens: bool = False  # max_completion_tokens instead of max_tokens
    dropped: set[str] = field(default_factory=set)
    output_cap: int = 0  # most tokens it generates; 0: not known

    def learn(self, refusal: Refusal, sent: dict[str, object]) -> str:
        """What was learned, in words; "" when this refusal teaches nothing that was not already respected."""
        if refusal.status not in {400, 422} or refusal.about_context:
            return ""
        cap = _OUTPUT_CAP.search(refusal.message)
        asked = sent.get("max_completion_tokens" if self.completion_tokens else "max_tokens")
        if cap and isinstance(asked, int) and int(cap[1]) < asked:
            self.output_cap = int(cap[1])
            return f"generates at most {self.output_cap} tokens"
        return self._learn_parameter(refusal, sent)

    def apply(self, body: dict[str, object]) -> dict[str, object]:
        """The request as this endpoint takes it."""
        body = dict(body)
        if self.output_cap and isinstance(body.get("max_tokens"), int):
            body["max_tokens"] = min(int(str(body["max_tokens"])), self.output_cap)
        if self.completion_tokens and "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")
        for name in self.dropped:
            body.pop(name, None)
        return body

    def describe(self) -> list[str]:
        """For ``status``."""
        learned = [f"no {name}" for name in sorted(self.dropped)]
        if self.completion_tokens:
            learned.append("max_completion_tokens")
        if self.output_cap:
            learned.append(f"at most {self.output_cap} tokens")
        return learned

    def _learn_parameter(self, refusal: Refusal, sent: dict[str, object]) -> str:
        named = (
            [refusal.param] if refusal.param in _DROPPABLE else [n for n in _DROPPABLE if _names(refusal.message, n)]
        )
        # "Unsupported parameter: 'max_tokens' … Use 'max_completion_tokens' instead." names both; ours is what we sent.
        name = next((name for name in named if name in sent), "")
        if name == "max_tokens":
            self.completion_tokens = True
            return "takes max_completion_tokens instead of max_tokens"
        if name == "max_completion_tokens":
            self.completion_tokens = False  # it takes neither
            self.dropped |= {"max_tokens", "max_completion_tokens"}
        elif name:
            self.dropped.add(name)
        return f"does not take {name}" if name else ""


class EndpointSettingsError(ModelRequestError):
    """The address or the model name is wrong: no request to this endpoint can succeed."""


def explain(refusal: Refusal, *, base_url: str, model: str) -> ModelRequestError:
    """The error for a request the server rejects, with what the operator can do about it."""
    if refusal.about_context:
        tokens = refusal.context_tokens
        size = f" ({tokens} tokens)" if tokens else ""
        return ContextTooLongError(f"the prompt does not fit the model's context{size}", tokens)
    said = f": {refusal.message}" if refusal.message else ""
    if refusal.about_model:
        return EndpointSettingsError(f"the server does not have the model {model!r}{said}")
    if refusal.status in {404, 405} and not base_url.rstrip("/").endswith("/v1"):
        return EndpointSettingsError(
            f"nothing answers below {base_url}: base_url has no /v1 at its end; nearly all need it"
        )
    if refusal.status in {404, 405}:
        return EndpointSettingsError(f"{base_url} has no /chat/completions: is it an OpenAI-compatible server?")
    if 300 <= refusal.status < 400:
        return EndpointSettingsError(f"{base_url} redirects elsewhere: put the final address into base_url")
    return ModelRequestError(f"the server rejected the request ({refusal.status}){said}")


def _names(message: str, parameter: str) -> bool:
    return re.search(rf"(?<![\w-]){parameter}(?![\w-])", message) is not None
