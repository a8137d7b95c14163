"""Filters that read the roles' argument specifications."""

from __future__ import annotations

from collections.abc import Sequence
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
GIVEN = ("slurm_cluster_name", "slurm_controller_host")


def faults(given: Sequence[str] = GIVEN, **variables: dict[str, Any]) -> list[str]:
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


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"slurm_partitions": [{"name": "a", "nodes": ["gpu1"]}]}, []),
        ({"slurm_partitions": [{"name": "a", "nodes": ["gpu7"]}]}, ["Partition a names gpu7, which slurm_nodes does"]),
        ({"slurm_partitions": [{"name": "a", "nodes": "gpu1"}]}, ["slurm_partitions holds a with nodes 'gpu1'"]),
        (
            {"slurm_nodes": [{"name": name, "sockets": 1, "cores_per_socket": 0} for name in ("gpu1", "gpu2")]},
            [
                f"Node {name} declares {key}"
                for name in ("gpu1", "gpu2")
                for key in ("cores_per_socket as 0", "memory_mib as None")
            ],
        ),
        ({"slurm_cluster_name": "No Name"}, ["slurm_cluster_name is 'No Name'"]),
        ({"slurm_uid": 966}, ["munge and slurm share an id"]),
        ({"slurm_nodes": None, "slurm_partitions": None}, []),
        ({"slurm_uid": None}, ["slurm_uid is set to nothing for ctl, gpu1 and gpu2"]),
        ({"slurm_uid": 6001, "cluster_users_accounts": [{"name": "a", "uid": 6001}]}, ["the uid 6001 of a is that of"]),
        ({"cluster_users_accounts": [{"name": "slurm", "uid": 2000}]}, ["slurm is the name of a service's account"]),
    ],
    ids=[
        "good partitions",
        "a partition with an unknown node",
        "text that passes for a list",
        "nodes that lack hardware",
        "a cluster name",
        "ids that two services share",
        "null where the playbook sets it",
        "null where nobody does",
        "an account with slurm's id",
        "an account with slurm's name",
    ],
)
def test_the_inventory_may_set_what_slurm_reads(variables: dict[str, Any], expected: list[str]) -> None:
    found = faults([*GIVEN, "slurm_nodes", "slurm_partitions"], ctl=variables, gpu1=variables, gpu2=variables)
    assert len(found) == len(expected), found
    for words in expected:
        assert any(words in fault for fault in found), (words, found)


def test_sentences_name_types_as_users_know_them() -> None:
    class _AnsibleLazyTemplateDict(dict[str, Any]):
        """As Ansible's own."""

    (fault,) = faults(gpu1={"slurm_extra_settings": _AnsibleLazyTemplateDict()})
    assert "dict cannot be converted to a list" in fault.lower()
    assert "class" not in fault
