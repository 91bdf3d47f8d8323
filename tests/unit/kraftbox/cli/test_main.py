"""The command line: exit codes, usage, and error messages."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftbox import __main__ as program
from kraftbox.cli import main as main_module
from kraftbox.cli import up
from kraftbox.cli.connect import with_ports
from kraftbox.cli.examples import EXAMPLES
from kraftbox.cli.main import LISTED, imported, main
from metalog.first_records import read_first_records
from protocol.transport.client import SOFTWARE_VERSION
from storage.files import RealFiles


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftbox", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: a process of its own takes half a second of CPU time."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run_here(*arguments):
        try:
            code = program.main(arguments)
        except SystemExit as end:
            code = end.code
        return Done(code, *capsys.readouterr())

    return run_here


def commands(command=None, path=()):
    """Return every command by its words."""
    if command is None:
        for listed in LISTED:
            yield from commands(imported(listed.name), (listed.name,))
        return
    inside = getattr(command, "commands", {})
    for name, each in inside.items():
        yield from commands(each, (*path, name))
    if not inside:
        yield path, command


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["up", "--help"], ["server", "-h"], ["topics", "--help"], []],
)
def test_help(run, arguments):
    done = run(*arguments)
    assert "usage" in (done.stdout + done.stderr).lower()
    assert done.returncode == (0 if arguments else 2)


def test_command_list_has_a_short_help_for_each_command(run):
    shown = run("--help").stdout
    for listed in LISTED:
        assert f"  {listed.name} " in shown and listed.help in shown
        assert imported(listed.name).get_short_help_str()
        # On a line of its own no terminal of 80 columns wraps it.
        assert len(listed.help) <= 62


def test_every_command_has_help_for_all_that_it_takes_and_examples(run):
    seen = {}
    for path, command in commands():
        seen[" ".join(path)] = command
        done = run(*path, "--help")
        assert done.returncode == 0 and "Examples:\n  " in done.stdout, path
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                assert getattr(parameter, "help", None), (path, parameter.name)
    assert seen.keys() == EXAMPLES.keys()


def test_every_example_is_one_that_can_be_typed(tmp_path, monkeypatch):
    """Each example is parsed and not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.properties").touch()
    log = tmp_path / "data/orders-0/00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.touch()
    known = dict(commands())
    for path, lines in EXAMPLES.items():
        words = path.split()
        for line in lines:
            typed = shlex.split(line.partition(" < ")[0].replace("$(kraftbox storage ", "($("))
            assert typed[: 1 + len(words)] == ["kraftbox", *words], line
            known[tuple(words)].make_context(path, typed[1 + len(words) :])


QUICK = [
    ["up"],
    ["up", "--dir", "d", "--port", "0", "--set", "a=b=c", "--set", "x="],
    ["up", "--controllers=3", "--brokers", "2", "--combined", "--racks", "a, b"],
    ["up", "--file", "f", "--dir", "d"],
    ["up", "--isolate", "--detach", "--detached", "--lifeline"],
    ["server", "f", "--override", "a=b"],
    ["server"],
]


@pytest.mark.parametrize("arguments", QUICK)
def test_the_quick_parser_reads_what_the_parser_of_all_commands_reads(monkeypatch, arguments):
    """`up` and `server` become supervisor and node, and import no terminal library for that."""
    read = []
    monkeypatch.setattr(up, "run", lambda options, given: read.append((options, given)) or 0)
    assert program.run(list(arguments)) == 0
    assert main(arguments) == 0
    assert read[0] == read[1]


def test_the_quick_parser_knows_every_option(monkeypatch):
    for name in ("up", "server"):
        options = {o for p in imported(name).params for o in p.opts if o.startswith("--")}
        options -= {"--help"}
        known = set()
        monkeypatch.setattr(
            up._Parser,
            "add_argument",
            lambda self, option, known=known, **_: known.add(option),
        )
        with suppress(Exception):
            up.parse([name])
        assert {option for option in known if option.startswith("--")} == options
        monkeypatch.undo()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    script = run_process("--show-completion", shell)
    assert script.returncode == 0 and "_KRAFTBOX_COMPLETE" in script.stdout.upper()
    asked = {
        "_KRAFTBOX_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "kraftbox topics d",
        "COMP_CWORD": "2",
        "_TYPER_COMPLETE_ARGS": "kraftbox topics d",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import kraftbox.__main__ as k; k.main()"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **asked},
    )
    assert done.stderr == ""
    assert "describe" in done.stdout and "delete" in done.stdout
    assert "create" not in done.stdout


