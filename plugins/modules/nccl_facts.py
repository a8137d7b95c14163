#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_facts
short_description: Report what NCCL finds on a machine, its libraries, networks and settings
version_added: 0.1.0
description:
  - Reads the files of NCCL's libraries and settings, C(/sys) and C(/proc). Changes nothing and loads no library.
  - A value that the kernel or a driver doesn't have is null.
author: Trainyard contributors (@trainyard)
options:
  search_paths:
    description:
      - Further places where an NCCL library may lie, besides the system's folders and C(/usr/local/cuda*).
      - Each is a folder that holds the library, a prefix with C(lib) or C(lib64), or a Python environment.
    type: list
    elements: path
    default: []
  environment:
    description: Variables that jobs get in their environment; those that begin with C(NCCL_) are looked at.
    type: dict
    default: {}
  environment_files:
    description:
      - Files with lines C(NAME=value), from which jobs get their environment. Of two files the later counts.
      - Files that don't exist are passed over.
    type: list
    elements: path
    default: []
  home:
    description:
      - Home directory of the user whose jobs are meant. NCCL reads C(.nccl.conf) there before C(/etc/nccl.conf), unless
        C(NCCL_CONF_FILE) in O(environment) or O(environment_files) names another file.
      - By default it is that of the user as whom the module runs.
    type: path
    default: "~"
  nvidia_smi:
    description: The command that says how near GPUs and NICs are, as a name or a path.
    type: str
    default: nvidia-smi
  root:
    description:
      - The directory that holds the machine's C(/sys), C(/proc), C(/usr) and C(/etc).
      - Another than V(/) is for a container that sees its host's files there. Of the commands only O(nvidia_smi) is run
        then, so that addresses of interfaces and the library loaded by default are not known.
    type: path
    default: /
  timeout:
    description: Seconds to wait for each call of a command.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
    description: Reads only.
  diff_mode:
    support: none
    description: Reads only.
"""

EXAMPLES = r"""
- name: Look at what NCCL will find
  trainyard.cluster.nccl_facts:
    search_paths:
      - /opt/trainyard/pytorch
    environment_files:
      - /etc/environment

