from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._inventory import Site, fold, read_site

NODE = {
    "node_sockets": 2,
    "node_cores_per_socket": 48,
    "node_memory_mib": 1900000,
    "node_gpu_model": "h100",
    "node_gpu_count": 8,
}
ROLE_VARIABLES = [
    "cuda_repository_url",
    "dcgm_exporter_port",
    "dcgm_exporter_repository_url",
    "node_exporter_port",
    "nvidia_driver_repository_url",
    "slurm_constrain_cores",
    "training_env_source",
    "training_env_sample_interface",
]
MIRROR = "http://packages.example/nvidia"


class Hosts:
    """A good inventory of a controller, two GPU nodes and a backup server, to be spoilt."""

    def __init__(self) -> None:
        self.groups: dict[str, list[str]] = {
            "all": ["ctl", "gpu1", "gpu2", "backup1"],
            "slurm_controller": ["ctl"],
            "gpu_nodes": ["gpu1", "gpu2"],
            "backup_server": ["backup1"],
            "rack1": ["gpu1"],
        }
        self.variables: dict[str, dict[str, Any]] = {
            host: {"cluster_name": "trainyard", **(NODE if host.startswith("gpu") else {})}
            for host in self.groups["all"]
        }

    def everywhere(self, **variables: Any) -> Hosts:
        for own in self.variables.values():
            own.update(variables)
        return self

    def at(self, host: str, **variables: Any) -> Hosts:
        self.variables.setdefault(host, {"cluster_name": "trainyard"}).update(variables)
        return self

    def without(self, host: str, *names: str) -> Hosts:
        for name in names:
            del self.variables[host][name]
        return self

    def group(self, name: str, hosts: list[str]) -> Hosts:
        self.groups[name] = hosts
        for host in hosts:
            self.at(host)
        return self

    def read(self) -> Site:
        return read_site(self.groups, self.variables, ROLE_VARIABLES)


def test_a_good_inventory_has_no_fault_and_says_what_there_is() -> None:
    site = Hosts().read()
    assert site == Site(
        faults=[],
        nodes={
            name: {
                "name": name,
                "sockets": 2,
                "cores_per_socket": 48,
                "threads_per_core": 1,
                "memory_mib": 1900000,
                "gpus": [{"type": "h100", "count": 8}],
            }
            for name in ("gpu1", "gpu2")
        },
        partitions=[{"name": "train", "nodes": ["gpu1", "gpu2"], "default": True, "max_time": "UNLIMITED"}],
        arguments={host: {} for host in ("ctl", "gpu1", "gpu2", "backup1")},
        targets=[
            {"job": "node", "instance": "ctl", "address": "ctl:9100"},
            {"job": "node", "instance": "gpu1", "address": "gpu1:9100"},
            {"job": "dcgm", "instance": "gpu1", "address": "gpu1:9400"},
            {"job": "node", "instance": "gpu2", "address": "gpu2:9100"},
            {"job": "dcgm", "instance": "gpu2", "address": "gpu2:9400"},
            {"job": "node", "instance": "backup1", "address": "backup1:9100"},
        ],
    )


def test_scrape_targets_follow_the_ports_of_each_host() -> None:
    site = Hosts().everywhere(node_exporter_port=9111).at("gpu2", dcgm_exporter_port=9444).read()
    assert site.faults == []
    addresses = [target["address"] for target in site.targets]
    assert addresses == ["ctl:9111", "gpu1:9111", "gpu1:9400", "gpu2:9111", "gpu2:9444", "backup1:9111"]


def test_the_monitoring_server_may_be_a_host_of_another_group_or_its_own() -> None:
    assert Hosts().group("monitoring_server", ["ctl"]).read().faults == []
    site = Hosts().group("monitoring_server", ["mon1"]).read()
    assert site.faults == []
    assert site.targets[-1] == {"job": "node", "instance": "mon1", "address": "mon1:9100"}


