"""Reading what somebody pipes into the chat."""

import os

import pytest

from meshai.demo.talk import lines


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"\xff broken \xc3", ["\ufffd broken \ufffd"]),
        ("a ünïcode line\n".encode(), ["a ünïcode line"]),
    ],
)
async def test_lines_of_a_pipe(data, expected):
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    assert [line async for line in lines(reading)] == expected
    os.close(reading)


async def test_lines_of_a_file(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("x" * 100_000 + "\nlast")
    with path.open("rb") as file:
        assert [len(line) async for line in lines(file.fileno())] == [100_000, 4]


async def test_character_split_between_two_reads():
    reading, writing = os.pipe()
    source = lines(reading)
    os.write(writing, b"gr\xc3")
    os.write(writing, b"\xbcezi\n")
    assert await anext(source) == "grüezi"
    os.close(writing)
    assert [line async for line in source] == []
    os.close(reading)
