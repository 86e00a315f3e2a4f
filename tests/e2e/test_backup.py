"""ingot backup: a folder with which a lost daemon goes on."""
import pathlib
import resource
import shutil
import signal
import sqlite3
import stat

import pytest

from daemon import until
from test_cli import ingot
from test_ledger import rows, until_rows
from test_restart import respond, until_written
from tiny_model import SCRIPT


def backup(d, folder, **options):
    return ingot(d, "backup", str(folder), "-c", str(d.config_path), **options)


def with_keys(start, models, tmp_path):
    """A daemon with a key and a request in its ledger; the key."""
    keys = tmp_path / "keys"
    d = start(models.script(), {"server": {"keys_file": str(keys)}})
    token = ingot(d, "keys", "add", "laptop", "--file", str(keys))[1].strip()
    d.process.send_signal(signal.SIGHUP)
    until(lambda: d.chat().status == 401, "the keys are read")
    assert ask(d, token).status == 200
    until(lambda: [r for r in rows(d) if r["key"] == "laptop"], "its row")
    stored = respond(d, "remember this", {"Authorization": "Bearer " + token})
    until_written(d, stored)
    return d, token


def ask(d, token):
    return d.http("POST", "/v1/chat/completions",
                  {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]},
                  {"Authorization": "Bearer " + token})


def test_backup_and_restore(start, models, tmp_path):
    """The way of docs/metrics.md, while the daemon runs, and back."""
    d, token = with_keys(start, models, tmp_path)
    folder = tmp_path / "below" / "copy"
    code, out, err = backup(d, folder)
    assert code == 0, err
    assert sorted(p.name for p in folder.iterdir()) == ["ingot.yaml", "keys", "ledger.db", "responses.db"]
    before = rows(d)
    for name, count in (("ledger.db", "%d request" % len(before)), ("responses.db", "1 response"), ("ingot.yaml", "1 model"),
                        ("keys", "1 key")):
        line, = [x for x in out.splitlines() if str(folder / name) in x]
        assert count in line
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "ingot.yaml").read_bytes() == d.config_path.read_bytes()

    d.stop()
    ledger = pathlib.Path(d.config["ledger"]["path"])
    for lost in [*ledger.parent.glob(ledger.name + "*"), *ledger.parent.glob("*-responses.db*"),
                 tmp_path / "keys", d.config_path]:
        lost.unlink()
    shutil.copy(folder / "ledger.db", ledger)
    shutil.copy(folder / "responses.db", ledger.with_name("ledger-responses.db"))
    shutil.copy(folder / "keys", tmp_path / "keys")
    again = start(config=(folder / "ingot.yaml").read_text())
    again.config = d.config
    assert rows(again) == before
    assert again.chat().status == 401
    assert ask(again, token).status == 200
    id, = [x[0] for x in sqlite3.connect(folder / "responses.db").execute("SELECT id FROM responses")]
    assert again.http("GET", "/v1/responses/" + id, headers={"Authorization": "Bearer " + token}).status == 200
    after = until_rows(again, len(before) + 1)
    assert after[:len(before)] == before


def test_backup_overwrites_nothing(start, models, tmp_path):
    d, _ = with_keys(start, models, tmp_path)
    for there in (tmp_path / "file", tmp_path / "folder"):
        there.mkdir() if there.name == "folder" else there.write_text("precious")
        code, out, err = backup(d, "%s/" % there if there.is_dir() else there)
        assert (code, out) == (1, "") and "exists" in err and str(there) in err
    assert not list((tmp_path / "folder").iterdir())
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("limit", [1, 9000])
def test_backup_on_a_full_disk(start, models, tmp_path, limit):
    """Nothing is left that looks like a backup."""
    d, _ = with_keys(start, models, tmp_path)

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    code, out, err = backup(d, tmp_path / "copy", preexec_fn=small)
    assert (code, out) == (1, "") and "ledger.db: cannot be written" in err, err
    assert not (tmp_path / "copy").exists()


def test_backup_of_what_there_is(start, models, tmp_path):
    """Without a ledger, responses and keys only the configuration; with nothing at all, nothing."""
    d = start(models.script(), {"ledger": {"enabled": False}, "responses": {"persist": False},
                                "server": {"keys_file": str(tmp_path / "none")}})
    assert d.chat_text() == SCRIPT
    code, out, err = backup(d, tmp_path / "copy")
    assert code == 0, err
    assert [p.name for p in (tmp_path / "copy").iterdir()] == ["ingot.yaml"]
    assert out.count("none to copy") == 3
    code, out, err = ingot(d, "backup", str(tmp_path / "copy2"))  # without its configuration
    assert (code, out) == (1, "") and "neither" in err and not (tmp_path / "copy2").exists()
    for wrong in ([], ["a", "b"], [""]):
        assert ingot(d, "backup", *wrong)[0] == 2


def test_backup_refuses_what_a_daemon_would(start, models, tmp_path):
    d, _ = with_keys(start, models, tmp_path)
    (tmp_path / "keys").write_text("not a key\n")
    code, _, err = backup(d, tmp_path / "copy")
    assert code == 1 and str(tmp_path / "keys") in err and not (tmp_path / "copy").exists()


def test_views_in_any_sqlite(start, models):
    """What docs/metrics.md says that everybody can read while a daemon writes."""
    d = start(models.script())
    for _ in range(2):
        assert d.chat_text() == SCRIPT
    assert d.chat(model="zeppelin").status == 404
    until_rows(d, 3)
    db = sqlite3.connect("file:%s?mode=ro" % d.config["ledger"]["path"], uri=True)
    db.row_factory = sqlite3.Row
    days = db.execute("SELECT * FROM requests_by_day").fetchall()
    assert sum(r["requests"] for r in days) == 3 and sum(r["errors"] for r in days) == 1
    failed, = db.execute("SELECT * FROM requests_failed")
    assert (failed["model"], failed["status"]) == ("zeppelin", 404)
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'"):
        assert "`%s`" % name in text, name
        for column in db.execute("SELECT * FROM %s" % name).description:
            assert "`%s`" % column[0] in text, column[0]
    db.close()