- name: Show the ports that have no link
  ansible.builtin.debug:
    msg: "{{ ansible_facts.nccl.hcas | rejectattr('state', 'equalto', 'ACTIVE') | map(attribute='name') }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts, under the key C(nccl).
  returned: always
  type: dict
  contains:
    nccl:
      description: What is known.
      type: dict
      returned: always
      contains:
        libraries:
          description: Every NCCL library, each file once.
          type: list
          elements: dict
          contains:
            path:
              description: The file, links followed.
              type: str
            version:
              description: Version by the file's name or, where that has none, by what the file says.
              type: str
            cuda_version:
              description: CUDA version it was built with; null where the version is that of the file's name.
              type: str
            origin:
              description: 'V(system), V(cuda) (a CUDA tree) or V(search_path).'
              type: str
            loaded_by_default:
              description: Whether a process loads this one unless it says otherwise.
              type: bool
        net_plugins:
          description: Network plugins of NCCL.
          type: list
          elements: dict
          contains:
            path:
              description: The file, links followed.
              type: str
            kind:
              description:
                - V(aws-ofi), V(sharp), V(spectrum-x), V(gcp-gib), V(gcp-fastrak) (TCPXO) or V(gcp-tcpx).
                - Null where the path does not tell.
              type: str
        interfaces:
          description: Network interfaces.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the interface.
              type: str
            kind:
              description: 'V(physical), V(bond), V(vlan), V(bridge), V(loopback) or V(virtual).'
              type: str
            state:
              description: Operational state as the kernel names it.
              type: str
            mtu:
              description: Largest packet in bytes.
              type: int
            speed_megabits_per_second:
              description: Speed in Mb/s; null without a link.
              type: int
            driver:
              description: Kernel driver.
              type: str
            pci_bus_id:
              description: Address as in C(/sys/bus/pci/devices).
              type: str
            numa_node:
              description: NUMA node of the slot.
              type: int
            controller:
              description: The bond or bridge that the interface is a member of.
              type: str
            addresses:
              description: IP addresses with prefix length.
              type: list
              elements: str
            bootstrap:
              description: Whether NCCL may use it to let ranks find each other.
              type: bool
            bootstrap_reason:
              description: Why it may not.
              type: str
        hcas:
          description: Ports of InfiniBand and RoCE adapters.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the HCA.
              type: str
            port:
              description: Number of the port.
              type: int
            state:
              description: 'V(ACTIVE), V(DOWN), V(INIT) or V(ARMED).'
              type: str
            physical_state:
              description: 'V(LinkUp), V(Polling), V(Disabled) and so on.'
              type: str
            rate_gigabits_per_second:
              description: Rate in Gb/s.
              type: float
            link_layer:
              description: V(InfiniBand), V(Ethernet), or V(Unknown) where it is neither, as with AWS's EFA.
              type: str
            lid:
              description: Local identifier.
              type: int
            gids:
              description: Addresses of the port.
              type: list
              elements: dict
              contains:
                index:
                  description: Index, as in C(NCCL_IB_GID_INDEX).
                  type: int
                gid:
                  description: The address.
                  type: str
                type:
                  description: 'V(IB), V(RoCE v1) or V(RoCE v2).'
                  type: str
                netdev:
                  description: Network interface it belongs to.
                  type: str
            netdev:
              description: Network interface of the port.
              type: str
            hca_type:
              description: Device model.
              type: str
            board_id:
              description: Identifier of the board.
              type: str
            firmware_version:
              description: Version of the firmware.
              type: str
            pci_bus_id:
              description: Address as in C(/sys/bus/pci/devices).
              type: str
            pci_path:
              description: The way to it from the root of the bus, as below C(/sys/devices).
              type: str
            numa_node:
              description: NUMA node of the slot.
              type: int
            virtual_function:
              description: Whether it was made from a physical port of this machine (SR-IOV).
              type: bool
            traffic_class_forced:
              description: Traffic class that the driver gives every packet, whatever programs ask for; RoCE alone.
              type: int
            traffic_class_rdma_cm:
              description:
                - Traffic class of programs that connect by the RDMA connection manager and ask for none; RoCE alone.
                - NCCL doesn't connect by it.
                - Null where the port has no folder in C(/sys/kernel/config/rdma_cm), as one with a class may, too.
              type: int
            errors_symbol:
              description: Symbol errors.
              type: int
            errors_link_recovery:
              description: Times the link recovered.
              type: int
            errors_link_downed:
              description: Times the link went down.
              type: int
            errors_receive:
              description: Packets received with errors.
              type: int
            errors_receive_remote_physical:
              description: Packets marked bad by the sender.
              type: int
            errors_transmit_discards:
              description: Packets dropped before sending.
              type: int
            errors_link_integrity:
              description: Local link integrity errors.
              type: int
            errors_buffer_overrun:
              description: Excessive buffer overruns.
              type: int
            errors_out_of_sequence:
              description: Packets out of sequence.
              type: int
            errors_packet_sequence:
              description: Sequence errors reported back.
              type: int
            errors_ack_timeout:
              description: Acknowledgements that came too late.
              type: int
        gdr:
          description: GPUDirect RDMA, by which HCAs read and write GPU memory.
          type: dict
          contains:
            peermem_loaded:
              description: Whether the module nvidia_peermem or its older kin is loaded.
              type: bool
            dma_buf:
              description: Whether kernel and driver offer dma-buf, which needs no module; null without a driver.
              type: bool
            gpus:
              description: For each GPU the nearest NICs; empty without a driver or without HCAs.
              type: list
              elements: dict
              contains:
                gpu:
                  description: Index of the GPU.
                  type: int
                nic_nearest:
                  description: The nearest NICs.
                  type: list
                  elements: str
                nic_nearest_distance:
                  description: V(PIX), V(PXB) or V(PHB) (near), V(NODE) or V(SYS) (far).
                  type: str
        config:
          description: Settings that NCCL gets.
          type: dict
          contains:
            settings:
              description:
                - Every setting, by rank.
                - From O(environment), O(environment_files), the user's own file (C(NCCL_CONF_FILE) or C(~/.nccl.conf))
                  and C(/etc/nccl.conf).
              type: list
              elements: dict
              contains:
                name:
                  description: Name of the variable.
                  type: str
                value:
                  description: Its value.
                  type: str
                source:
                  description: V(environment) or the file.
                  type: str
                effective:
                  description: Whether NCCL takes this one; false where a source of higher rank sets the same variable.
                  type: bool
        recommended:
          description:
            - The fewest variables that this machine needs; none where NCCL chooses right by itself.
            - E(NCCL_IB_TC) is among them where the host gives RDMA-CM a traffic class (C(cma_roce_tos)) and forces none
              on all packets. What the switches want can't be seen from the host.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the variable.
              type: str
            value:
              description: Value to set.
              type: str
            reason:
              description: Why NCCL's own choice isn't right here.
              type: str
        problems:
          description: What a person must know.
          type: list
          elements: dict
          contains:
            severity:
              description: 'V(critical), V(warning) or V(info).'
              type: str
            code:
              description:
                - A stable name.
                - V(nccl_missing), V(nccl_versions_differ), V(net_plugin_missing), V(hca_port_down), V(hca_port_slow),
                  V(mtu_differs), V(gid_index_wrong), V(peermem_missing), V(gpu_without_near_nic), V(setting_unknown),
                  V(setting_deprecated), V(setting_with_blanks) or V(setting_selects_nothing).
              type: str
            device:
              description: The port (V(mlx5_0:1)), GPU or variable meant; null for the machine as a whole.
              type: str
            message:
              description: What is wrong.
              type: str
            evidence:
              description: What was seen.
              type: str
            action:
              description: What to do.
              type: str
  sample:
    nccl:
      libraries:
        - path: /usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5
          version: 2.21.5
          cuda_version: null
          origin: system
          loaded_by_default: true
      net_plugins: []
      interfaces:
        - name: bond0
          kind: bond
          state: up
          mtu: 9000
          speed_megabits_per_second: 50000
          addresses: [192.0.2.11/24]
          bootstrap: true
          bootstrap_reason: null
      hcas:
        - name: mlx5_0
          port: 1
          state: ACTIVE
          physical_state: LinkUp
          rate_gigabits_per_second: 400.0
          link_layer: InfiniBand
          lid: 13247
          pci_bus_id: "0000:18:00.0"
          numa_node: 0
      gdr:
        peermem_loaded: true
        dma_buf: false
        gpus:
          - gpu: 0
            nic_nearest: [mlx5_0]
            nic_nearest_distance: PIX
      config:
        settings:
          - name: NCCL_SOCKET_IFNAME
            value: bond0
            source: /etc/nccl.conf
            effective: true
      recommended:
        - name: NCCL_SOCKET_IFNAME
          value: "=bond0"
          reason: bond0 carries the default route; NCCL would also take enp1s0.
      problems: []
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_facts import Request, collect


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "search_paths": {"type": "list", "elements": "path", "default": []},
            "environment": {"type": "dict", "default": {}},
            "environment_files": {"type": "list", "elements": "path", "default": []},
            "home": {"type": "path", "default": "~"},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "root": {"type": "path", "default": "/"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout: {module.params['timeout']} is no number of seconds to wait; give 1 or more")
    given = module.params["environment"]
    request = Request(**{**module.params, "environment": {name: str(value) for name, value in given.items()}})
    facts = collect(run_command, request)
    module.exit_json(ansible_facts={"nccl": asdict(facts)})


if __name__ == "__main__":
    main()
