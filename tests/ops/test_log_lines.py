"""What the log looks like, and what never gets into it."""

import io
import logging

import pytest

from meshai.errors import MissingError
from meshai.ops import log


@pytest.fixture
def lines():
    """Set the log up on a buffer; the former state comes back afterwards."""
    root, loggers = logging.getLogger(), [logging.getLogger(name) for name in log.LIBRARIES]
    before, levels = list(root.handlers), [(logger, logger.level) for logger in (root, *loggers)]

    def start(level="info", **options):
        buffer = io.StringIO()
        log.setup(level, stream=buffer, env=options.pop("env", {}), **options)
        return buffer

    yield start
    root.handlers[:] = before
    for logger, level in levels:
        logger.setLevel(level)


JOURNAL = {"JOURNAL_STREAM": "8:12345"}


def test_every_line_has_its_level_for_the_journal(lines):
    out = lines("debug", env=JOURNAL)
    logger = logging.getLogger("meshai.x")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "text")
    assert out.getvalue().splitlines() == [f"<{n}>meshai.x: text" for n in (7, 6, 4, 3, 2)]


def test_traceback_lines_have_their_level_too(lines):
    out = lines(env=JOURNAL)
    try:
        {}["broken\nin two lines"]
    except KeyError:
        logging.getLogger("meshai").exception("it failed")
    written = out.getvalue().splitlines()
    assert len(written) > 4
    assert all(line.startswith("<3>") for line in written)
    assert all(line.startswith("<3>    ") for line in written[1:])


def test_without_journal_the_line_has_time_and_level(lines):
    out = lines()
    logging.getLogger("meshai.radio").info("connected to %s", "ttyACM0")
    assert out.getvalue().endswith(" INFO    meshai.radio: connected to ttyACM0\n")
    assert not out.getvalue().startswith("<")


def test_terminal_under_a_session_service_has_no_prefix(lines):
    """A desktop's terminal inherits JOURNAL_STREAM from the session."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    lines()
    log.setup("info", stream=terminal, env=JOURNAL)
    logging.getLogger("meshai").info("x")
    assert "<6>" not in terminal.getvalue()


def test_message_cannot_forge_a_record_or_move_the_cursor(lines):
    out = lines(env=JOURNAL)
    logging.getLogger("meshai").warning("node %s", "x\n<0>meshai: all is lost\x1b[2J\r")
    assert out.getvalue() == "<4>meshai: node x\n<4>    <0>meshai: all is lost\\x1b[2J\\r\n"


def test_secrets_are_hidden_wherever_they_stand(lines):
    out = lines(secrets=["tops3cret", "x"])
    logger = logging.getLogger("meshai")
    logger.error("refused: %s", "key tops3cret")
    logger.error("header %s", "Authorization: Bearer abcdefgh12345")
    logger.error("other sk-abcdefghijklmnop1234")
    try:
        {}["tops3cret"]
    except KeyError:
        logger.exception("with trace")
    assert "tops3cret" not in out.getvalue()
    assert "abcdefgh" not in out.getvalue()
    assert "key ***" in out.getvalue()
    assert "KeyError: '***'" in out.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "error"])
def test_libraries_stay_quiet(lines, level):
    """meshtastic's DEBUG prints private keys."""
    out = lines(level)
    for name in ("meshtastic.mesh_interface", "openai._base_client", "httpx2", "httpcore2.connection"):
        logging.getLogger(name).debug("private")
        logging.getLogger(name).info("private")
    assert out.getvalue() == ""
    logging.getLogger("openai").error("shown")
    assert "shown" in out.getvalue()


def test_second_setup_replaces_the_first(lines):
    first, second = lines(), lines()
    logging.getLogger("meshai").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_level_changes_while_running(lines):
    out = lines("warning")
    logging.getLogger("meshai").info("one")
    log.set_level("debug")
    logging.getLogger("meshai").debug("two")
    assert "one" not in out.getvalue()
    assert "two" in out.getvalue()


def test_log_file_is_private_turned_over_and_clean(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "FILE_BYTES", 2000)
    path = tmp_path / "meshai.log"
    handler = log.to_file(path, secrets=["sk-verysecret"])
    try:
        for number in range(200):
            logging.getLogger("meshai.test").warning("line %d with sk-verysecret", number)
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + log.OLD_FILES
    assert path.stat().st_mode & 0o777 == 0o600
    assert all("verysecret" not in file.read_text() for file in files)


def test_log_file_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(MissingError, match="cannot write the log file"):
        log.to_file(tmp_path / "no" / "meshai.log")


def test_last_errors_are_kept_without_their_traces():
    kept = log.LastErrors(most=2)
    logger = logging.getLogger("meshai.last")
    logger.addHandler(kept)
    try:
        for number in range(3):
            logger.error("problem %d\nwith a trace", number)
        logger.warning("no error")
    finally:
        logger.removeHandler(kept)
    assert [row["text"] for row in kept.listed()] == ["meshai.last: problem 1", "meshai.last: problem 2"]
