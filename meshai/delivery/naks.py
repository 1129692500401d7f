"""What a refusal means and what to do about it (docs/protocol.md §3.2)."""

from __future__ import annotations

from enum import Enum, auto


class Fate(Enum):
    """What happens to a packet that got a NAK."""

    RETRY = auto()  # known lost: once more, under a new id, on a quiet channel
    RETRY_SOON = auto()  # the other node just asked ours for its key: once more in half a minute
    RETRY_PACED = auto()  # we were too fast
    SPLIT = auto()  # too large: cut smaller
    WAIT = auto()  # the node says when
    HOLD = auto()  # cannot work before something changes: wait until the node is heard
    FAIL = auto()  # will never work
    IGNORE = auto()  # says nothing about the delivery


FATES = {
    "MAX_RETRANSMIT": Fate.RETRY,
    "TIMEOUT": Fate.RETRY,
    "NO_ROUTE": Fate.RETRY,
    "GOT_NAK": Fate.RETRY,
    "NO_RESPONSE": Fate.IGNORE,
    "NO_INTERFACE": Fate.HOLD,
    "NO_CHANNEL": Fate.FAIL,
    "TOO_LARGE": Fate.SPLIT,
    "DUTY_CYCLE_LIMIT": Fate.WAIT,
    "BAD_REQUEST": Fate.FAIL,
    "NOT_AUTHORIZED": Fate.FAIL,
    "PKI_FAILED": Fate.FAIL,
    "PKI_UNKNOWN_PUBKEY": Fate.RETRY_SOON,
    "PKI_SEND_FAIL_PUBLIC_KEY": Fate.HOLD,
    "RATE_LIMIT_EXCEEDED": Fate.RETRY_PACED,
}

_ADVICE = {
    "NO_INTERFACE": "the node has no working radio: check its antenna, region setting and firmware",
    "NO_CHANNEL": (
        "{node} could not open our packet, its key has probably changed: "
        "compare the keys with `meshai identity list`, then run `meshai identity accept {node}`"
    ),
    "PKI_FAILED": (
        "our node holds another key for {node} than the one that asked: "
        "compare the keys with `meshai identity list`, then run `meshai identity accept {node}`"
    ),
    "PKI_UNKNOWN_PUBKEY": (
        "{node} does not know our node's key; our node is sending it now. If it stays so: on {node}, remove our node "
        "from its node list, or exchange node information"
    ),
    "PKI_SEND_FAIL_PUBLIC_KEY": (
        "our node does not know the key of {node} (any more): the answer waits until it is heard. If it stays so: "
        "on {node}, exchange node information with our node"
    ),
    "NOT_AUTHORIZED": "{node} refuses our packets",
    "TOO_LARGE": "a packet was larger than our node can send: lower reply.max_bytes",
    "DUTY_CYCLE_LIMIT": "our node has used up its duty cycle; it sends again when the region's rules allow it",
    "RATE_LIMIT_EXCEEDED": "another program is sending texts through our node: give MeshAI a node of its own",
    "MAX_RETRANSMIT": "",
}


def fate_of(reason: str) -> Fate:
    """What to do; an unknown reason is final."""
    return FATES.get(reason, Fate.FAIL)


def advice(reason: str, node: str) -> str:
    """The sentence for the operator, with the fix; empty when there is nothing to do."""
    return _ADVICE.get(reason, f"{reason} from {{node}}").format(node=node)


def is_key_trouble(reason: str) -> bool:
    """The other node's key is not the one we know."""
    return reason in ("NO_CHANNEL", "PKI_FAILED")
