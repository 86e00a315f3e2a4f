"""From an installation to a chat without a configuration, and models.folder: what is in it is served."""
import json
import os
import pathlib
import re
import signal
import subprocess

import gguf
import pytest

import daemon as ingot
from conftest import configuration
from daemon import until
from fake_hub import Hub, Repo
from terminal import Terminal
from test_out_of_tree import Staging
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

BUDGET = {"INGOT_MEMORY_BUDGET": "1GiB", "INGOT_KVCACHE_ARENA": "64MiB", "INGOT_SERVER_PORT": "0"}


@pytest.fixture
def hub(models):
    """The repository that models.yaml has for qwen3-4b, with a tiny model in it."""
    h = Hub()
    data = pathlib.Path(models.script()).read_bytes()
    h.repos = {"unsloth/Qwen3-4B-Instruct-2507-GGUF": Repo({
        "Qwen3-4B-Instruct-2507-Q4_K_M.gguf": data, "Qwen3-4B-Instruct-2507-Q8_0.gguf": data + bytes(1 << 16)})}
    yield h
    h.stop()


class Bare:
    """ingotd without a configuration, or by a service's command, in an environment of its own."""

    def __init__(self, bin_folder, home, command=None, **env):
        self.bin, self.home = bin_folder, home
        home.mkdir(parents=True, exist_ok=True)
        self.env = {k: v for k, v in ingot.clean_env(home, dict(BUDGET, **env)).items() if not k.startswith("HF_")}
        self.log_path = home / "log"
        self.process = subprocess.Popen(command or [str(self.bin / "ingotd")], env=self.env, cwd=home, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=open(self.log_path, "wb"))
        line = self.process.stdout.readline().decode()
        assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+\n", line), self.log_path.read_text()
        self.url = line.split()[1]
        self.host, self.port = "127.0.0.1", int(self.url.rsplit(":")[-1])

    http = ingot.Daemon.http

    def ingot(self, *args, **env):
        p = subprocess.run([str(self.bin / "ingot"), *args], env=dict(self.env, INGOT_URL=self.url, **env),
                           capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ingot.DEADLINE_S)
        assert not ingot.REPORT.search(p.stderr), p.stderr
        return p

    def models(self):
        return [m["id"] for m in self.http("GET", "/v1/models").json["data"]]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(ingot.DEADLINE_S) == 0, self.log_path.read_text()
        self.process.stdout.close()
        assert not ingot.REPORT.search(self.log_path.read_text())


@pytest.fixture(scope="module")
def staging(tmp_path_factory):
    return Staging(tmp_path_factory.mktemp("staging"))


@pytest.mark.release
def test_from_the_installation_to_a_chat(staging, hub, tmp_path):
    """No editor in between: start, pull NAME, chat."""
    d = Bare(staging.program.parent, tmp_path / "home", INGOT_MODULES_PATH=str(staging.modules))
    assert d.http("GET", "/healthz").status == 200
    root = d.http("GET", "/").body.decode()
    assert root.startswith("Ollama is running\n") and "ingot pull" in root
    p = d.ingot("doctor")
    assert p.returncode == 0 and "ingot pull" in p.stdout and "nothing is wrong" in p.stdout, p.stdout
    p = d.ingot("run", "Hello")
    assert p.returncode == 1 and "ingot pull" in p.stderr
    assert "qwen3-4b" in d.ingot("models").stdout
    p = d.ingot("pull", "qwen3-4b", HF_ENDPOINT=hub.url)
    assert p.returncode == 0 and "ingotd serves it: ingot chat qwen3-4b" in p.stderr, p.stderr
    # the model is there when pull says so, under the name that was asked for
    path = d.home / ".local/share/ingot/models/Qwen3-4B-Instruct-2507-Q4_K_M.gguf"
    assert p.stdout == str(path) + "\n" and d.models() == ["qwen3-4b"]
    env = dict(d.env, INGOT_URL=d.url, TERM="xterm")
    t = Terminal([str(d.bin / "ingot"), "chat"], env)
    t.until("> ")
    t.say("Hello")
    t.until(SCRIPT)
    t.type("\x04")
    t.close()
    assert d.ingot("run", "qwen3-4b", "Hello").stdout.strip() == SCRIPT
    listed = json.loads(d.ingot("models", "--json").stdout)
    assert {k["name"]: k["pulled"] for k in listed["known"]}["qwen3-4b"] == "yes"
    assert d.http("GET", "/").body == b"Ollama is running"
    assert "1 model" not in d.ingot("doctor").stdout  # no entry is
    p = d.ingot("pull", "qwen3-4b:Q8_0", HF_ENDPOINT=hub.url)
    assert p.returncode == 0 and d.models() == ["qwen3-4b", "qwen3-4b:Q8_0"]
    d.stop()
    # at the next start it is there
    d = Bare(staging.program.parent, tmp_path / "home", INGOT_MODULES_PATH=str(staging.modules))
    assert d.models() == ["qwen3-4b", "qwen3-4b:Q8_0"]
    d.stop()
    assert not list((tmp_path / "home").rglob("*.yaml"))


