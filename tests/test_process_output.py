"""tests/kit/process_output.py: a line that was written before the look is seen by it, whatever the thread has done."""

from __future__ import annotations

import os
import threading

from kit.process_output import ProcessOutput


def pipe() -> tuple[ProcessOutput, int, list[str]]:
    reading, writing = os.pipe()
    seen: list[str] = []
    return ProcessOutput(os.fdopen(reading, "rb"), seen.append), writing, seen


def test_what_was_written_is_there_without_a_thread() -> None:
    output, writing, seen = pipe()
    os.write(writing, b"one\ntw")
    assert output.text() == "one"
    os.write(writing, b"o\n")
    assert output.text() == "one\ntwo"
    assert seen == ["one", "two"]
    os.write(writing, b"no line end")
    os.close(writing)
    assert output.text() == "one\ntwo\nno line end"
    output.close()
    assert output.text() == "one\ntwo\nno line end"


def test_a_look_is_not_behind_the_writer_while_a_thread_reads_too() -> None:
    output, writing, seen = pipe()
    reader = threading.Thread(target=output.follow, daemon=True)
    reader.start()
    for number in range(2_000):
        os.write(writing, b"line %d\n" % number)
        assert output.text().endswith(f"line {number}")
    os.close(writing)
    reader.join(60)
    assert not reader.is_alive()
    output.close()
    assert seen == [f"line {number}" for number in range(2_000)]
