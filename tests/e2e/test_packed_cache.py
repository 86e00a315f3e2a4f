"""runtime.packed_cache: copies of packed weights, which later starts map instead of packing."""
import os
import pathlib
import re

import pytest

from daemon import merged


def copies(folder):
    return sorted(folder.glob("*.packed")) if folder.exists() else []


def begin(start, path, extra=None):
    """A daemon, its reply and its log.  It computes on the processors, as packing is theirs."""
    config = merged(start.config(path), {"runtime": {"driver": "cpu", "isa": "auto", "threads": 2}})
    d = start(config=merged(config, extra or {}))
    text = d.chat_text("a few words", temperature=0, max_tokens=16)
    log = d.log
    d.stop()
    return text, log


@pytest.mark.home("release")
def test_off_and_on(start, models, tmp_path):
    folder = tmp_path / "cache" / "packed"
    on = {"runtime": {"packed_cache": str(folder)}}
    text, log = begin(start, models.random())
    assert "packed weights" not in log and not folder.exists()

    again, log = begin(start, models.random(), on)
    assert again == text
    [copy] = copies(folder)
    assert "packed weights are written to %s" % copy in log
    assert copy.stat().st_mode & 0o777 == 0o400 and folder.stat().st_mode & 0o777 == 0o700
    written = copy.stat()

    again, log = begin(start, models.random(), on)
    assert again == text and copies(folder) == [copy]
    assert "packed weights are mapped from %s" % copy in log
    assert copy.stat().st_ino == written.st_ino and copy.stat().st_mtime_ns > written.st_mtime_ns  # used

    # of another form of the weights there is another copy, and neither disturbs the other
    other, log = begin(start, models.random(), merged(on, {"runtime": {"isa": "generic"}}))
    assert len(copies(folder)) == 2 and "written to" in log
    again, log = begin(start, models.random(), on)
    assert again == text and "packed weights are mapped from %s" % copy in log


@pytest.mark.parametrize("damage", ["a byte", "cut", "empty", "foreign"])
def test_damaged(start, models, tmp_path, damage):
    folder = tmp_path / "packed"
    on = {"runtime": {"packed_cache": str(folder)}}
    text, _ = begin(start, models.random(), on)
    [copy] = copies(folder)
    data = bytearray(copy.read_bytes())
    copy.chmod(0o600)
    if damage == "a byte":
        data[len(data) * 2 // 3] ^= 1
        copy.write_bytes(data)
    elif damage == "foreign":  # of another model, under this one's name
        begin(start, models.script(), on)
        [other] = [c for c in copies(folder) if c != copy]
        other.replace(copy)
    else:
        copy.write_bytes(data[:1000] if damage == "cut" else b"")
    again, log = begin(start, models.random(), on)
    assert again == text
    assert re.search(r"warn .*its copy of packed weights: %s: damaged, or of something else" % copy, log)
    assert "packed weights are written to %s" % copy in log
    again, log = begin(start, models.random(), on)
    assert again == text and "packed weights are mapped from %s" % copy in log


def test_another_file_of_that_name(start, models, tmp_path):
    """A model's file that is replaced by another is packed anew."""
    folder, model = tmp_path / "packed", tmp_path / "model.gguf"
    on = {"runtime": {"packed_cache": str(folder)}}
    model.write_bytes(pathlib.Path(models.random()).read_bytes())
    text, _ = begin(start, str(model), on)
    model.write_bytes(pathlib.Path(models.script()).read_bytes())
    other, log = begin(start, str(model), on)
    assert other != text and "packed weights are written to" in log and len(copies(folder)) == 2


@pytest.mark.home("release")
def test_limit(start, models, tmp_path):
    folder = tmp_path / "packed"
    on = {"runtime": {"packed_cache": str(folder)}}
    text, _ = begin(start, models.random(), on)
    [copy] = copies(folder)
    size = copy.stat().st_size
    begin(start, models.script(), on)
    sizes = sorted(c.stat().st_size for c in copies(folder))
    assert len(sizes) == 2
    # space for the larger one alone: the other is removed for it, and in turn
    limit = {"runtime": {"packed_cache": str(folder), "packed_cache_size": max(sizes)}}
    again, log = begin(start, models.random(), limit)
    assert again == text and copies(folder) == [copy] and "is removed for another" in log
    # space for none: the model is loaded without one
    limit["runtime"]["packed_cache_size"] = size - 1
    again, log = begin(start, models.random(), limit)
    assert again == text and "do not fit into" in log and "mapped" not in log


def test_no_folder(start, models, tmp_path):
    """A folder that can't be made is named; without a copy nobody would know why starts are slow."""
    (tmp_path / "file").write_text("x")
    said = start.refused(models.random(), {"runtime": {"packed_cache": str(tmp_path / "file" / "packed")}})
    assert str(tmp_path / "file") in said


@pytest.mark.home("release")
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory by kind is Linux's")
def test_memory(start, models, tmp_path):
    """Mapped weights are the file's pages and none of the process's own."""
    def own(extra):
        config = merged(start.config(models(kind="random", width=512, n_blocks=6)), extra)
        d = start(config=merged(config, {"runtime": {"driver": "cpu"}}))
        d.chat_text("x", max_tokens=1)
        lines = pathlib.Path("/proc/%d/smaps" % d.process.pid).read_text().splitlines()
        d.stop()
        # a mapping's first line ends with its file, the next one says its size
        return sum(int(size.split()[1]) for head, size in zip(lines, lines[1:])
                   if head.endswith(".packed") and size.startswith("Size:"))

    on = {"runtime": {"packed_cache": str(tmp_path / "packed")}}
    assert own({}) == 0
    written = own(on)
    [copy] = copies(tmp_path / "packed")
    # the first load has given its memory back, too
    assert written == own(on) and written * 1024 >= copy.stat().st_size - (128 << 10)