def test_pull_without_a_daemon(hub, tmp_path):
    env = dict(ingot.clean_env(tmp_path), HF_ENDPOINT=hub.url, INGOT_URL="http://127.0.0.1:9",
               INGOT_MODELS=str(pathlib.Path(__file__).resolve().parents[2] / "etc/models.yaml"))
    p = subprocess.run([str(ingot.BUILD / "cli/ingot"), "pull", "qwen3-4b"], env=env, capture_output=True, text=True,
                       timeout=ingot.DEADLINE_S)
    assert p.returncode == 0 and "when ingotd runs, it serves it" in p.stderr, p.stderr
    assert p.stdout.count("\n") == 1


# ---- models.folder ----------------------------------------------------------------------------------

def add(folder, source, name, lock=None):
    """A model comes as `pull` brings it: its lock first, then the file under its name at once."""
    folder.mkdir(parents=True, exist_ok=True)
    if lock is not None:
        (folder / (name + ".lock")).write_text(lock if isinstance(lock, str) else json.dumps(lock))
    part = folder / (name + ".part")
    part.write_bytes(pathlib.Path(source).read_bytes())
    part.rename(folder / name)


def served(d):
    return [m["id"] for m in d.http("GET", "/v1/models").json["data"]]


def files(d):
    return {m["name"]: (m["file"], m["state"]) for m in d.http("GET", "/v1/ingot/status").json["models"]}


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def config(tmp_path, store, **extra):
    return configuration(tmp_path, extra={"models": {"folder": str(store), **extra}})


def test_what_is_served(start, models, tmp_path, store):
    script = models.script()
    add(store, script, "b.Q4_0.gguf")
    add(store, script, "a b\u00e9.GGUF")
    add(store, script, "c.gguf", {"name": "them/c:Q4"})
    add(store, script, "d.gguf", {"name": "no name"})
    add(store, script, "e.gguf", "no lock")
    add(store, script, "f.gguf", {"name": "b.Q4_0"})  # taken: the first by path counts
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in ("config.json", "model.safetensors"):
        (weights / name).write_text("{}")
    (store / "x").symlink_to(weights)
    # these are none
    add(store, script, ".hidden.gguf")
    add(store, script, "g.gguf.part")
    add(store, script, "mmproj-F16.gguf")
    add(store, script, "h.bin")
    (store / "i.gguf").write_bytes(b"no model")
    (store / "j.gguf").mkdir()
    (store / "k").mkdir()
    (store / "k" / "config.json").write_text("{}")
    os.mkfifo(store / "l.gguf")
    d = start(config=config(tmp_path, store))
    assert served(d) == ["a-b--", "b.Q4_0", "d", "e", "them/c:Q4", "x"]
    assert not [n for n, (_, state) in files(d).items() if state == "ready"]
    assert d.chat_text(model="them/c:Q4") == SCRIPT
    assert {n for n, (_, state) in files(d).items() if state == "ready"} == {"them/c:Q4"}
    assert files(d)["x"][0] == str(store / "x")


def test_entries_override(start, models, tmp_path, store):
    script, other = models.script(), models.random()
    add(store, script, "a.gguf")
    add(store, script, "b.gguf")
    add(store, script, "c.gguf")
    (tmp_path / "link.gguf").symlink_to(store / "b.gguf")
    d = start(config=config(tmp_path, store, entries=[
        {"name": "z", "path": str(tmp_path / "link.gguf"), "context": 64},  # that file
        {"name": "a", "path": other}]))  # that name
    assert served(d) == ["z", "a", "c"]
    assert files(d)["a"] == (other, "ready") and d.chat_text(model="c") == SCRIPT
    # requests without a name get the first, an entry
    assert [m["name"] for m in d.http("GET", "/v1/ingot/status").json["models"] if m["default"]] == ["z"]


