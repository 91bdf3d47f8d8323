"""What a node's process imports: no terminal library, no Spark, and not for long."""

import json
import subprocess
import sys

# Modules, not milliseconds: a shared machine's clock says little, the number of modules is stable.
MODULES_MAX = 650

CODE = """
import json, sys
from kraftbox.__main__ import use_own_packages
use_own_packages()
import kraftbox.launch, kraftbox.server, kraftbox.up
print(json.dumps(sorted(sys.modules)))
"""


def test_a_node_imports_no_terminal_library():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    modules = json.loads(done.stdout)
    packages = {name.partition(".")[0] for name in modules}
    heavy = {"typer", "rich", "click", "pyspark", "pydantic", "aiokafka", "prometheus_client"}
    assert packages & heavy == set()
    assert len(modules) < MODULES_MAX
