"""What says how to use the programs agrees with the programs: manual pages and the
completions of three shells against --help."""
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

import daemon as ingot
from tiny_model import SCRIPT  # noqa: F401
from terminal import Terminal

pytestmark = pytest.mark.home("release")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAN = ROOT / "docs" / "man"
COMPLETIONS = ROOT / "etc" / "completions"
INGOT = str(ingot.BUILD / "cli" / "ingot")
INGOTD = str(ingot.BUILD / "daemon" / "ingotd")
YAML_PAGE = ingot.BUILD / "docs" / "man" / "ingot.yaml.5"


def output(*args, **options):
    p = subprocess.run(args, capture_output=True, text=True, timeout=ingot.DEADLINE_S,
                       env=dict(os.environ, LC_ALL="C.UTF-8"), **options)
    assert p.returncode == 0, p.stderr
    return p.stdout


def commands():
    listed = output(INGOT, "help").split("commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.split("\n")]


def options_of(help):
    """{long option: letter or None} of the table in a help."""
    found = {}
    for line in help.partition("options:\n")[2].split("\n"):
        if m := re.match(r"  (?:-(\w), |    )--([a-z0-9-]+)", line):
            found[m[2]] = m[1]
    assert "help" in found, help
    return found


COMMANDS = [c for c in commands() if c != "help"]
OPTIONS = {c: options_of(output(INGOT, "help", c)) for c in COMMANDS}


def test_there_is_something_to_compare():
    assert {"run", "chat", "pull", "ps", "models", "stats", "doctor"} <= set(COMMANDS)
    assert len(OPTIONS["run"]) > 12 and OPTIONS["run"]["model"] == "m"


# ---- manual pages ---------------------------------------------------------------------


def sections(page):
    """The source below each .Ss and .Sh, by its title."""
    return dict(re.findall(r"^\.S[sh] (.*)\n((?:(?!\.S[sh] ).*\n)*)", page.read_text(), re.M))


def flags(source):
    """Every flag that is named in a piece of mdoc: -x and --long."""
    found = set()
    for line in re.findall(r"^\..*\bFl .*$", source, re.M):
        for m in re.finditer(r"(?:Fl|[,|]) +(-?[A-Za-z][a-z0-9-]*)(?= |$)", line):
            found.add(m[1])
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_each_option(command):
    parts = sections(MAN / "ingot.1")
    assert command in parts, "no .Ss %s in ingot.1" % command
    here = flags(parts[command])
    common = flags(parts["Finding the daemon"]) if "Finding the daemon" in parts[command] else set()
    for name, letter in OPTIONS[command].items():
        if name == "help": # said once, for all
            continue
        assert "-" + name in here | common, "--%s of %s is not in ingot.1" % (name, command)
        if letter:
            assert letter in here | common, "-%s of %s is not in ingot.1" % (letter, command)
    known = set(OPTIONS[command]) | {x for x in OPTIONS[command].values() if x}
    for flag in here:
        assert flag.removeprefix("-") in known, "%s has no option %s" % (command, flag)


def test_the_page_has_each_command():
    synopsis = sections(MAN / "ingot.1")["SYNOPSIS"]
    for command in commands():
        assert re.search(r"\b%s\b" % command, synopsis), command


def test_the_page_has_each_command_of_a_chat(tmp_path):
    t = Terminal([INGOT, "chat", "--help"], ingot.clean_env(tmp_path))
    t.wait()
    t.close()
    source = (ROOT / "cli" / "chat" / "chat_input.c").read_text()
    table = re.findall(r'^\t\{ "([a-z]+)", IG_CHAT_', source, re.M)
    assert len(table) == 10
    for name in table:
        assert re.search(r"^\.It Ic /%s\b" % name, sections(MAN / "ingot.1")["chat"], re.M), name


def test_the_daemons_page():
    help = output(INGOTD, "--help")
    named = set(re.findall(r"--([a-z][a-z-]+)", help))
    assert {"config", "check-config", "version"} <= named
    text = flags((MAN / "ingotd.8").read_text())
    for name in named:
        assert "-" + name in text, "--%s is not in ingotd.8" % name


def test_the_configurations_page():
    """Each option of the daemon, with its default and its variable, and those of modules, which
    have no variable."""
    page = YAML_PAGE.read_text()
    printed = output(INGOTD, "--print-config")
    section, module, n, n_of_modules = "", "", 0, 0
    for line in printed.split("\n"):
        if m := re.fullmatch(r"([a-z_]+):", line):
            section, module = m[1] + ".", ""
        elif m := re.fullmatch(r"  ([a-z]+):", line):
            module = m[1] + "."
        elif m := re.fullmatch(r"    #([a-z_]+): (.*)", line):
            assert re.search(r"^\.It Li %s$" % re.escape(section + module + m[1]), page, re.M), line
            n_of_modules += 1
        elif m := re.fullmatch(r"(  )?#([a-z_]+): (.*)", line):
            name = (section if m[1] else "") + m[2]
            assert re.search(r"^\.It Li %s$" % re.escape(name), page, re.M), name
            variable = "INGOT_" + name.upper().replace(".", "_")
            # a list of rules does not fit in a variable
            assert (variable in page) == (name != "kvcache.normalize"), variable
            n += 1
    assert n > 20 and n_of_modules > 0
    for key in ("name", "path", "context", "load", "keep_alive", "pin"):
        assert "\n.It Li models.entries.%s\n" % key in page
    for key in ("name", "pattern", "replacement", "enabled", "models", "except_models", "clients"):
        assert re.search(r"\b%s: " % key, page[page.index("\n.It Li kvcache.normalize\n"):])


def pages():
    return [MAN / "ingot.1", MAN / "ingotd.8", YAML_PAGE]


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_pages_are_clean(page):
    """As mandoc and groff see them; whether other pages are installed is not their business."""
    tools = 0
    if shutil.which("mandoc"):
        tools += 1
        p = subprocess.run(["mandoc", "-Tlint", str(page)], capture_output=True, text=True)
        said = [line for line in p.stdout.split("\n") if line and "referenced manual" not in line]
        assert not said, "\n".join(said)
    if shutil.which("man") and shutil.which("groff") and os.uname().sysname == "Linux":
        p = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True,
                           env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="90"))
        tools += 1
        assert p.returncode == 0 and p.stderr == "", p.stderr
    if not tools:
        pytest.skip("neither mandoc nor groff is here")