def test_the_folder_by_its_variable_and_default(start, models, tmp_path, store):
    add(store, models.script(), "a.gguf")
    plain = configuration(tmp_path, extra={"ledger": {"enabled": False}, "responses": {"persist": False}})
    assert served(start(config=plain)) == []
    assert served(start(config=plain, env={"INGOT_MODELS_FOLDER": str(store)})) == ["a"]
    assert served(start(config=plain, env={"INGOT_MODELS_DIR": str(store)})) == ["a"]
    assert served(start(config=plain, env={"INGOT_MODELS_FOLDER": str(store / "none")})) == []
    home = tmp_path / "d9"  # of the daemon that is started next
    add(home / ".local/share/ingot/models", models.script(), "h.gguf")
    start.n = 9
    assert served(start(config=plain)) == ["h"]


def test_no_folder(start, models, tmp_path, store):
    """`none` serves entries only, wherever pull puts models, until a reload; a folder may have this name."""
    def c(folder, **extra):
        return dict(config(tmp_path, folder, **extra), ledger={"enabled": False})
    add(store, models.script(), "a.gguf")
    env = {"INGOT_MODELS_DIR": str(store)}
    d = start(config=c("none", entries=[{"name": "tiny", "path": models.script()}]), env=env)
    assert served(d) == ["tiny"]
    r = d.http("POST", "/api/pull", {"model": "qwen3-4b", "stream": False})
    assert r.status == 409 and "models.folder" in r.json["error"]
    d.write_config(c(""))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: served(d) == ["a"], "SIGHUP gives the default back")
    assert served(start(config=c(""), env=dict(env, INGOT_MODELS_FOLDER="none"))) == []
    add(tmp_path / "d2/none", models.script(), "named.gguf")  # beside the configuration of the next one
    assert served(start(config=c("./none"), env=env)) == ["named"]


def test_files_come_and_go(start, models, tmp_path, store, watched):
    d = start(config=config(tmp_path, store, entries=[{"name": "tiny", "path": models.script()},
                                                      {"name": "slow", "path": models.slow()},
                                                      {"name": "random", "path": models.random()}]))
    watched(d)
    add(store, models.script(), "a.gguf", {"name": "first"})
    until(lambda: "first" in served(d), "the new model is served")
    assert d.chat_text(model="first") == SCRIPT
    (store / "a.gguf").unlink()
    until(lambda: "first" not in served(d), "it is served no longer")
    assert d.http("POST", "/v1/chat/completions", {"model": "first", "messages": [
        {"role": "user", "content": "a"}]}).status == 404


def test_without_watch_config_the_folder_is_read_on_sighup(start, models, tmp_path, store):
    c = config(tmp_path, store)
    c["server"]["watch_config"] = False
    d = start(config=c)
    add(store, models.script(), "a.gguf")
    d.process.send_signal(signal.SIGHUP)
    until(lambda: served(d) == ["a"], "SIGHUP makes it served")
    add(store, models.script(), "b.gguf")
    d.process.send_signal(signal.SIGHUP)
    until(lambda: served(d) == ["a", "b"], "and again")


def test_a_configuration_comes_later(models, tmp_path):
    d = Bare(ingot.BUILD / "daemon", tmp_path / "home", INGOT_MODULES_PATH=",".join(ingot.module_folders()))
    path = d.home / ".config/ingot/ingot.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("models: [{name: late, path: %s}]\n" % models.script())
    d.process.send_signal(signal.SIGHUP)
    until(lambda: d.models() == ["late"], "the new file is read")
    d.stop()


def test_default_model_and_aliases_of_the_folder(start, models, tmp_path, store):
    add(store, models.random(), "a.gguf")
    add(store, models.script(), "b.gguf")
    d = start(config=dict(config(tmp_path, store), default_model="b", aliases={"claude-*": "b"}))
    assert d.chat_text(model="claude-x") == SCRIPT
    assert [m["name"] for m in d.http("GET", "/v1/ingot/status").json["models"] if m["default"]] == ["b"]


def test_a_folder_that_can_not_be_read(start, tmp_path, store):
    (store / "loop").symlink_to("loop")
    assert "models.folder" in start.refused(config=config(tmp_path, store / "loop"))


