"""Filters that read the roles' argument specifications."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.trainyard.cluster.plugins.filter.role_options import role_options
from ansible_collections.trainyard.cluster.plugins.filter.site import site

GROUPS = {"slurm_controller": ["ctl"], "gpu_nodes": ["gpu1", "gpu2"]}
ROLES = {"slurm_controller": ["slurm"], "gpu_nodes": ["slurm", "training_env"]}
NODE = {
    "cluster_name": "trainyard",
    "node_sockets": 2,
    "node_cores_per_socket": 8,
    "node_memory_mib": 200000,
    "node_gpu_model": "h100",
    "node_gpu_count": 8,
}
GIVEN = ["slurm_cluster_name", "slurm_controller_host"]


def faults(given: list[str] = GIVEN, **variables: dict[str, Any]) -> list[str]:
    hostvars = {host: {**NODE, **variables.get(host, {})} for host in ("ctl", "gpu1", "gpu2")}
    found: list[str] = site(GROUPS, hostvars, ROLES, given)["faults"]
    return found


def test_options_of_several_roles() -> None:
    options = role_options(["slurm", "training_env"])
    assert options["slurm_node"]["type"] == "bool"
    assert options["training_env_source"]["choices"] == ["pip", "distribution"]


def test_a_role_that_is_none() -> None:
    with pytest.raises(AnsibleFilterError, match="slrum is no role of"):
        role_options(["slrum"])


def test_good_arguments() -> None:
    assert faults(gpu1={"training_env_source": "distribution", "slurm_uid": 64030}) == []


def test_wrong_arguments_are_told_once_for_all_hosts() -> None:
    wrong = {"slurm_uid": "no", "training_env_source": "conda"}
    assert faults(gpu1=wrong, gpu2={**wrong, "slurm_gid": 1}) == [
        "gpu1 and gpu2: argument 'slurm_uid' is of type str and we were unable to convert to int: "
        "\"'no'\" cannot be converted to an int; correct it at the host or in group_vars "
        "(the role slurm's README says what it may be).",
        "gpu1 and gpu2: value of training_env_source must be one of: pip, distribution, got: conda; "
        "correct it at the host or in group_vars (the role training_env's README says what it may be).",
    ]


def test_arguments_of_a_role_that_does_not_run_there_are_not_looked_at() -> None:
    assert faults(ctl={"training_env_source": "conda"}) == []


def test_an_option_that_must_be_set_is_missed() -> None:
    (fault,) = faults(given=["slurm_controller_host"])
    assert fault.startswith("ctl, gpu1 and gpu2: missing required arguments: slurm_cluster_name; correct it")


def test_site_knows_the_roles_variables() -> None:
    (fault,) = faults(gpu1={"slurm_constrain_core": False})
    assert "did you mean slurm_constrain_cores?" in fault
