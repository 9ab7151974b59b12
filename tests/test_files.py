import json
import os

import pytest

from clue_hf.errors import UserError
from clue_hf.files import ResumableLog, atomic_write, write_json, write_lines, write_text


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1, "path": tmp_path})
    assert json.loads(path.read_text()) == {"a": 1, "path": str(tmp_path)}
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, float("nan"), allow_nan=False)
    with pytest.raises(TypeError), atomic_write(path) as file:
        file.writelines([b"half", "no bytes"])
    assert json.loads(path.read_text())["a"] == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_utf_8_does_not_have_is_replaced(tmp_path):
    write_text(tmp_path / "a.txt", "é\ud800\n")
    write_lines(tmp_path / "a.jsonl", iter([{"a": "é\ud800"}, {"a": 2}]))
    assert (tmp_path / "a.txt").read_bytes() == "é?\n".encode()
    assert (tmp_path / "a.jsonl").read_bytes() == '{"a": "é?"}\n{"a": 2}\n'.encode()


@pytest.mark.parametrize("kept", [False, True])
def test_results_in_any_order_are_returned_in_order(tmp_path, kept):
    output, unfinished = (tmp_path / "new" / "a.jsonl", tmp_path / "new" / "a.log") if kept else (None, None)
    with ResumableLog(output, unfinished, {"model": "m"}) as log:
        assert not (tmp_path / "new").exists()  # nothing is written before there is a result
        log.add(["c", "a"], [{"row": 2}, {"row": 0}])
        assert (log.done, log.count) == ({0, 2}, 2)
        log.add(["b", "a"], [{"row": 1}, {"row": 0, "again": True}])
        assert (log.done, log.count) == ({0, 1, 2}, 3)
        assert [json.loads(line) for line in log.lines(3)] == [{"row": 0, "again": True}, {"row": 1}, {"row": 2}]
        log.finish(3)
    if kept:
        assert output.read_text() == '{"row": 0, "again": true}\n{"row": 1}\n{"row": 2}\n'
        assert os.listdir(tmp_path / "new") == ["a.jsonl"]


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"not json\n", b'0123abcd {"no_row": 1}\n', b'{"row": 3, "source": "x"}\n']
)
def test_a_damaged_log_is_an_error_that_says_what_to_do(tmp_path, line):
    path = tmp_path / "a.log"
    with ResumableLog(tmp_path / "a.jsonl", path, {"model": "m"}) as log:
        log.add(["a"], [{"row": 0}])
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(UserError, match="is damaged, or from another version.*Delete it"):
        ResumableLog(tmp_path / "a.jsonl", path, {"model": "m"}, resume=True)