# ---- /api/pull ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("stream", [True, False])
def test_api_pull_serves_it(start, hub, tmp_path, store, stream):
    """From the Hub into models.folder, whatever the environment; success means that it can be asked."""
    known = pathlib.Path(__file__).resolve().parents[2] / "etc/models.yaml"
    c = config(tmp_path, store)
    c["server"]["watch_config"] = False  # it is not the watch that finds it
    d = start(config=c, env={"HF_ENDPOINT": hub.url, "INGOT_MODELS": str(known)})
    name = "hf.co/unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M" if stream else "qwen3-4b"
    r = d.http("POST", "/api/pull", {"model": name, "stream": stream})
    last = json.loads(r.body.decode().splitlines()[-1])
    assert r.status == 200 and last == {"status": "success"}, r
    model, = served(d)
    assert model == ("Qwen3-4B-Instruct-2507-Q4_K_M" if stream else "qwen3-4b")
    assert d.chat_text(model=model) == SCRIPT and (store / "Qwen3-4B-Instruct-2507-Q4_K_M.gguf").exists()


def test_api_pull_with_a_broken_configuration(start, hub, tmp_path, store):
    """The file is there, the new configuration is refused: an error, not a wait without an end."""
    d = start(config=config(tmp_path, store), env={"HF_ENDPOINT": hub.url})
    d.config_path.write_text("servre: 1\n")
    r = d.http("POST", "/api/pull", {"model": "unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", "stream": False})
    assert r.status == 409 and "models.folder" in r.json["error"]


# ---- split files ---------------------------------------------------------------------------------------

def split(source, folder, name, n):
    """As gguf's own writer splits it: n tensors a file, the keys in the first."""
    reader = gguf.GGUFReader(source)
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(folder / (name + ".gguf"), reader.fields["general.architecture"].contents(),
                             split_max_tensors=n)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(name + "-*.gguf"))


def test_a_split_file(start, models, hub, tmp_path, store):
    """Pulled from the Hub, in a folder, and by its first part's path; the same words as from one file."""
    whole = models.random()
    parts = split(whole, tmp_path / "parts", "big-Q8_0", 4)
    assert len(parts) > 2
    hub.repos["them/big"] = Repo({"Q8_0/" + p.name: p.read_bytes() for p in parts})
    p = subprocess.run([str(ingot.BUILD / "cli/ingot"), "pull", "them/big", "--to", str(store), "--json"], text=True,
                       env=dict(ingot.clean_env(tmp_path), HF_ENDPOINT=hub.url), capture_output=True,
                       timeout=ingot.DEADLINE_S)
    assert p.returncode == 0, p.stderr
    got = json.loads(p.stdout)
    assert (got["name"], got["path"]) == ("big-Q8_0", str(store / "big-Q8_0" / parts[0].name))
    add(store, parts[1], parts[1].name)  # a part alone is no model
    d = start(config=config(tmp_path, store, entries=[{"name": "whole", "path": whole},
                                                      {"name": "first", "path": str(parts[0])}]))
    assert served(d) == ["whole", "first", "big-Q8_0"]
    said = {name: d.chat_text(model=name, max_tokens=24) for name in served(d)}
    assert len(set(said.values())) == 1 and said["whole"]


def test_split_files_that_are_wrong(start, models, tmp_path):
    parts = split(models.random(), tmp_path / "parts", "big", 4)
    n = len(parts)
    data = [p.read_bytes() for p in parts]

    def refused(path, *texts):
        log = start.refused(str(path), {"ledger": {"enabled": False}})
        assert all(t in log for t in texts), log

    refused(parts[1], "is part 2 of %d; name the first" % n)
    parts[1].unlink()
    refused(parts[0], parts[1].name, "can't open")
    parts[1].write_bytes(data[0])
    refused(parts[0], "it is part 1 of %d, not 2 of %d" % (n, n))
    parts[1].write_bytes(data[1][:-1])
    refused(parts[0], "beyond the file's")
    other = tmp_path / "parts" / "one.gguf"
    other.write_bytes(data[0])
    refused(other, "its name must end in -00001-of-%05d.gguf" % n)
    # a tensor that two parts have
    first, second = (gguf.GGUFReader(parts[0]).tensors[0].name, gguf.GGUFReader(parts[2]).tensors[0].name)
    assert first != second
    parts[1].write_bytes(data[1])
    new = tmp_path / "new.gguf"
    writer = gguf.GGUFWriter(new, "llama")
    for t in gguf.GGUFReader(parts[2]).tensors:
        writer.add_tensor(first if t.name == second else t.name, t.data, raw_dtype=t.tensor_type)
    writer.add_uint16("split.no", 2)
    writer.add_uint16("split.count", n)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    new.replace(parts[2])
    refused(parts[0], "'%s' is in another part already" % first)