IMPORTED_FOR_A_LIST = """
import json, sys
from kraftbox.__main__ import main
try:
    main(["--help"])
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_a_list_of_commands_imports_none_of_them():
    """Importing the commands' clients and brokers takes a quarter of a second of CPU time."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_FOR_A_LIST], capture_output=True, text=True, timeout=60
    )
    packages = set(json.loads(done.stdout.splitlines()[-1]))
    assert not {"client", "broker", "controller", "protocol", "asyncio", "rich"} & packages


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ["topics", "list"]),
        ("client", ["topics", "list"]),
        ("kraftbox.launcher.plan", ["up"]),
        ("uvloop", ["server", "server.properties"]),
        ("audit.session", ["audit", "."]),
    ],
)
def test_ctrl_c_before_a_command_works_shows_no_traceback(tmp_path, module, arguments):
    """The interrupt comes while this module is being imported."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in a background job
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        f"sys.argv = ['kraftbox', *{arguments!r}]\n"
        "from kraftbox.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode in (-signal.SIGINT, 130), done
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("localhost", "localhost:9092"),
        ("a,b:1", "a:9092,b:1"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:5", "[::1]:5"),
        ("h:x", "h:x"),
    ],
)
def test_the_port_is_9092_where_none_is_named(given, meant):
    assert with_ports(given) == meant


def test_version():
    done = run_process("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kraftbox {metadata.version('kraftbox')}\n"


def test_a_process_with_an_object_store_ends_without_finalisation():
    """Regression: threads of obstore that returned from Rust at exit aborted one command in
    fifteen."""
    program = """
import atexit, sys
sys.modules["obstore"] = sys
sys.argv = ["kraftbox", "--version"]
atexit.register(print, "finalised")
from kraftbox.__main__ import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kraftbox {metadata.version('kraftbox')}\n"


def test_version_of_what_is_not_installed(monkeypatch, capsys):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert main(["--version"]) == 1
    assert "not installed" in capsys.readouterr().err


