"""Failures in words that name the remedy."""

import errno
import socket

import pytest
import serial

from meshai.errors import LinkDownError
from meshai.radio.explain import explain

CASES = [
    (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "nothing listens there"),
    (socket.gaierror(-2, "x"), "host name is unknown"),
    (TimeoutError("timed out"), "no answer to the connection attempt"),
    (OSError(errno.ETIMEDOUT, "x"), "stopped answering"),
    (ConnectionResetError(errno.ECONNRESET, "x"), "reset the connection"),
    (serial.SerialException(errno.ENOENT, "could not open port"), "unplugged or rebooting"),
    (serial.SerialException(errno.EACCES, "could not open port"), "group dialout"),
    (serial.SerialException(errno.EAGAIN, "Could not exclusively lock port"), "held by another program"),
    (serial.SerialException(errno.EBUSY, "could not open port"), "held by another program"),
    (serial.SerialException("device reports readiness to read but returned no data (…)"), "two programs read"),
    (serial.SerialException("Could not configure port: (25, 'Inappropriate ioctl')"), "not a serial port"),
    (ConnectionError("the node closed the connection"), "the node closed the connection"),
    (LinkDownError("no node"), "no node"),
    (ValueError("a\nb  c"), "ValueError: a b c"),
    (KeyError(), "KeyError"),
]


@pytest.mark.parametrize(("error", "words"), CASES)
def test_error_is_explained(error, words):
    assert words in explain(error)


def test_long_errors_are_cut():
    assert len(explain(ValueError("x" * 5000))) == 200
