"""Who may use the page: host names, the token, sessions, CSRF, and how often somebody may guess. No I/O."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections import OrderedDict, deque

from meshai.clock import Clock

SESSION_S = 7 * 86400.0
"""A login that is not used for so long ends; all end with the process."""
MOST_SESSIONS = 100
GUESSES, GUESS_WINDOW_S = 5, 60.0
"""Wrong tokens an address may send in a window."""
GUESSES_OF_ALL = 30
"""… and all addresses together."""
MOST_ADDRESSES = 1024

_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?\Z")


def is_loopback(host: str) -> bool:
    """Only this computer can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Hosts:
    """The names under which the page may be asked for: a foreign name that points here is DNS rebinding.

    A number cannot be rebound; names are only those of this machine.
    """

    def __init__(self, configured: str) -> None:
        self._local_only = is_loopback(configured)
        machine = socket.gethostname().lower()
        own = {configured.lower(), machine, machine.partition(".")[0], f"{machine.partition('.')[0]}.local"}
        self._names = {"localhost"} if self._local_only else {"localhost", *own}

    def allow(self, header: str) -> bool:
        """Judge a ``Host`` header."""
        match = _HOST.match(header)
        if match is None:
            return False
        name = match[1].lower().strip("[]").rstrip(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return address.is_loopback or not self._local_only


class Sessions:
    """Logins and CSRF tokens, in RAM."""

    def __init__(self, token: str, clock: Clock, *, cookie: str = "meshai") -> None:
        self.cookie = cookie
        self._token = _digest(token) if token else None
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._used_at: OrderedDict[str, float] = OrderedDict()
        self._words: OrderedDict[str, tuple[str, bool]] = OrderedDict()

    @property
    def needs_login(self) -> bool:
        """A token is configured."""
        return self._token is not None

    def is_token(self, candidate: str) -> bool:
        """Compare in constant time."""
        return self._token is not None and hmac.compare_digest(_digest(candidate), self._token)

    def open(self) -> str:
        """A fresh, logged-in session."""
        session = new_id()
        self._used_at[session] = self._clock.monotonic()
        while len(self._used_at) > MOST_SESSIONS:
            self._used_at.popitem(last=False)
        return session

    def is_open(self, session: str) -> bool:
        """Whether this session is logged in; using it keeps it."""
        now = self._clock.monotonic()
        used_at = self._used_at.get(session)
        if used_at is None or now - used_at > SESSION_S:
            self._used_at.pop(session, None)
            return False
        self._used_at[session] = now
        self._used_at.move_to_end(session)
        return True

    def close(self, session: str) -> None:
        """Log out."""
        self._used_at.pop(session, None)

    def csrf(self, session: str) -> str:
        """What a form of this session must carry."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def is_csrf(self, session: str, candidate: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.csrf(session).encode(), candidate.encode("utf-8", "replace"))

    def say(self, session: str, text: str, *, is_bad: bool = False) -> None:
        """A sentence for the next page of this session."""
        self._words[session] = (text, is_bad)
        while len(self._words) > MOST_SESSIONS:
            self._words.popitem(last=False)

    def said(self, session: str) -> tuple[str, bool] | None:
        """Take the sentence, once; the flag: it is bad news."""
        return self._words.pop(session, None)


class Guesses:
    """Slows down whoever tries tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: OrderedDict[str, deque[float]] = OrderedDict()
        self._of_all: deque[float] = deque(maxlen=GUESSES_OF_ALL)

    def wait_s(self, address: str) -> float:
        """0 when this address may try now."""
        wrong = self._of.get(_network(address))
        return max(self._left_s(wrong, GUESSES), self._left_s(self._of_all, GUESSES_OF_ALL))

    def wrong(self, address: str) -> None:
        """Note a wrong token."""
        now, network = self._clock.monotonic(), _network(address)
        self._of.setdefault(network, deque(maxlen=GUESSES)).append(now)
        self._of.move_to_end(network)
        while len(self._of) > MOST_ADDRESSES:
            self._of.popitem(last=False)
        self._of_all.append(now)

    def _left_s(self, wrong: deque[float] | None, most: int) -> float:
        if wrong is None or len(wrong) < most:
            return 0.0
        return max(0.0, wrong[0] + GUESS_WINDOW_S - self._clock.monotonic())


def new_id() -> str:
    """An unguessable session id."""
    return secrets.token_urlsafe(32)


def is_session_id(text: str) -> bool:
    """Looks like one of ours."""
    return _SESSION_ID.match(text) is not None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _network(address: str) -> str:
    """An IPv6 host owns a whole /64."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((number, 64), strict=False)) if number.version == 6 else address
