# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_names import DEPRECATED, KNOWN
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_settings import (
    Setting,
    effective,
    of_settings,
    parse_configuration,
    read_settings,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def test_ranks_sources_as_nccl_does(tmp_path: Path) -> None:
    configuration, first, second = (tmp_path / name for name in ("nccl.conf", "first", "second"))
    configuration.write_text("# site\nNCCL_DEBUG=WARN\nNCCL_DEBUG=INFO\nNCCL_IB_TC=106\r\njunk\n\n")
    first.write_text("PATH=/bin\nexport NCCL_DEBUG=TRACE # why\nNCCL_NET='IB'\n")
    second.write_text('NCCL_DEBUG="VERSION"\n')
    found = read_settings(
        str(configuration), {"NCCL_ALGO": "Ring", "HOME": "/"}, [str(first), str(second), str(tmp_path / "none")]
    )
    assert found == [
        Setting("NCCL_ALGO", "Ring", "environment", True),
        Setting("NCCL_DEBUG", "VERSION", str(second), True),
        Setting("NCCL_DEBUG", "TRACE", str(first), False),
        Setting("NCCL_NET", "IB", str(first), True),
        Setting("NCCL_DEBUG", "WARN", str(configuration), False),
        Setting("NCCL_DEBUG", "INFO", str(configuration), False),
        Setting("NCCL_IB_TC", "106", str(configuration), True),
    ]
    assert (effective(found, "NCCL_DEBUG"), effective(found, "NCCL_PROTO")) == ("VERSION", None)


def test_reads_the_users_own_file_before_the_machines(tmp_path: Path) -> None:
    configuration, own, named = (tmp_path / name for name in ("nccl.conf", ".nccl.conf", "named"))
    configuration.write_text("NCCL_DEBUG=WARN\nNCCL_IB_TC=106\n")
    own.write_text("NCCL_DEBUG=INFO\n")
    named.write_text("NCCL_DEBUG=TRACE\n")
    home = str(tmp_path)
    assert read_settings(str(configuration), {}, [], home) == [
        Setting("NCCL_DEBUG", "INFO", str(own), True),
        Setting("NCCL_DEBUG", "WARN", str(configuration), False),
        Setting("NCCL_IB_TC", "106", str(configuration), True),
    ]
    found = read_settings(str(configuration), {"NCCL_CONF_FILE": str(named)}, [], home)
    assert (found[1], effective(found, "NCCL_DEBUG")) == (Setting("NCCL_DEBUG", "TRACE", str(named), True), "TRACE")
    assert effective(read_settings(str(configuration), {"NCCL_CONF_FILE": ""}, [], home), "NCCL_DEBUG") == "INFO"
    assert effective(read_settings(str(configuration), {}, [], None), "NCCL_DEBUG") == "WARN"


def test_has_no_setting_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_settings(str(tmp_path / "none"), {}, []) == []


@pytest.mark.parametrize(
    ("name", "value", "code", "action"),
    [
        ("NCCL_SOCKET_IFNAME", "^docker,lo", None, None),
        ("NCCL_SOCKET_IFNAME", "=ens1", None, None),
        ("NCCL_FASTRAK_IFNAME", "eth1", None, None),
        ("NCCL_IBEXT_DISABLE", "1", None, None),
        ("NCCL_DYNAMIC_CHUNK_SIZE", "524288", None, None),
        ("OFI_NCCL_PROTOCOL", "SENDRECV", None, None),
        ("NCCL_VERSION", "2.21.5", None, None),
        ("NCCL_TUNER_CONFIG_PATH", "/x", None, None),
        ("NCCL_PARAM_DUMP_ALL", "true", None, None),
        ("NCCL_IB_HAC", "mlx5", "setting_unknown", "Write NCCL_IB_HCA if that is what is meant; else remove it."),
        ("NCCL_WHATEVER_IT_TAKES", "1", "setting_unknown", "Correct or remove it."),
        ("NCCL_TREE_THRESHOLD", "0", "setting_deprecated", "Set NCCL_ALGO if it is still needed, and remove this one."),
        ("NCCL_RINGS", "0 1", "setting_deprecated", "Remove it."),
        (" NCCL_DEBUG ", " WARN", "setting_with_blanks", "Write NCCL_DEBUG=WARN at the beginning of a line."),
    ],
)
def test_names_settings_that_do_nothing(name: str, value: str, code: str | None, action: str | None) -> None:
    found = list(of_settings([Setting(name, value, "/etc/nccl.conf", True)]))
    assert [(problem.code, problem.action) for problem in found] == ([(code, action)] if code else [])


def test_leaves_names_and_values_as_nccl_takes_them() -> None:
    assert parse_configuration(" NCCL_DEBUG = WARN \n#NCCL_ALGO=Ring\nNCCL_SOCKET_IFNAME==ens1\n") == [
        (" NCCL_DEBUG ", " WARN "),
        ("NCCL_SOCKET_IFNAME", "=ens1"),
    ]


def test_knows_names_of_old_and_new_releases() -> None:
    documented = {"NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_NVLS_ENABLE", "NCCL_IB_FIFO_TC", "NCCL_RAS_ENABLE"}
    assert documented <= KNOWN
    assert not documented & set(DEPRECATED)
    assert all(instead is None or instead in KNOWN or instead.startswith("TORCH_") for instead in DEPRECATED.values())


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_reads_anything(content: str) -> None:
    for name, value in parse_configuration(content):
        assert f"{name}={value}" in content
        assert len(list(of_settings([Setting(name, value, "file", True)]))) <= 1