def test_a_generated_page_needs_its_source(tmp_path):
    """The generator does not leave out what it does not understand."""
    make = [shutil.which("python3"), str(MAN / "make_yaml_page.py"), str(MAN / "ingot.yaml.5.in")]
    for text in ("", "server:\n  port: 1\nmodels:\n  entries:\n",
                 "server:\n  # No default.\n  #port: 1\nmodels:\n  entries:\n"):
        path = tmp_path / "x.yaml"
        path.write_text(text)
        p = subprocess.run([*make, str(path), str(tmp_path / "out")], capture_output=True, text=True)
        assert p.returncode == 1 and "ingot.yaml" in p.stderr
        assert not (tmp_path / "out").exists()


# ---- completions ----------------------------------------------------------------------


@pytest.fixture
def shell_env(scripted, tmp_path):
    """A PATH on which `ingot` is ours."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ingot").symlink_to(INGOT)
    e = ingot.clean_env(tmp_path, {
        "INGOT_URL": "http://%s:%d" % (scripted.host, scripted.port),
        "INGOT_MODELS": str(ROOT / "etc" / "models.yaml"), "LC_ALL": "C.UTF-8", "TERM": "xterm"})
    e["PATH"] = "%s:%s" % (folder, e["PATH"])
    (tmp_path / "some file.txt").write_text("")
    (tmp_path / "folder").mkdir()
    e["PWD"] = str(tmp_path)
    return e


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=program + " is not here")


def bash(env, line):
    """What bash would offer after this line."""
    script = r"""
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -r -a COMP_WORDS <<<"$2"
case $2 in *' ') COMP_WORDS+=("") ;; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ingot "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>&1
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
"""
    return output_of_shell(env, ["bash", "--norc", "-c", script, "bash",
                                 str(COMPLETIONS / "ingot.bash"), line])


def zsh(env, line):
    """The same of zsh: compadd is replaced by one that prints."""
    script = r"""
