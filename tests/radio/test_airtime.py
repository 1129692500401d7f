"""Time on air against the table of protocol.md §4, which was computed with RadioLib's formula."""

import pytest

from meshai.radio.airtime import MAX_FRAME_BYTES, PRESETS, frame_bytes, retransmission_ms, time_on_air_ms

TABLE = {
    "SHORT_TURBO": (39, 57, 94, 102, 19, 5.1),
    "SHORT_FAST": (78, 114, 189, 204, 38, 5.3),
    "SHORT_SLOW": (142, 203, 336, 362, 70, 5.7),
    "MEDIUM_FAST": (252, 365, 601, 642, 130, 6.3),
    "MEDIUM_SLOW": (464, 669, 1099, 1181, 239, 7.5),
    "LONG_TURBO": (640, 935, 1525, 1656, 312, 8.4),
    "LONG_FAST": (887, 1255, 1993, 2157, 477, 9.9),
    "LONG_MODERATE": (2953, 4395, 7410, 7934, 1380, 21.2),
    "LONG_SLOW": (5382, 8004, 13246, 14295, 2499, 34.9),
    "MEDIUM_TURBO": (126, 183, 300, 321, 65, 5.6),
    "LITE_FAST": (505, 730, 1201, 1283, 259, 7.7),
    "LITE_SLOW": (928, 1337, 2198, 2361, 477, 10.2),
    "NARROW_FAST": (365, 537, 893, 967, 168, 6.9),
    "NARROW_SLOW": (656, 951, 1590, 1713, 312, 8.5),
}
"""50, 100 and 200 byte PKI DM, full frame, ACK of 29 bytes (ms); retransmission timer of the 200 byte DM (s)."""


@pytest.mark.parametrize("preset", TABLE)
def test_time_on_air_matches_the_table(preset):
    """§4"""
    lengths = [frame_bytes(size) for size in (50, 100, 200)] + [MAX_FRAME_BYTES, 29]
    assert [round(time_on_air_ms(length, preset)) for length in lengths] == list(TABLE[preset][:5])


@pytest.mark.parametrize("preset", TABLE)
def test_retransmission_timer_matches_the_table(preset):
    """§3.7; the table is a little below its own formula."""
    timer = retransmission_ms(time_on_air_ms(frame_bytes(200), preset), PRESETS[preset])
    assert timer / 1000 == pytest.approx(TABLE[preset][5], rel=0.03)


def test_three_timers_are_the_recorded_wait():
    """§9.10: MAX_RETRANSMIT 21.26 to 21.4 s after a text of 13 bytes."""
    timer = retransmission_ms(time_on_air_ms(frame_bytes(13)), PRESETS["LONG_FAST"])
    assert 3 * timer / 1000 == pytest.approx(21.4, abs=0.15)


@pytest.mark.parametrize(
    ("size", "form"),
    [
        (220, {"pki": True}),
        (215, {"pki": True, "has_reply": True}),
        (210, {"pki": True, "has_reply": True, "is_tapback": True}),
        (232, {"pki": False}),
        (227, {"pki": False, "has_reply": True}),
    ],
)
def test_largest_text_fills_the_frame(size, form):
    """§1"""
    assert frame_bytes(size, **form) == MAX_FRAME_BYTES


def test_unknown_preset_is_an_error():
    with pytest.raises(KeyError):
        time_on_air_ms(50, "FASTEST")
