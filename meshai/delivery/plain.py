"""Markdown to plain text, conservatively: what might be meant literally stays (``2*3*4``, ``__init__``, ``a < b``).

Text is converted line by line, so that an answer that is still being written can be converted as it comes:
``PlainStream`` and ``to_plain`` are the same code and give the same text for whole lines.
"""

from __future__ import annotations

import regex

_ANSI = regex.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -~])?")
# Control characters except newline, lone surrogates, non-characters, invisible direction overrides, BOM, soft hyphen.
_UNSAFE = regex.compile(r"[^\P{Cc}\n]|\p{Cs}|[\uFFFE\uFFFF\uFEFF\u00AD\u202A-\u202E\u2066-\u2069]")
_SPACES = regex.compile(r"[ \u00A0\u2000-\u200A\u202F\u205F]{2,}")

_FENCE = regex.compile(r"^\s{0,3}(?:>\s?)*\s*(`{3,}|~{3,})\s*([\w+#.-]*)\s*$")
_RULE = regex.compile(r"^\s{0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}|={3,})\s*$")
_HEADING = regex.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_QUOTE = regex.compile(r"^\s{0,3}(?:>\s?)+(?=[\p{L}*_`\[-]|$)")
_BULLET = regex.compile(r"^(\s*)[*+•-]\s+(?=\S)")
_NUMBERED = regex.compile(r"^(\s*)(\d{1,3}[.)])\s+(?=\S)")
_TABLE_RULE = regex.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")

_CODE = regex.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_URL_PART = r"((?:[^\s()]|\([^\s()]*\))+)"
_LINK = regex.compile(r"!?\[([^\[\]\n]*)\]\(\s*<?" + _URL_PART + r">?(?:\s+[\"'][^\"'\n]*[\"'])?\s*\)")
_AUTOLINK = regex.compile(r"<((?:https?://|mailto:)[^\s<>]+)>")
# A word character next to an asterisk makes it arithmetic or a name, except in scripts written without spaces.
_WORD = r"[[\p{L}\p{N}_*\\]--[\p{Han}\p{Hiragana}\p{Katakana}]]"
_FIRST = r"(?=[\p{L}\p{N}\p{Emoji_Presentation}\"'“„‘«(¿¡+#$€£¥~@&-])"
_STRONG = [
    regex.compile(rf"(?V1)(?<!{_WORD})\*\*\*{_FIRST}([^*\n]*?\S)\*\*\*(?!{_WORD})"),
    regex.compile(rf"(?V1)(?<!{_WORD})\*\*{_FIRST}((?:[^*\n]|\*(?!\*))*?\S)\*\*(?!{_WORD})"),
    regex.compile(rf"(?V1)(?<!{_WORD})__(?!_){_FIRST}([^_\n]*?\s[^_\n]*?[^\s_])__(?!{_WORD})"),
]
_EMPHASIS = [
    regex.compile(rf"(?V1)(?<!{_WORD})\*(?=[\p{{L}}\"'“„‘«(¿¡])([^*\n]*?[^\s*])\*(?!{_WORD})"),
    regex.compile(rf"(?V1)(?<!{_WORD})_(?=\p{{L}})([\p{{L}} ,.;:'’!?-]*[\p{{L}}.!?])_(?!{_WORD})"),
]
_ESCAPE = regex.compile(r"\\([\\`*_{}\[\]()#+.!|>~-])")
# What is left of markup in a converted piece of an unfinished line: it may still turn out to be an opening mark.
_MAY_OPEN = regex.compile(r"(?<![\p{L}\p{N}])[*_](?!\s)|`|<(?=[hm]|$)|\[(?![^\]\n]*\](?!\())")
_MARKS = regex.compile(r"[*_]")
_SHIELDS = 0xF0000  # private use, removed from the input: stand for literal text while emphasis is looked for
_SHIELD = regex.compile(r"[\U000F0000-\U000FFFFD]")
_PLAIN_URL = regex.compile(r"https?://[^\s*\U000F0000-\U000FFFFD]+(?:\*+[^\s*\U000F0000-\U000FFFFD]+)*")


def to_plain(text: str) -> str:
    """The text as a person should read it on a small screen; newlines stay, at most one blank line in a row."""
    stream = PlainStream()
    return (stream.feed(text) + stream.close()).strip()


def clean(text: str) -> str:
    """Without control characters, terminal escapes and lone surrogates; tabs become spaces, newlines stay."""
    text = (
        text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ").replace("\u2028", "\n").replace("\x85", "\n")
    )
    return _UNSAFE.sub("", _ANSI.sub("", text))