def test_partitions_take_hosts_and_groups_and_each_host_once() -> None:
    partitions = [
        {"name": "all", "nodes": ["rack1", "gpu_nodes"], "default": True, "max_time": "2-00:00:00"},
        {"name": "one", "nodes": ["gpu2"]},
    ]
    site = Hosts().everywhere(cluster_partitions=partitions).read()
    assert site.faults == []
    assert site.partitions == [
        {"name": "all", "nodes": ["gpu1", "gpu2"], "default": True, "max_time": "2-00:00:00"},
        {"name": "one", "nodes": ["gpu2"], "default": False, "max_time": "UNLIMITED"},
    ]


def partition(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "train", "nodes": ["gpu_nodes"], "default": True, **changes}]


FAULTS: dict[str, tuple[Hosts, list[str]]] = {
    "no controller": (
        Hosts().group("slurm_controller", []),
        ["Group slurm_controller has no host: write the machine that runs Slurm's controller there"],
    ),
    "no controller, but a group of nearly that name": (
        Hosts().group("slurm_controller", []).group("slurm_controllers", ["ctl"]),
        ["The inventory has a group slurm_controllers: did you mean slurm_controller?"],
    ),
    "two controllers": (
        Hosts().group("slurm_controller", ["ctl", "ctl2"]),
        ["Group slurm_controller has 2 hosts (ctl and ctl2), and one is supported"],
    ),
    "two backup servers": (
        Hosts().group("backup_server", ["backup1", "backup2"]),
        ["Group backup_server has 2 hosts (backup1 and backup2), and one is supported"],
    ),
    "two monitoring servers": (
        Hosts().group("monitoring_server", ["ctl", "backup1"]),
        ["Group monitoring_server has 2 hosts (ctl and backup1), and one is supported"],
    ),
    "a mirror for one of the roles that share a repository": (
        Hosts().at("gpu1", nvidia_driver_repository_url=MIRROR, cuda_repository_url=MIRROR),
        [
            f"nvidia_driver_repository_url is '{MIRROR}', cuda_repository_url is '{MIRROR}', "
            "dcgm_exporter_repository_url is unset for gpu1: these roles share NVIDIA's repository"
        ],
    ),
    "no GPU node": (
        Hosts().group("gpu_nodes", []),
        ["Group gpu_nodes has no host: write the machines with GPUs there"],
    ),
    "a node that is the controller too": (
        Hosts().group("gpu_nodes", ["gpu1", "gpu2", "ctl"]).at("ctl", **NODE),
        ["ctl can't be both in group slurm_controller and in group gpu_nodes: take it out of one of them."],
    ),
    "no GPU count": (
        Hosts().without("gpu2", "node_gpu_count"),
        ["node_gpu_count isn't set for gpu2: write the number of GPUs (nvidia-smi -L lists them) at the host or in "],
    ),
    "a node that declares nothing": (
        Hosts().without("gpu1", *NODE),
        [f"{name} isn't set for gpu1: write" for name in NODE if name != "node_gpu_model"]
        + ["node_gpu_model isn't set for gpu1: write the GPU's short name"],
    ),
    "numbers that are none": (
        Hosts().at("gpu1", node_gpu_count="eight", node_sockets=-2, node_memory_mib=2000, node_cores_per_socket=True),
        [
            "node_gpu_count is 'eight' for gpu1: write the number of GPUs, a whole number from 1 to 64",
            "node_sockets is -2 for gpu1",
            "node_memory_mib is 2000 for gpu1",
            "node_cores_per_socket is True for gpu1",
        ],
    ),
    "a model that Slurm wouldn't take": (
        Hosts().at("gpu1", node_gpu_model="NVIDIA H100"),
        ["node_gpu_model is 'NVIDIA H100' for gpu1: write the GPU's short name for Slurm in lower-case letters"],
    ),
    "the same address": (
        Hosts().at("gpu1", ansible_host="192.0.2.1").at("gpu2", ansible_host="192.0.2.1"),
        ["ansible_host is 192.0.2.1 for gpu1 and gpu2: two machines can't share an address"],
    ),
    "an address that is another host's name": (
        Hosts().at("gpu2", ansible_host="gpu1"),
        ["ansible_host is gpu1 for gpu1 and gpu2: two machines can't share an address"],
    ),
    "the same address in two spellings": (
        Hosts().at("gpu1", ansible_host=" [2001:DB8:0::1]").at("gpu2", ansible_ssh_host="2001:db8::1"),
        ["ansible_host is 2001:db8::1 for gpu1 and gpu2: two machines can't share an address"],
    ),
    "addresses for names": (
        Hosts().group("gpu_nodes", ["192.0.2.1", "192.0.2.2"]).at("192.0.2.1", **NODE).at("192.0.2.2", **NODE),
        ["192.0.2.1 and 192.0.2.2: a host's name in the inventory must be the machine's own short name"],
    ),
    "long names that are alike when short": (
        Hosts()
        .group("gpu_nodes", ["gpu1.a.example", "gpu1.b.example"])
        .at("gpu1.a.example", **NODE)
        .at("gpu1.b.example", **NODE),
        [
            "gpu1.a.example and gpu1.b.example: a host's name in the inventory must be the machine's own short name",
            "gpu1.a.example and gpu1.b.example have the same short name",
        ],
    ),
    "no cluster name": (
        Hosts().everywhere(cluster_name=None),
        ["cluster_name isn't set: write a name of at most 40 lower-case letters"],
    ),
    "a cluster name that Slurm wouldn't take": (
        Hosts().everywhere(cluster_name="Big Cluster"),
        ["cluster_name is 'Big Cluster': write"],
    ),
    "a cluster name that differs": (
        Hosts().at("gpu2", cluster_name="other"),
        ["cluster_name differs between hosts ('trainyard' for ctl, gpu1 and backup1, 'other' for gpu2): set it once"],
    ),
    "a shared directory that is no absolute path": (
        Hosts().everywhere(cluster_shared_directory="shared/"),
        ["cluster_shared_directory is 'shared/': write the absolute path"],
    ),
    "users with one id, a small one and a strange name": (
        Hosts().everywhere(
            cluster_users_accounts=[
                {"name": "a", "uid": 2000},
                {"name": "b", "uid": 2000},
                {"name": "c", "uid": 999},
                {"name": "D E"},
            ]
        ),
        [
            "cluster_users_accounts has the uid 2000 2 times: give every account its own.",
            "cluster_users_accounts has the gid 2000 2 times",
            "cluster_users_accounts: the uid 999 of c belongs to the system",
            "cluster_users_accounts: 'D E' can't be an account's name",
            "cluster_users_accounts: the uid of D E is None",
        ],
    ),
    "a user twice": (
        Hosts().everywhere(cluster_users_accounts=[{"name": "a", "uid": 2000}, {"name": "a", "uid": 2001}]),
        ["cluster_users_accounts has the name a 2 times"],
    ),
    "a user without an id": (
        Hosts().everywhere(cluster_users_accounts=[{"name": "a"}]),
        ["cluster_users_accounts: the uid of a is None: write a whole number from 1000 up"],
    ),
    "users that are no list": (
        Hosts().everywhere(cluster_users_accounts={"a": 2000}),
        ["cluster_users_accounts is {'a': 2000}: write a list"],
    ),
    "a partition with a node that isn't there": (
        Hosts().everywhere(cluster_partitions=partition(nodes=["gpu1", "gpu3"])),
        ["Partition train in cluster_partitions names gpu3, which is neither a host of group gpu_nodes nor a group"],
    ),
    "a partition with a group of other machines": (
        Hosts().everywhere(cluster_partitions=partition(nodes=["all"])),
        ["Partition train in cluster_partitions names group all, which holds ctl and backup1, not in group gpu_nodes"],
    ),
    "a partition without nodes": (
        Hosts().everywhere(cluster_partitions=partition(nodes="gpu1")),
        ["Partition train in cluster_partitions has nodes 'gpu1': write a list"],
    ),
    "two default partitions": (
        Hosts().everywhere(cluster_partitions=partition() + partition(name="debug")),
        ["cluster_partitions has 2 default partitions (train, debug): write default: true at exactly one"],
    ),
    "no default partition": (
        Hosts().everywhere(cluster_partitions=partition(default=False)),
        ["cluster_partitions has no default partition: write default: true at exactly one"],
    ),
    "a partition twice": (
        Hosts().everywhere(cluster_partitions=partition() + partition(default=False)),
        ["cluster_partitions has 2 partitions named train"],
    ),
    "a time that YAML made a number of": (
        Hosts().everywhere(cluster_partitions=partition(max_time=36000)),
        [
            "Partition train in cluster_partitions has max_time 36000: write UNLIMITED, or days, hours, "
            "minutes and seconds in quotes"
        ],
    ),
    "a misspelt key of a partition": (
        Hosts().everywhere(cluster_partitions=partition(maxtime="UNLIMITED")),
        ["Partition train in cluster_partitions has maxtime: only name, nodes, default and max_time are read."],
    ),
    "keys that YAML makes no text of": (
        Hosts().everywhere(cluster_partitions=[{**partition()[0], False: "y", 5: "x"}]),
        ["Partition train in cluster_partitions has 5, False: only name, nodes, default and max_time are read."],
    ),
    "entries that are none beside others with faults": (
        Hosts().everywhere(
            cluster_partitions=["debug", *partition(nodes=["gpu3"])], cluster_users_accounts=["bob", {"name": "a"}]
        ),
        [
            "cluster_partitions holds 'debug': write name and nodes for it",
            "Partition train in cluster_partitions names gpu3",
            "cluster_users_accounts holds 'bob': write name and uid for it",
            "cluster_users_accounts: the uid of a is None",
        ],
    ),
    "partitions that are no list": (
        Hosts().everywhere(cluster_partitions="train"),
        ["cluster_partitions is 'train': write a list"],
    ),
    "a misspelt variable": (
        Hosts().without("gpu1", "node_gpu_count").at("gpu1", node_gpu_cuont=8),
        [
            "node_gpu_cuont is set for gpu1, but nothing reads it: did you mean node_gpu_count?",
            "node_gpu_count isn't set for gpu1",
        ],
    ),
    "a misspelt variable of a role": (
        Hosts().everywhere(slurm_constrain_core=False),
        [
            "slurm_constrain_core is set for ctl, gpu1, gpu2 and backup1, but nothing reads it: "
            "did you mean slurm_constrain_cores?"
        ],
    ),
    "names that facts take": (
        Hosts().at("gpu1", slurm="x", gpu="y"),
        [
            f"{name} is set for gpu1, but a module of this collection returns a fact of that name"
            for name in ("gpu", "slurm")
        ],
    ),
}


