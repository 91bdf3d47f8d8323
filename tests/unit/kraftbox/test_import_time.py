"""Imports of a node's process: no terminal library, no Spark, no client, and a bounded number."""

import json
import subprocess
import sys

import pytest

# Modules, not milliseconds: times on a shared machine vary, the number of modules is stable.
MODULES_MAX = 650

CODE = """
import json, sys
from kraftbox.__main__ import use_own_packages
use_own_packages()
import kraftbox.cli.up, kraftbox.process.lifetime, kraftbox.process.formatting
print(json.dumps(sorted(sys.modules)))
"""


SUPERVISOR = """
import json, sys
from kraftbox.__main__ import use_own_packages
use_own_packages()
import kraftbox.cli.up, kraftbox.launcher.early
early = set(sys.modules)
import kraftbox.launcher.start
print(json.dumps([sorted(early), sorted(sys.modules)]))
"""

FORK_SERVER = """
import json, sys, threading
from kraftbox.__main__ import use_own_packages
use_own_packages()
from kraftbox.launcher.fork_server import import_everything
import_everything()
from asyncio import events
assert events._get_running_loop() is None and threading.active_count() == 1
print(json.dumps(sorted(sys.modules)))
"""


def modules_of(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_a_supervisor_starts_the_fork_server_before_it_imports_much():
    early, later = modules_of(SUPERVISOR)
    assert not {"runtime.config", "msgpack", "asyncio", "socket"} & set(early)
    packages = {name.partition(".")[0] for name in later}
    assert not {"uvloop", "structlog", "typer", "rich", "broker", "controller"} & packages
    assert not {"pydantic", "yaml"} & packages


def test_a_fork_server_has_imported_every_role_and_has_no_thread_and_no_terminal_library():
    modules = modules_of(FORK_SERVER)
    packages = {name.partition(".")[0] for name in modules}
    assert {"uvloop", "broker", "controller", "metalog"} <= packages
    heavy = {"typer", "rich", "click", "pyspark", "aiokafka", "prometheus_client", "client"} | {
        *("pydantic", "yaml"),
    }
    assert not heavy & packages


OWN = frozenset({"controller", "broker", "audit", "serving", "metalog", "storage", "client"}) | {
    *("protocol", "runtime", "simulation"),
}


def test_the_pytest_plugin_imports_no_package_of_ours_but_kraftbox():
    """Decision 10: an installed wheel has the other packages below `kraftbox/_root`, which is not
    on the path of a user's process."""
    code = (
        "import json, sys\n"
        "import kraftbox.testing, kraftbox.testing.plugin\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert not OWN & {name.partition(".")[0] for name in modules_of(code)}


def test_a_node_without_tiered_storage_has_nothing_of_it():
    tiered = ("obstore", "storage.objects", "storage.tiered", "broker.tiering")
    assert [name for name in modules_of(FORK_SERVER) if name.startswith(tiered)] == []


def test_a_node_imports_no_terminal_library():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    modules = json.loads(done.stdout)
    packages = {name.partition(".")[0] for name in modules}
    heavy = {
        "typer",
        "rich",
        "click",
        "pyspark",
        "pydantic",
        "yaml",
        "aiokafka",
        "prometheus_client",
    }
    assert packages & (heavy | {"client"}) == set()
    assert len(modules) < MODULES_MAX


CONTROLLERS = FORK_SERVER.replace("import_everything", "import_controllers")


def test_controllers_are_forked_before_anything_of_brokers_is_imported():
    modules = modules_of(CONTROLLERS)
    assert {"kraftbox.launcher.node_process", "controller.assembly"} <= set(modules)
    assert [name for name in modules if name.partition(".")[0] == "broker"] == []


@pytest.mark.parametrize("code", [FORK_SERVER, SUPERVISOR])
def test_start_looks_up_no_package_versions(code):
    """Regression: importing `crc32c` looked up versions, with forty modules and 40 ms."""
    modules = modules_of(code)
    modules = modules[-1] if isinstance(modules[-1], list) else modules
    assert not {"importlib.metadata", "email", "zipfile"} & set(modules)


def test_a_command_reads_its_arguments_without_pydantic_and_the_mail_package():
    """0.1 s each, for every command: typer from 0.29 on parses with pydantic."""
    code = (
        "import json, sys\n"
        "from kraftbox.__main__ import main\n"
        "code = main(['status', '--dir', '/nowhere'])\n"
        "assert code == 1, code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    packages = {name.partition(".")[0] for name in modules_of(code)}
    assert {"typer", "client"} <= packages
    assert not {"pydantic", "email", "yaml", "pyspark"} & packages
