# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.modules import outdated_units

from tests.unit import modules

SYSTEMCTL = """#!/bin/sh
[ "$TZ" = UTC ] || exit 1
cat <<.
MainPID={process}
ExecMainStartTimestamp=Sat 2000-01-01 00:00:00.000000 UTC
NeedDaemonReload=yes
.
"""


def look(tmp_path: Path, *units: dict[str, Any], script: str = SYSTEMCTL) -> dict[str, Any]:
    """What the module says where systemctl is a script, and every unit runs as this process since 2000."""
    program = tmp_path / "systemctl"
    program.write_text(script.format(process=os.getpid()))
    program.chmod(0o755)
    return modules.run_module(outdated_units, {"units": list(units)}, {"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_names_units_to_restart(tmp_path: Path) -> None:
    (tmp_path / "settings").touch()
    file = str(tmp_path / "settings")
    result = look(tmp_path, {"name": "web", "files": [file], "reload_files": [file]})
    assert not result["changed"]
    assert (result["restart"], result["reload"], result["daemon_reload"]) == (["web"], [], True)
    assert result["units"]["web"] == {
        "running": True,
        "daemon_reload": True,
        "restart": [f"{file} is newer than the process"],
        "reload": [file],
    }


def test_names_units_to_reload(tmp_path: Path) -> None:
    (tmp_path / "settings").touch()
    result = look(tmp_path, {"name": "web", "reload_files": [str(tmp_path / "settings")]})
    assert (result["restart"], result["reload"]) == ([], ["web"])


@pytest.mark.parametrize(
    ("unit", "script", "words"),
    [
        ({"name": "web", "mapped": "("}, SYSTEMCTL, "units: mapped is no regular expression"),
        ({"name": "web", "mapped": "("}, SYSTEMCTL.replace("{process}", "0"), "units: mapped is no regular expression"),
        (
            {"name": "web"},
            "#!/bin/sh\necho Failed to connect to bus >&2; exit 1\n",
            "units: .*Failed to connect to bus",
        ),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, unit: dict[str, Any], script: str, words: str) -> None:
    result = look(tmp_path, unit, script=script)
    assert result["failed"]
    assert re.search(words, result["msg"])