class PlainStream:
    """Converts a text that is still being written; what it has returned stays as it is."""

    def __init__(self) -> None:
        self._buffer = ""  # the unfinished line, raw
        self._fence = ""  # the mark that closes the code block we are in
        self._header: str | None = None  # a line that may be a table's head
        self._in_table = False
        self._midline = False  # a piece of the unfinished line was returned
        self._blank = True  # the last returned line was blank (or nothing was returned)
        self._newline = ""  # the newline owed before the next line

    def feed(self, text: str) -> str:
        """Take more raw text; returns what has become final."""
        self._buffer += text
        done = ""
        while (end := self._buffer.find("\n")) >= 0:
            line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
            done += self._line(clean(line.removesuffix("\r")))
        return done + self._piece()

    def close(self) -> str:
        """No more text will come; returns the rest."""
        line, self._buffer = self._buffer, ""
        done = self._line(clean(line)) if line else ""
        return done + self._release_header()

    def _line(self, line: str) -> str:
        if "\n" in line:  # clean() found other line ends
            return "".join(self._line(part) for part in line.split("\n"))
        if self._midline:
            self._midline = False
            out = _inline(line).rstrip()
            self._newline = "\n"
            return out
        if fence := _FENCE.match(line):
            return self._toggle_fence(fence.group(1), line)
        if self._fence:
            return self._emit(line.rstrip())
        return self._release_or_table(line)

    def _toggle_fence(self, mark: str, line: str) -> str:
        if not self._fence:
            self._fence = mark
            self._in_table = False
            return self._release_header()
        if mark.startswith(self._fence):
            self._fence = ""
            return ""
        return self._emit(line.rstrip())

    def _release_or_table(self, line: str) -> str:
        if self._header is not None and _TABLE_RULE.match(line):
            head, self._header, self._in_table = self._header, None, True
            return self._emit(_row(_cells(head)))
        if self._in_table:
            if "|" in line:
                return self._emit(_row(_cells(line)))
            self._in_table = False
        before = self._release_header()
        if "|" in line:
            self._header = line
            return before
        return before + self._emit(_block(line))

    def _release_header(self) -> str:
        line, self._header = self._header, None
        return self._emit(_block(line)) if line is not None else ""

    def _emit(self, line: str | None) -> str:
        if line is None:
            return ""
        if not line.strip():
            if self._blank:
                return ""
            self._blank = True
            self._newline = "\n\n"
            return ""
        out, self._newline, self._blank = self._newline + line, "\n", False
        return out

    def _piece(self) -> str:
        """The part of the unfinished line that no later character can change."""
        if self._fence or self._header is not None or self._in_table or "|" in self._buffer:
            return ""
        if not self._midline and not regex.match(r"\s*\p{L}", self._buffer):
            return ""  # may become a heading, list, quote, rule or fence
        if not self._midline and regex.match(r"\s", self._buffer):
            return ""
        for end in reversed([match.start() for match in regex.finditer(r"\s", self._buffer)]):
            piece = _inline(clean(self._buffer[:end]))
            if not _MAY_OPEN.search(piece):
                break
        else:
            return ""
        if not piece:
            return ""
        self._buffer = self._buffer[end:]
        if self._midline:
            return piece
        out = self._emit(piece) or ""
        self._midline = True
        return out


def _block(line: str) -> str | None:
    """One line without its block mark; None when the line was nothing but markup."""
    if _RULE.match(line):
        return None
    line = _QUOTE.sub("", line)
    if heading := _HEADING.match(line):
        return _inline(heading.group(1)).strip()
    for pattern, mark in ((_BULLET, "- "), (_NUMBERED, None)):
        if match := pattern.match(line):
            depth = min(len(match.group(1).expandtabs(4)) // 2, 3)
            return " " * depth + (mark or f"{match.group(2)} ") + _inline(line[match.end() :]).strip()
    return _inline(line).strip()


def _inline(text: str) -> str:
    """One line without emphasis, code marks and link syntax."""
    literals: list[str] = []

    def shield(literal: str) -> str:
        literals.append(literal)
        return chr(_SHIELDS + len(literals) - 1)

    text = _SHIELD.sub("", text)
    text = _CODE.sub(lambda m: shield(m.group(2).strip() or m.group(0)), text)
    text = _ESCAPE.sub(lambda m: shield(m.group(1)), text)
    text = _LINK.sub(_link, text)
    text = _AUTOLINK.sub(lambda m: m.group(1).removeprefix("mailto:"), text)
    text = _PLAIN_URL.sub(lambda m: shield(m.group(0)) if _MARKS.search(m.group(0)) else m.group(0), text)
    for pattern in (*_STRONG, *_EMPHASIS):
        text = pattern.sub(r"\1", text)
    text = _SPACES.sub(" ", text)
    while _SHIELD.search(text):  # code may hold an escape, a link's text may hold code
        text = _SHIELD.sub(lambda m: literals[ord(m.group()) - _SHIELDS], text)
    return text


def _link(match: regex.Match[str]) -> str:
    label, target = match.group(1).strip(), match.group(2).removeprefix("mailto:")
    bare = target.split("://", 1)[-1].rstrip("/")
    if not label or label in (target, bare) or label.rstrip("/") == target.rstrip("/"):
        return target
    return f"{label} ({target})"


def _cells(line: str) -> list[str]:
    body = line.strip().removeprefix("|")
    body = body[:-1] if body.endswith("|") and not body.endswith("\\|") else body
    return [_inline(cell.replace("\\|", "|")).strip() for cell in regex.split(r"(?<!\\)\|", body)]


def _row(cells: list[str]) -> str:
    filled = [cell for cell in cells if cell]
    return ": ".join(filled) if len(cells) == 2 else " | ".join(filled)
