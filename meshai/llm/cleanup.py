"""From what a model streams to what a person may see: thinking, control characters and broken Unicode removed.

Pure and incremental: text may be cut anywhere between two pieces, also inside a tag, an escape sequence or a
surrogate pair. Only thinking that came as text is handled here; reasoning fields never get this far.
"""

from __future__ import annotations

import re

import regex

# Reasoning as the model families write it: <think> (DeepSeek, Qwen), [THINK] (Mistral), <|START_THINKING|> (Cohere),
# ◁think▷ (Kimi), <|channel>thought (Gemma), <|channel|>analysis<|message|> (gpt-oss).
_NAMES = "think|thinking|thought|reasoning|seed:think"
_PATTERN = rf"""
    (?P<open> <(?:{_NAMES})\s{{0,4}}> | \[THINK\] | <\|START_THINKING\|> | ◁think▷
              | <\|channel>(?:thought|analysis)\b )
  | (?P<close> </(?:{_NAMES})\s{{0,4}}> | \[/THINK\] | <\|END_THINKING\|> | ◁/think▷ | <channel\|> )
  | (?P<channel> (?:<\|start\|>assistant)? <\|channel\|> \s? (?P<which>\w{{1,20}}) [^<]{{0,60}} <\|message\|> )
  | (?P<marker> <\|(?:end|return|call|im_end|eot_id|endoftext|END_RESPONSE|START_RESPONSE)\|> | <end_of_turn>
              | <\|(?:start|im_start)\|>assistant )
"""
_TAG = regex.compile(_PATTERN, regex.VERBOSE | regex.IGNORECASE)
# gpt-oss behind a server that drops the special tokens: "analysisThe user asks …assistantfinalHello".
_BARE_ANALYSIS = regex.compile(r"\s*analysis(?=[A-Z])")
_BARE_FINAL = regex.compile(r"assistantfinal")
_QUOTES = "`\"'“‘«"


class ThinkFilter:
    """Takes pieces of a model's text, gives back what is not thinking.

    ``hold`` is for an endpoint known to send only the end of its thinking (``…</think>answer``: the opening tag is
    part of its prompt template): nothing is visible before the closing tag or the end.
    """

    def __init__(self, *, hold: bool = False) -> None:
        self.thought = False  # thinking was seen
        self.orphan = False  # a closing tag came without an opening one after text had been given out
        self._hold = hold
        self._buffer = ""
        self._thinking = False
        self._until = _TAG
        self._given = False
        self._before = ""  # the last character in front of the buffer: a quoted tag is content
        self._start = True

    def feed(self, piece: str) -> str:
        """The next visible text, maybe none."""
        self._buffer += piece
        return self._visible(self._run(final=False))

    def end(self) -> str:
        """What was held back. Thinking that was never closed stays invisible."""
        return self._visible(self._run(final=True))

    def _visible(self, text: str) -> str:
        if not self._given:
            text = text.lstrip()
        self._given = self._given or bool(text)
        return text

    def _run(self, *, final: bool) -> str:
        out: list[str] = []
        if self._start and not self._past_start(final=final):
            return ""
        while self._step(out, final=final):
            pass
        return "".join(out)

    def _past_start(self, *, final: bool) -> bool:
        match = _BARE_ANALYSIS.match(self._buffer, partial=not final)
        if match is not None and match.partial:
            return False
        if match is not None and len(self._buffer) == match.end() and not final:
            return False
        self._start = False
        if match is not None:
            self._think(match.end(), _BARE_FINAL)
        return True

    def _step(self, out: list[str], *, final: bool) -> bool:
        """Handle the next tag; False when the buffer has none left."""
        match = self._until.search(self._buffer, partial=not final)
        if match is None or match.partial:
            keep = len(self._buffer) if match is None else match.start()
            if not self._thinking and (final or not self._hold):
                out.append(self._buffer[:keep])
            if self._thinking or final or not self._hold:
                self._advance(keep)
            return False
        start, end = match.span()
        quoted = (self._buffer[start - 1] if start else self._before) in _QUOTES and (start or self._before)
        if quoted and not self._thinking:
            out.append(self._buffer[:end])
            self._advance(end)
        elif self._until is _BARE_FINAL:
            self._speak(end)
        elif self._thinking:
            self._in_thinking(match)
        else:
            self._in_text(match, out)
        return True

    def _in_thinking(self, match: regex.Match[str]) -> None:
        if match["close"] or match["marker"] or (match["which"] or "").lower() == "final":
            self._speak(match.end())
        else:
            self._advance(match.end())

    def _in_text(self, match: regex.Match[str], out: list[str]) -> None:
        if match["close"]:
            self.thought = True
            self.orphan = self.orphan or self._given or bool("".join(out).strip())
            out.clear()  # what came before an orphaned closing tag was thinking
            self._speak(match.end())
            return
        out.append(self._buffer[: match.start()])
        if match["open"] or (match["channel"] and match["which"].lower() != "final"):
            self._think(match.end(), _TAG)
        else:
            self._advance(match.end())

    def _think(self, end: int, until: regex.Pattern[str]) -> None:
        self.thought = True
        self._thinking = True
        self._until = until
        self._advance(end)

    def _speak(self, end: int) -> None:
        self._thinking = False
        self._hold = False
        self._until = _TAG
        self._advance(end)

    def _advance(self, count: int) -> None:
        if count:
            self._before = self._buffer[count - 1]
            self._buffer = self._buffer[count:]


# CSI, OSC (title, hyperlink, clipboard), DCS and the like, two-character escapes; each also in its C1 form.
_ESCAPE = regex.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,400}(?:\x07|\x9c|\x1b\\)"
    r"|\x1b[ -/]{0,4}[0-OQ-WYZ\\`-~]"
)
# Control characters but tab and newline, bidirectional overrides, byte order marks, noncharacters, lone surrogates.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e\ufeff\ufffe\uffff\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Sanitizer:
    """Removes what must not reach a radio, a terminal or a UTF-8 encoder; pieces may be cut anywhere."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The harmless text of this piece; an unfinished sequence at its end waits for the next one."""
        text = self._held + piece
        self._held = ""
        match = _ESCAPE.search(text, partial=True) if "\x1b" in text or _has_c1(text) else None
        while match is not None and not match.partial:
            text = text[: match.start()] + text[match.end() :]
            match = _ESCAPE.search(text, partial=True)
        cut = len(text) if match is None else match.start()
        if cut == len(text) and text and ("\ud800" <= text[-1] <= "\udbff" or text[-1] == "\r"):
            cut -= 1
        text, self._held = text[:cut], text[cut:]
        return _scrub(text)

    def end(self) -> str:
        """What was held back, without what makes it a sequence."""
        text, self._held = self._held, ""
        return _scrub(text)


def _has_c1(text: str) -> bool:
    return any("\x90" <= char <= "\x9f" for char in text)


def _scrub(text: str) -> str:
    text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _FORBIDDEN.sub("", text)


class Cleaner:
    """ThinkFilter and Sanitizer in a row: what a client puts every piece of text through."""

    def __init__(self, *, hold: bool = False) -> None:
        self.think = ThinkFilter(hold=hold)
        self._sanitizer = Sanitizer()

    def feed(self, piece: str) -> str:
        """The next visible text."""
        return self.think.feed(self._sanitizer.feed(piece))

    def end(self) -> str:
        """The last visible text."""
        return self.think.feed(self._sanitizer.end()) + self.think.end()


def clean(text: str) -> str:
    """A whole text at once."""
    cleaner = Cleaner()
    first = cleaner.feed(text)
    last = cleaner.end()
    return (last if cleaner.think.orphan else first + last).strip()
