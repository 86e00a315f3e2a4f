"""Modules that are wrong on purpose (tests/modules/*.c) are refused, with what was expected
and what was found."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from daemon import BUILD, clean_env, merged, until, yaml_text
from tiny_model import SCRIPT

WRONG = BUILD / "tests" / "modules"
MINOR = int(re.search(r"IG_ABI_MINOR (\d+)", (
    pathlib.Path(__file__).parents[2] / "include/ingot/module.h").read_text()).group(1))
SUFFIX = ".dylib" if os.uname().sysname == "Darwin" else ".so"


def with_module(start, tmp_path, name, mode=0o755, folder_mode=0o755):
    folder = tmp_path / "modules"
    folder.mkdir()
    path = folder / (name + SUFFIX)
    shutil.copy(WRONG / (name + SUFFIX), path)
    path.chmod(mode)
    folder.chmod(folder_mode)
    return str(path), {"modules": {"path": start.config()["modules"]["path"] + [str(folder)]}}


@pytest.mark.parametrize("name, words", [
    ("wrong_magic", ["magic", "4d474e49|INGM", "21444142|BAD!"]),
    ("wrong_major", [r"ABI 99\.%d\b" % MINOR, r"this is 1\.%d\b" % MINOR]),
    ("wrong_minor", [r"ABI 1\.77\b", r"this is 1\.%d, which is older" % MINOR]),
    ("wrong_short", [r"in 88 bytes, expected 96 to"]),
    ("wrong_long", [r"in (\d+) bytes, expected 96 to"]),
    ("wrong_build_id", ["build id", "ffffffffffffffff"]),
    ("missing_op", ["zeppelin_op"]),
    ("old_op", [r'op "embed" of version 41, which is 1 here']),
    ("wrong_service", [r'service "harmless" is of version 43, expected 1']),
    ("wrong_option", [r'option 0, "late", is incomplete']),
    ("wrong_option_key", [r'option 0, "Late", is incomplete']),
    ("wrong_choice", [r'option 0, "hue", is incomplete']),
    ("wrong_name", [r"its name is an option's, modules\.path"]),
    ("no_symbol", ["ingot_module"]),
    ("failing_init", ["init"]),
    ("taken_name", ["embed"]),
    ("unterminated_build_id", ["build id"]),
    ("wrong_op_size", ["size|op"]),
])
def test_wrong_module_is_refused(start, models, tmp_path, name, words):
    path, extra = with_module(start, tmp_path, name)
    log = start.refused(models.script(), extra)
    assert path in log, log
    for w in words:
        assert re.search(w, log.replace(path, ""), re.I), "no %s in %s" % (w, log)


def test_expected_and_found_build_id(start, models, tmp_path):
    path, extra = with_module(start, tmp_path, "wrong_build_id")
    log = start.refused(models.script(), extra)
    ids = set(re.findall(r"\b[0-9a-f]{16}\b", log.replace(path, "")))
    assert "f" * 16 in ids and len(ids) == 2, log


def test_a_good_module_is_taken(start, models, tmp_path):
    """The same file, unharmed: what the tests above see is the harm."""
    _, extra = with_module(start, tmp_path, "good")
    d = start(models.script(), extra)
    assert d.chat_text() == SCRIPT


def test_a_foreign_build_id_without_ops_is_taken(start, models, tmp_path):
    """Tier 1 asks for a version alone; what ops need is not given to it."""
    _, extra = with_module(start, tmp_path, "foreign")
    assert start(models.script(), extra).chat_text() == SCRIPT


def test_world_writable_module(start, models, tmp_path):
    path, extra = with_module(start, tmp_path, "good", mode=0o757)
    log = start.refused(models.script(), extra)
    assert path in log and re.search("writ", log), log


def test_world_writable_folder(start, models, tmp_path):
    path, extra = with_module(start, tmp_path, "good", folder_mode=0o777)
    log = start.refused(models.script(), extra)
    assert os.path.dirname(path) in log and re.search("writ", log), log


def test_group_writable_is_taken(start, models, tmp_path):
    """Homebrew's prefix is group-writable."""
    _, extra = with_module(start, tmp_path, "good", mode=0o775, folder_mode=0o775)
    assert start(models.script(), extra).chat_text() == SCRIPT


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\2\1\1" + bytes(200), b"text\n" * 50])
def test_a_file_that_is_no_library(start, models, tmp_path, data):
    folder = tmp_path / "modules"
    folder.mkdir(mode=0o755)
    path = folder / ("broken" + SUFFIX)
    path.write_bytes(data)
    path.chmod(0o755)
    log = start.refused(models.script(),
                        {"modules": {"path": start.config()["modules"]["path"] + [str(folder)]}})
    assert str(path) in log


def test_a_link_to_a_world_writable_module(start, models, tmp_path):
    """The file counts, not the link to it."""
    path, _ = with_module(start, tmp_path, "good", mode=0o777)
    links = tmp_path / "links"
    links.mkdir(mode=0o755)
    (links / ("link" + SUFFIX)).symlink_to(path)
    log = start.refused(models.script(),
                        {"modules": {"path": start.config()["modules"]["path"] + [str(links)]}})
    assert re.search("writ", log), log


def test_the_same_module_twice(start, models):
    folders = start.config()["modules"]["path"]
    log = start.refused(models.script(), {"modules": {"path": folders + folders[:1]}})
    assert pathlib.Path(folders[0]).name in log or "already" in log


def test_a_folder_that_is_not_there(start, models, tmp_path):
    log = start.refused(models.script(), {"modules": {"path": [str(tmp_path / "none")]}})
    assert "module folder %s: No such file" % (tmp_path / "none") in log


def test_options_are_judged_by_those_who_read_them(start, models, tmp_path):
    """The daemon at its start and at a reload, its --check-config, and the doctor."""
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml_text(start.config(models.script(), {
        "modules": {"kvcache": {"max_cachd": "1MiB"}}})) + "\n")
    line = [n for n, text in enumerate(path.read_text().split("\n"), 1) if "max_cachd" in text][0]
    said = '%s:%d:5: unknown key "modules.kvcache.max_cachd"; the module\'s options are max_cached, ' \
        'max_snapshots' % (path, line)
    for command in (["daemon/ingotd", "--check-config"], ["daemon/ingotd"], ["cli/ingot", "doctor"]):
        r = subprocess.run([str(BUILD / command[0]), *command[1:], "--config", str(path)],
                           env=clean_env(tmp_path), capture_output=True, text=True)
        assert r.returncode == 1 and said in r.stdout + r.stderr, command
    good = {"modules": {"kvcache": {"max_cached": "1MiB"}}}
    d = start(models.script(), good)
    for value, words in (("2MiB", "modules.kvcache.max_cached: 1MiB -> 2MiB needs a restart"),
                         ("2M", "expected a size in bytes"),
                         ("0", "modules.kvcache.max_cached: 1MiB -> 0 needs a restart")):
        d.write_config(merged(d.config, {"modules": {"kvcache": {"max_cached": value}}}))
        d.process.send_signal(signal.SIGHUP)
        until(lambda: words in d.log, "the log says " + words)
    assert "the old configuration stays" in d.log
