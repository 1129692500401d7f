"""Every setting, its type, its range and its default (DESIGN §4.2). Unknown keys are errors.

A field's description is the sentence the example file and the reference show for it.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

NODE_ID = re.compile(r"^![0-9a-f]{8}$")
DISTRESS_TEXT = (
    "I am only a computer program: nobody has been alerted. "
    "In an emergency call 112 or 911, or ask people nearby on a channel."
)
DISTRESS_WORDS = [
    "sos", "mayday", "emergency", "injured", "ambulance", "notfall", "verletzt", "au secours", "socorro", "помогите",
]  # fmt: skip


class Section(BaseModel):
    """Base of every section: strict types (an int is a fine float, a bool is not), no unknown keys, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ConflictError(ValueError):
    """Two settings that do not go together: ``key`` is where it is shown, ``involves`` every key it depends on."""

    def __init__(self, key: str, message: str, *involves: str) -> None:
        self.key = key
        self.involves = (key, *involves)
        super().__init__(message)


def _node_id(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('a node id looks like "!a1b2c3d4", in quotes')  # noqa: TRY004 - pydantic collects ValueError
    if not NODE_ID.match(value.lower()):
        raise ValueError(f'a node id looks like "!a1b2c3d4", eight hexadecimal digits (got {value[:40]!r})')
    return value.lower()


NodeId = Annotated[str, BeforeValidator(_node_id)]
Seconds = float
Percent = float


class Bot(Section):
    """Who the bot is."""

    name: str = Field("ai", min_length=1, max_length=20, pattern=r"^[\w-]+$", description="@ai on opted-in channels")
    owner: str = Field("", max_length=60, description="shown by !about")
    system_prompt: str = Field("", description="empty: the built-in one")
    distress_words: list[str] = Field(
        DISTRESS_WORDS, description="a message with one of these is first answered by distress_text; []: never"
    )
    distress_text: str = Field(DISTRESS_TEXT, max_length=200, description="what a person in distress is told at once")


class Connection(Section):
    """Where the node is."""

    type: Literal["serial", "tcp", "ble"] = Field("serial", description="serial | tcp | ble (best effort)")
    serial_port: str = Field("auto", min_length=1, description="auto, or /dev/serial/by-id/...")
    tcp_host: str = Field("127.0.0.1", min_length=1, description="host name or address of the node")
    tcp_port: int = Field(4403, ge=1, le=65535, description="4403 unless the node says otherwise")
    ble_address: str = Field("", description="for type ble")

    @model_validator(mode="after")
    def _ble_needs_address(self) -> Connection:
        if self.type == "ble" and not self.ble_address:
            raise ConflictError("ble_address", "needed for connection.type ble", "type")
        return self


def _admin(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('an admin looks like "!a1b2c3d4" or "!a1b2c3d4 <base64 public key>", in quotes')  # noqa: TRY004
    number, _, key = value.strip().partition(" ")
    _node_id(number)
    if key:
        try:
            raw = base64.b64decode(key.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the part after the node id is not a base64 public key") from None
        if len(raw) != 32:
            raise ValueError(f"a public key has 32 bytes, this one has {len(raw)}")
    return f"{number.lower()} {key.strip()}".strip()


class Access(Section):
    """Who may talk to the bot."""

    require_pki: bool = Field(True, description="answer only DMs the node authenticated by public key")
    allow: list[NodeId] = Field([], description="empty: everyone not blocked")
    block: list[NodeId] = Field([], description="these get silence")
    admins: list[Annotated[str, BeforeValidator(_admin)]] = Field(
        [], description='"!a1b2c3d4" or "!a1b2c3d4 <base64 public key>"'
    )
    via_mqtt: bool = Field(False, description="answer packets that came over the internet")
    favourite: bool = Field(True, description="keep users' nodes in the radio's node database")


class ChannelEntry(Section):
    """One channel the bot listens to."""

    name: str = Field(min_length=1, max_length=11, description="the channel's name on the node")
    mention_only: bool = Field(True, description="answer only messages that begin with @name")
    i_know_this_is_public: bool = Field(False, description="needed for a channel with the default key")


class Reply(Section):
    """How answers are cut and paced."""

    max_bytes: int = Field(200, ge=50, le=220, description="UTF-8 bytes per part, marks included; 50..220")
    max_parts: int = Field(3, ge=1, le=9, description="the rest waits for !more")
    spacing_s: Seconds = Field(
        2.5,
        ge=0.0,
        le=60.0,
        description="between any two texts, tapbacks included; below 2.0 is accepted with a warning (virtual meshes)",
    )
    ack_timeout_s: Seconds = Field(0.0, ge=0.0, le=600.0, description="0: computed from preset, hops and channel use")
    ttl_s: Seconds = Field(
        180.0,
        ge=5.0,
        le=3600.0,
        description="an answer whose first part is not on the air by then is not sent; later parts have 15 min",
    )
    hold_s: Seconds = Field(
        7200.0,
        ge=0.0,
        le=86400.0,
        description="undelivered answers wait this long for the node to be heard again; 0: off",
    )
    burst_wait_s: Seconds = Field(
        0.0, ge=0.0, le=30.0, description="extra wait for a second thought before asking the model"
    )
    thinking_after_s: Seconds = Field(8.0, ge=0.0, le=120.0, description="then one tapback on the question; 0: never")


class Limits(Section):
    """Rates and bounds."""

    per_node_per_hour: int = Field(30, ge=1, le=1000, description="questions a person may ask in an hour")
    per_hour: int = Field(60, ge=1, le=10000, description="questions of everybody together in an hour")
    tokens_per_day: int = Field(0, ge=0, le=1_000_000_000, description="of the model, for one node; 0: no cap")
    tokens_per_day_total: int = Field(0, ge=0, le=1_000_000_000, description="for everybody together; 0: no cap")
    queue: int = Field(20, ge=1, le=1000, description='questions that may wait; further ones get a polite "busy"')


class Airtime(Section):
    """What the bot may use of the shared channel."""

    budget_percent: Percent = Field(
        5.0, gt=0.0, le=100.0, description="of a rolling hour, own transmissions; 100: no budget"
    )
    slow_at_percent: Percent = Field(25.0, ge=0.0, le=100.0, description="channel utilisation: one part only")
    hold_at_percent: Percent = Field(
        40.0, ge=0.0, le=100.0, description="channel utilisation: nothing but command replies"
    )

    @model_validator(mode="after")
    def _slow_before_hold(self) -> Airtime:
        if self.slow_at_percent > self.hold_at_percent:
            raise ConflictError(
                "slow_at_percent",
                f"must not be above hold_at_percent ({self.slow_at_percent:g} > {self.hold_at_percent:g})",
                "hold_at_percent",
            )
        return self


class Endpoint(Section):
    """One OpenAI-compatible server."""

    name: str = Field(min_length=1, max_length=40, description="shown in status and logs")
    base_url: str = Field(pattern=r"^https?://[^\s]+$", description="ends in /v1 for nearly every server")
    model: str = Field(min_length=1, description="as the server calls it")
    api_key: SecretStr = Field(SecretStr(""), description="or LLM_API_KEY, or api_key_file")
    api_key_file: str = Field("", description="a file that holds only the key, mode 0600")
    timeout_s: Seconds = Field(
        120.0, ge=1.0, le=600.0, description="silence before and between tokens; connecting has its own 5 s"
    )
    context_tokens: int = Field(0, ge=0, le=10_000_000, description="0: ask the server, else 2048")
    extra_body: dict[str, Any] = Field({}, description="vendor switches, passed on unchanged")

    @field_validator("api_key", mode="before")
    @classmethod
    def _key_is_text(cls, value: object) -> object:
        if isinstance(value, SecretStr):
            return value
        if not isinstance(value, str):
            raise ValueError("the key must be text, in quotes")  # noqa: TRY004
        return SecretStr(value)


LOCAL_ENDPOINT = Endpoint(name="local", base_url="http://127.0.0.1:11434/v1", model="llama3.2")


class Llm(Section):
    """The language model."""

    parallel: int = Field(1, ge=1, le=16, description="requests at once; background work yields when no slot is free")
    endpoints: list[Endpoint] = Field(
        [LOCAL_ENDPOINT],
        description="tried in order; a failed one rests 60 s (then longer, at most 10 min) while another is left; "
        "[] = offline answerer only",
    )
    temperature: float = Field(0.7, ge=0.0, le=2.0, description="0.0 sober .. 2.0 wild")
    max_tokens: int = Field(0, ge=0, le=100_000, description="visible text; 0: from reply.max_bytes * reply.max_parts")

    @model_validator(mode="after")
    def _names_differ(self) -> Llm:
        seen: dict[str, int] = {}
        for number, endpoint in enumerate(self.endpoints):
            first = seen.setdefault(endpoint.name, number)
            if first != number:
                raise ConflictError(f"endpoints.{number}.name", f"endpoint {first + 1} has this name, too", "endpoints")
        return self


SHARES = {"persona": 15, "facts": 8, "window": 42, "chain": 12, "recall": 20}  # docs/memory.md §2.4


class Tuning(Section):
    """Finer knobs of the memory."""

    auto: bool = Field(True, description="false: only !compact and the hard limit compact")
    min_messages: int = Field(10, ge=2, le=500, description="no soft compaction below this many messages")  # S0-4
    soft_percent: int = Field(70, ge=10, le=95, description="of the window's share: compact when idle")
    hard_percent: int = Field(90, ge=20, le=100, description="of the window's share: digest at once")
    max_level1: int = Field(5, ge=2, le=50, description="active level-1 summaries before a merge")  # S3-15
    max_active: int = Field(10, ge=2, le=100, description="active summaries in all")  # S3-16
    summary_words: int = Field(120, ge=20, le=1000, description="words a summary aims at")
    summary_max_tokens: int = Field(0, ge=0, le=4000, description="0: from the words, at least 160")
    summary_temperature: float = Field(0.3, ge=0.0, le=2.0, description="of the summariser")  # S0-10
    prompt_file: str = Field("", description="a file with your own summarisation prompt")  # S2-6
    base_url: str = Field("", description="another server for memory.model")
    shares: dict[str, int] = Field(
        {}, description="percent of the prompt: persona 15, facts 8, window 42, chain 12, recall 20"
    )

    @field_validator("shares")
    @classmethod
    def _known_shares(cls, value: dict[str, int]) -> dict[str, int]:
        unknown = [name for name in value if name not in SHARES]
        if unknown:
            raise ValueError(f"unknown share {unknown[0][:40]!r}; the shares are {', '.join(SHARES)}")
        if any(not 0 <= percent <= 100 for percent in value.values()):
            raise ValueError("each share is a percentage from 0 to 100")
        total = sum({**SHARES, **value}.values())
        if total > 100:
            raise ValueError(f"the shares together must not pass 100 percent (they are {total})")
        return value

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Tuning:
        if self.soft_percent >= self.hard_percent:
            raise ConflictError(
                "soft_percent",
                f"must be below hard_percent ({self.soft_percent} >= {self.hard_percent})",
                "hard_percent",
            )
        if self.max_level1 > self.max_active:
            raise ConflictError(
                "max_level1", f"must not be above max_active ({self.max_level1} > {self.max_active})", "max_active"
            )
        return self


class Memory(Section):
    """What the bot remembers and how."""

    enabled: bool = Field(True, description="false: only the last window_pairs are shown to the model")
    strategy: Literal["tiered", "rolling", "sliding", "progressive"] = Field(
        "tiered", description="tiered | rolling | sliding | progressive"
    )
    window_pairs: int = Field(4, ge=1, le=50, description="always kept raw after a compaction, if they fit")
    compact_every: int = Field(
        0,
        ge=0,
        le=500,
        description="user turns older than window_pairs, 1..500; 0: the strategy's own rule (tiered: 10)",
    )
    idle_s: Seconds = Field(
        60.0, ge=0.0, le=3600.0, description="soft compaction waits for this much quiet in the conversation"
    )
    sliding_window: int = Field(14, ge=2, le=200, description="messages covered by strategy sliding")
    context_budget: int = Field(
        0, ge=0, le=1_000_000, description="tokens of the prompt; 0: the smaller of context_tokens and 8000"
    )
    model: str = Field("", description="summariser model; empty: the replying endpoint's")
    facts: bool = Field(True, description="keep facts about a person apart from the summary")
    recall: bool = Field(True, description="look earlier messages up for a question")
    token_counter: Literal["auto", "tiktoken", "estimate"] = Field("auto", description="auto | tiktoken | estimate")
    retention_days: int = Field(0, ge=0, le=36500, description="0: keep for ever")
    tuning: Tuning = Field(Tuning(), description="finer knobs")


class Knowledge(Section):
    """The operator's own documents."""

    folder: str = Field("", description=".md and .txt files")


class Storage(Section):
    """Where the data is."""

    database: str = Field("", description="empty: $STATE_DIRECTORY or ~/.local/share/meshai, meshai.db")
    daily_copies: int = Field(7, ge=0, le=365, description="automatic copies kept beside the database; 0: none")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Web(Section):
    """The operator's page."""

    enabled: bool = Field(False, description="needs the extra: pip install 'meshai[web]'")
    host: str = Field("127.0.0.1", min_length=1, description="loopback unless a token is set")
    port: int = Field(8680, ge=1, le=65535, description="http://127.0.0.1:8680")
    token: SecretStr = Field(SecretStr(""), description="required unless host is loopback")

    @field_validator("token", mode="before")
    @classmethod
    def _token_is_text(cls, value: object) -> object:
        if isinstance(value, SecretStr):
            return value
        if not isinstance(value, str):
            raise ValueError("the token must be text, in quotes")  # noqa: TRY004
        return SecretStr(value)

    @model_validator(mode="after")
    def _open_page_needs_token(self) -> Web:
        if not _is_loopback(self.host) and not self.token.get_secret_value():
            raise ConflictError(
                "host", f"others can reach {self.host[:40]!r}: set web.token, or use host: 127.0.0.1", "token"
            )
        return self


class Log(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="debug shows message texts")
    file: str = Field("", description="also into this file, at most 5 x 1 MB; empty: only to stderr (the journal)")


class Settings(Section):
    """The whole configuration; ``Settings()`` is a working default."""

    bot: Bot = Field(Bot(), description="who the bot is")
    connection: Connection = Field(Connection(), description="where the node is")
    access: Access = Field(Access(), description="who may talk to the bot")
    channels: list[ChannelEntry] = Field([], description="- {name: bot, mention_only: true}")
    reply: Reply = Field(Reply(), description="how answers are cut and paced")
    limits: Limits = Field(Limits(), description="rates and bounds")
    airtime: Airtime = Field(Airtime(), description="what the bot may use of the shared channel")
    llm: Llm = Field(Llm(), description="the language model")
    memory: Memory = Field(Memory(), description="what the bot remembers and how")
    knowledge: Knowledge = Field(Knowledge(), description="your own documents")
    storage: Storage = Field(Storage(), description="where the data is")
    web: Web = Field(Web(), description="the operator's page")
    log: Log = Field(Log(), description="the log")

    def secrets(self) -> tuple[str, ...]:
        """What must never be written anywhere."""
        values = [*(endpoint.api_key for endpoint in self.llm.endpoints), self.web.token]
        return tuple(value.get_secret_value() for value in values if value.get_secret_value())