@pytest.mark.parametrize(("hosts", "expected"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_told_and_no_other(hosts: Hosts, expected: list[str]) -> None:
    faults = hosts.read().faults
    for words in expected:
        assert any(words in fault for fault in faults), (words, faults)
    assert len(faults) == len(expected), faults


def test_all_faults_are_told_at_once() -> None:
    hosts = Hosts().group("slurm_controller", []).without("gpu1", "node_gpu_count").everywhere(cluster_name="")
    hosts.at("gpu1", ansible_host="192.0.2.1").at("gpu2", ansible_host="192.0.2.1")
    hosts.everywhere(cluster_partitions=partition(nodes=["gpu9"]))
    faults = "\n".join(hosts.read().faults)
    for word in ("slurm_controller", "node_gpu_count", "cluster_name", "192.0.2.1", "gpu9"):
        assert word in faults


def test_an_inventory_without_hosts() -> None:
    (fault,) = read_site({"all": [], "ungrouped": []}, {}).faults
    assert fault.startswith(
        "The inventory has no host: write the machines into the groups slurm_controller and gpu_nod"
    )


def test_null_is_unset() -> None:
    accounts = [{"name": "a", "uid": 2000, "gid": None}]
    nulls: dict[str, Any] = {"cluster_shared_directory": None, "cluster_users_accounts": None}
    assert Hosts().everywhere(**nulls).read() == Hosts().read()
    site = Hosts().everywhere(cluster_users_accounts=accounts, cluster_partitions=partition(max_time=None)).read()
    assert site.faults == []
    assert site.partitions[0]["max_time"] == "UNLIMITED"
    assert site.accounts == accounts


def test_hosts_with_one_fault_share_a_sentence() -> None:
    hosts = Hosts()
    names = [f"gpu{number}" for number in range(1, 1001)]
    hosts.group("gpu_nodes", names)
    for name in names:
        hosts.at(name, **NODE)
        del hosts.variables[name]["node_gpu_count"]
    (fault,) = hosts.read().faults
    assert fault.startswith("node_gpu_count isn't set for gpu[1-1000]: write the number of GPUs")


@pytest.mark.parametrize(
    "variables",
    [
        {"node_exporter_listen_address": ":9100"},
        {"node_rack": "r1", "cluster_owner": "ml"},
        {"gpu": {"count": 8}, "ansible_facts": {"gpu": {"count": 8}}},
        {"ansible_host": "192.0.2.1", "ansible_port": 2201},
        {"node_gpu_count": "8"},
        {"node_memory_gib": 1800},
    ],
    ids=[
        "another collection's",
        "the user's own",
        "a fact of an earlier run",
        "another port of one address",
        "a number in text",
        "a helper of the user's beside the variable",
    ],
)
def test_what_is_no_fault(variables: dict[str, Any]) -> None:
    hosts = Hosts().at("gpu1", **variables).at("gpu2", ansible_host="192.0.2.1")
    site = hosts.read()
    assert site.faults == []
    assert site.nodes["gpu1"] == {**site.nodes["gpu2"], "name": "gpu1"}


class Computed(Mapping[str, Any]):
    """Variables of which some raise when they are read, as Ansible's do."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if isinstance(value, Exception):
            raise value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def read_computed(**variables: Any) -> Site:
    hosts = Hosts().at("gpu1", **variables)
    return read_site(hosts.groups, {host: Computed(own) for host, own in hosts.variables.items()}, ROLE_VARIABLES)


def test_a_declaration_that_cant_be_computed_is_one_fault() -> None:
    (fault,) = read_computed(node_gpu_count=KeyError("'gpus' is undefined")).faults
    assert fault.startswith("node_gpu_count of gpu1 can't be computed: ")


def test_a_value_that_cant_be_computed_is_not_missed_too() -> None:
    hosts = Hosts().everywhere(cluster_name=ValueError("A captured exception marker was tripped: No filter named 'x'."))
    (fault,) = read_site(hosts.groups, {host: Computed(own) for host, own in hosts.variables.items()}).faults
    assert fault == (
        "cluster_name of ctl, gpu1, gpu2 and backup1 can't be computed: No filter named 'x'; correct what it refers to."
    )
    (fault,) = read_computed(cluster_name=ValueError("A vault exception marker was tripped.")).faults
    assert fault == "cluster_name of gpu1 can't be computed: it can't be decrypted; correct what it refers to."


@pytest.mark.parametrize("name", ["ansible_host", "ansible_port", "ansible_become_password", "ansible_user"])
def test_a_connection_that_cant_be_computed_is_one_fault(name: str) -> None:
    (fault,) = read_computed(**{name: ValueError("'nope' is undefined")}).faults
    assert fault == f"{name} of gpu1 can't be computed: 'nope' is undefined; define nope."


@pytest.mark.parametrize("name", ["training_env_source", "ansible_ssh_common_args"])
def test_a_variable_may_wait_for_other_hosts(name: str) -> None:
    assert read_computed(**{name: ValueError("'hostvars' is undefined")}).faults == []


def test_a_variable_of_a_role_may_wait_for_facts() -> None:
    site = read_computed(
        training_env_source="pip",
        training_env_sample_interface=KeyError("object of type 'dict' has no attribute 'default_ipv4'"),
    )
    assert site.faults == []
    assert site.arguments["gpu1"] == {"training_env_source": "pip"}


def test_a_variable_of_a_role_may_not_wait_for_what_nobody_defines() -> None:
    (fault,) = read_computed(training_env_source=ValueError("'nope' is undefined")).faults
    assert fault == "training_env_source of gpu1 can't be computed: 'nope' is undefined; define nope."


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["ctl"], "ctl"),
        (["gpu1", "gpu2"], "gpu1 and gpu2"),
        (["gpu9", "gpu10", "gpu11", "ctl"], "gpu[9-11] and ctl"),
        (["gpu008", "gpu009", "gpu010"], "gpu[008-010]"),
        (["gpu1", "gpu3", "web1"], "gpu1, gpu3 and web1"),
        ([f"n{number}" for number in range(0, 40, 2)], "n0, n2, n4, n6, n8, n10, n12, n14 and 12 more"),
    ],
)
def test_hosts_are_folded(hosts: list[str], expected: str) -> None:
    assert fold(hosts) == expected