source_it() { eval "_ingot_all() { $(grep -v '^_ingot "\$@"$' "$1") }"; _ingot_all }
compadd() {
	local -a words; local array=
	while (( $# )); do
		case $1 in
		-a) array=1 ;;
		--) shift; break ;;
		-*) ;;
		*) break ;;
		esac
		shift
	done
	if [[ -n $array ]]; then for a in "$@"; do words+=("${(@P)a}"); done; else words=("$@"); fi
	for w in $words; do if [[ $w == $PREFIX* ]]; then print -r -- $w; fi; done
}
_describe() {
	[[ $1 == -o ]] && shift
	for w in "${(@P)2}"; do
		w=${w%%:*}
		if [[ $w == $PREFIX* ]]; then print -r -- $w; fi
	done
}
_files() {
	if [[ $1 == -/ ]]; then print -rl -- $PREFIX*(N/); else print -rl -- $PREFIX*(N); fi
}
_message() { : }
source_it "$1"
words=(${(z)2}); [[ $2 == *' ' ]] && words+=("")
CURRENT=$#words PREFIX=$words[-1]
_ingot
"""
    return output_of_shell(env, ["zsh", "-f", "-c", script, "zsh", str(COMPLETIONS / "_ingot"), line])


def fish(env, line):
    return [w.split("\t")[0] for w in output_of_shell(
        env, ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
              str(COMPLETIONS / "ingot.fish"), line])]


def output_of_shell(env, args):
    p = subprocess.run(args, env=env, cwd=env["PWD"], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=2 * ingot.DEADLINE_S)
    assert p.returncode == 0 and p.stderr == "", p.stderr
    return [w for w in p.stdout.split("\n") if w]


SHELLS = [pytest.param(f, marks=needs(f.__name__), id=f.__name__) for f in (bash, zsh, fish)]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_are_completed(shell, shell_env):
    assert set(commands()) | {"--help", "--version"} >= set(shell(shell_env, "ingot ")) >= set(commands())
    assert shell(shell_env, "ingot ch") == ["chat"]
    assert set(shell(shell_env, "ingot help p")) == {"pull", "ps"}


@pytest.mark.parametrize("shell", SHELLS)
def test_options_are_completed(shell, shell_env):
    for command in COMMANDS:
        wanted = {"--" + name for name in OPTIONS[command]}
        assert set(shell(shell_env, "ingot %s --" % command)) == wanted, command
    assert set(shell(shell_env, "ingot run --to")) == {"--top-p", "--top-k"}
    assert "-m" in shell(shell_env, "ingot run -")


@pytest.mark.parametrize("shell", SHELLS)
def test_models_are_completed(shell, shell_env):
    for line in ("ingot run ", "ingot chat ", "ingot run -m ", "ingot chat --verbose --model "):
        assert set(shell(shell_env, line)) == {"tiny", "random", "slow"}, line
    assert shell(shell_env, "ingot chat r") == ["random"]
    assert shell(shell_env, "ingot pull smol") == ["smollm2-135m"]
    assert {"smollm2-135m", "qwen3-4b", "llama-3.3-70b"} <= set(shell(shell_env, "ingot pull "))
    assert set(shell(shell_env, "ingot models --names ")) == {"known", "served"}
    assert set(shell(shell_env, "ingot convert --type Q4_K")) == {"Q4_K_M", "Q4_K_S"}
    # where no daemon is nothing is offered, and nothing said
    nowhere = dict(shell_env, INGOT_URL="http://127.0.0.1:9")
    assert shell(nowhere, "ingot run ") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_words_of_keys_are_completed(shell, shell_env):
    assert set(shell(shell_env, "ingot keys ")) == {"add", "list", "remove"}
    assert shell(shell_env, "ingot keys add ") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_words_of_models_are_completed(shell, shell_env):
    assert set(shell(shell_env, "ingot models ")) == {"load", "unload"}
    for word in ("load", "unload"):
        assert set(shell(shell_env, "ingot models %s " % word)) == {"tiny", "random", "slow"}
    assert shell(shell_env, "ingot models load ra") == ["random"]
    assert shell(shell_env, "ingot models other ") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_agents_are_completed(shell, shell_env):
    assert {"codex", "claude", "opencode", "aider"} <= set(shell(shell_env, "ingot launch "))
    assert shell(shell_env, "ingot launch co") == ["codex"]
    assert shell(shell_env, "ingot launch codex ") == []
    assert set(shell(shell_env, "ingot launch codex -m ")) == {"tiny", "random", "slow"}


@pytest.mark.parametrize("shell", SHELLS)
def test_files_are_completed(shell, shell_env):
    found = shell(shell_env, "ingot chat --load so")
    assert [f.replace("\\", "") for f in found] == ["some file.txt"]
    assert [f.rstrip("/") for f in shell(shell_env, "ingot pull --to f")] == ["folder"]
    assert [f.rstrip("/") for f in shell(shell_env, "ingot convert f")] == ["folder"]
    assert [f.rstrip("/") for f in shell(shell_env, "ingot backup f")] == ["folder"]
    assert set(shell(shell_env, "ingot stats --by ")) == {"model", "key", "client"}
    # numbers and texts have no completion
    assert shell(shell_env, "ingot run --top-p ") == []


def test_bash_completes_in_earnest(shell_env, tmp_path):
    """On a terminal, in bash itself, after a colon too."""
    if not shutil.which("bash"):
        pytest.skip("bash is not here")
    fake = tmp_path / "fake"
    fake.mkdir()
    program = fake / "ingot"
    program.write_text("#!/bin/sh\n[ \"$1\" = models ] && echo some/model:135m && exit\nexec %s \"$@\"\n"
                       % INGOT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    rc = tmp_path / "rc"
    rc.write_text("PS1='$ '\nsource %s\nbind 'set enable-bracketed-paste off'\n"
                  % (COMPLETIONS / "ingot.bash"))
    env = dict(shell_env, PATH="%s:%s" % (fake, shell_env["PATH"]))
    t = Terminal(["bash", "--rcfile", str(rc), "-i"], env)
    try:
        t.until("$ ")
        t.type("echo; ingot ch\t")
        t.until("chat ")
        t.type("so\t")
        t.until("some/model:135m")
        t.type("\x15ingot run some/model:1\t")
        t.until("some/model:135m")
        t.type("\x15exit\r")
        t.process.wait(ingot.DEADLINE_S)
    finally:
        t.close()


def test_files_are_where_shells_look():
    """`meson install` puts them where bash, zsh and fish look, and the pages where man does."""
    plan = output("meson", "introspect", "--install-plan", str(ingot.BUILD))
    for place in ("bash-completion/completions/ingot", "zsh/site-functions/_ingot",
                  "fish/vendor_completions.d/ingot.fish", "man1/ingot.1", "man8/ingotd.8",
                  "man5/ingot.yaml.5"):
        assert place in plan, place