def test_software_version_equals_version_of_distribution():
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    assert project["project"]["version"] == SOFTWARE_VERSION


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["up", "--port", "x"],
        ["up", "--port", "70000"],
        ["up", "--set", "novalue"],
        ["up", "--controllers", "x"],
        ["up", "--racks", "a,,b"],
        ["node", "kill"],
        ["topics", "create"],
        ["topics", "create", "t", "--config", "novalue"],
        ["configs", "alter", "--topic", "t"],
        ["configs", "describe"],
        ["consume", "t", "--offset", "1"],
        ["consume", "t", "--partition", "0", "--offset", "-x"],
        ["consume", "t", "--offset", "@yesterday"],
        ["consume", "t", "--offset", "end", "--group", "g"],
        ["consume", "t", "--format", "%q"],
        ["consume", "t", "--format", "%s", "--json"],
        ["consume", "t", "--partition", "0", "--offset", "1", "--from-beginning"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--key-separator", ":", "--format", "json"],
        ["produce", "t", "--header", "novalue"],
        ["produce", "t", "--timestamp", "yesterday"],
        ["produce", "t", "--rate", "0"],
        ["reassign", "t-0"],
        ["reassign", "t-0", "--to", "1", "--cancel"],
        ["reassign", "t-0", "--to", "1,x"],
        ["reassign", "--to", "1"],
        ["reassign", "t", "--cancel"],
        ["doctor", "--port", "0"],
        ["chaos", "--schedule", "/nowhere"],
        ["chaos", "--schedule", "/dev/null"],
        ["chaos", "--schedule", "/dev/null", "--until-broken"],
        ["groups", "reset-offsets", "g", "--topic", "t"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--shift-by", "0"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to-time", "yesterday"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--by-duration", "2 weeks"],
        ["elect"],
        ["elect", "t"],
        ["elect", "t-x"],
        ["elect", "-0"],
        ["elect", "t-2147483648"],
        ["elect", "t-0", "--all"],
        ["elect", "t-0", "--explain", "t-0"],
        ["elect", "--explain", "t"],
        ["elect", "t-0", "--leader", "1"],
        ["elect", "t-0", "--type", "designation"],
        ["elect", "--all", "--type", "designation", "--leader", "1"],
        ["elect", "--file", "f", "--type", "designation", "--leader", "1"],
        ["elect", "t-0", "--type", "designation", "--leader", "-1"],
        ["elect", "--all", "--file", "f"],
        ["elect", "t-0", "--type", "random"],
        ["elect", "t-0", "--timeout", "0"],
        ["topics", "list", "-b", "h:1", "--dir", "d"],
        ["events", "--since", "yesterday"],
        ["events", "--until", "12:03", "--follow"],
        ["logs", "--since", "25:00"],
        ["tier", "list", "--dir", ".", "-b", "h:1"],
        ["tier", "list", "--dir", ".", "--properties", "p"],
        ["tier", "verify", "-b", "h:1"],
    ],
)
def test_wrong_usage_is_2(run, arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["server", "/nowhere/server.properties"],
        ["up", "--dir", "/dev/null/x"],
        ["topics", "list", "--bootstrap-server", "127.0.0.1:1"],
        ["topics", "list", "--bootstrap-server", "nonsense.invalid"],
        ["topics", "list", "--bootstrap-server", "localhost:x"],
        ["storage", "version-mapping", "--release-version", "1.0"],
        ["storage", "feature-dependencies", "--feature", "nothing=1"],
    ],
)
def test_failure_is_1_with_one_clear_line(arguments):
    done = run_process(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("kraftbox: ")
    assert "Traceback" not in done.stderr
    assert "[Errno" not in done.stderr


def test_an_option_that_does_not_exist_shows_those_that_do():
    done = run_process("up", "--broker", "3")
    assert done.returncode == 2
    assert "Usage: kraftbox up [OPTIONS]" in done.stderr
    assert "No such option: --broker" in done.stderr and "--brokers" in done.stderr


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named_with_the_reason():
    done = run_process("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert done.stderr == "kraftbox: cannot reach 127.0.0.1:1: Connection refused\n"


def test_a_bad_value_names_key_value_and_what_is_allowed(tmp_path):
    done = run_process("up", "--dir", str(tmp_path / "d"), "--set", "num.partitions=0")
    assert "num.partitions=0: must be an integer of at least 1" in done.stderr


def test_version_mapping_as_json(run):
    done = run("storage", "version-mapping", "--json")
    assert json.loads(done.stdout)["kraft.version"] == 1


def test_credentials_of_a_file_are_formatted_and_a_bad_one_is_named_by_its_line(run, tmp_path):
    """No output has a password: not the one of a good credential, and not that of a bad one."""
    config, users = tmp_path / "server.properties", tmp_path / "users"
    config.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://localhost:9093\ncontroller.quorum.bootstrap.servers=h:1\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    command = ["storage", "format", "-t", "id", "-c", str(config), "--standalone"]
    good = "SCRAM-SHA-256=[name=alice,password=hush]\n"
    users.write_text(f"{good}\nSCRAM-SHA-256=[name=bob,password=hush,iterations=1]\n")
    refused = run_process(*command, "--add-scram-file", str(users))
    assert refused.returncode == 1
    assert f"{users}:3: iterations must be from 4096 to 16384" in refused.stderr
    assert not (tmp_path / "data").exists()

    users.write_text(good)
    done = run(*command, "--add-scram-file", str(users), "--add-scram", good.strip())
    records = read_first_records(RealFiles(), str(tmp_path / "data"))
    assert [one.name for one in records[-2:]] == ["alice", "alice"]
    assert "hush" not in done.stdout + done.stderr + refused.stdout + refused.stderr


def test_random_uuids_differ(run):
    first, second = run("storage", "random-uuid"), run("storage", "random-uuid")
    assert len(first.stdout.strip()) == 22
    assert first.stdout != second.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sim", "--seed", "x"], "'--seed': 'x': input should be a valid integer"),
        (["sim", "--seed", "-1"], "'--seed': '-1': input should be greater than or equal to 0"),
        (["chaos", "--minutes", "nan"], "'nan'"),
        (["audit", ".", "--engine", "x"], "'--engine': 'x' is not one of 'auto', 'here', 'spark'"),
        (["up", "--set", "a"], "--set: expected KEY=VALUE, got 'a'"),
        (["server", "--override", "=1"], "--override: expected KEY=VALUE, got '=1'"),
        (["sim", "--seed", "x" * 90], "'" + "x" * 59 + "...: "),
        (["link", "slow", "1", "2", "--delay", "-3"], "input should be greater than or equal to 0"),
        (["status", "--timeout", "nan"], "'nan': input should be a valid number"),
        (
            ["elect", "--explain", "a-0", "--timeout", "1e9"],
            "should be greater than or equal to 0.1 and less than or equal to 3600",
        ),
    ],
)
def test_a_usage_error_names_the_option_the_value_and_what_is_allowed(run, arguments, said):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Value error" not in done.stderr


def test_every_line_of_an_error_names_program_and_file(run, tmp_path):
    (tmp_path / "p").write_text("process.roles=broker\nnode.id=one\n")
    done = run("storage", "format", "--config", str(tmp_path / "p"), "--cluster-id", "x")
    lines = done.stderr.splitlines()
    assert len(lines) > 1
    assert all(line.startswith(f"kraftbox: {tmp_path / 'p'}: ") for line in lines)


def test_a_folder_that_is_a_file(run, tmp_path):
    (tmp_path / "notes").touch()
    done = run("up", "--dir", str(tmp_path / "notes"))
    assert done.returncode == 1
    assert done.stderr == f"kraftbox: cannot use --dir {tmp_path / 'notes'}: not a directory\n"


def test_options_have_metavars_of_one_kind():
    """First hours, section 4: some options had `<int range>` or `<path>` as metavar."""
    plain = {"TEXT", "N", "NUMBER", "SECONDS", "PATH", "FOLDER", "FILE"}
    for words, command in commands():
        for param in command.params:
            if param.param_type_name == "option" and not getattr(param, "is_flag", False):
                is_choice = hasattr(param.type, "choices")
                assert is_choice or param.metavar, (words, param.name)
    assert plain > {main_module._METAVARS[name] for name in ("integer", "path", "text")}
