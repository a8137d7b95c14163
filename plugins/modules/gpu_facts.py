#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Report the NVIDIA GPUs of a machine, their driver and what is wrong with them
version_added: 0.1.0
description:
  - Asks C(nvidia-smi) and reads C(/proc), C(/sys) and the kernel log. Changes nothing.
  - A machine without a GPU, a driver or C(nvidia-smi) gives C(ansible_facts.gpu.count) 0 and a problem that says why.
    The module fails only where O(required) or O(expected) asks for more.
  - A value that the driver or the card doesn't have is null, whatever C(nvidia-smi) prints in its place.
author: Trainyard contributors (@trainyard)
options:
  nvidia_smi:
    description: The command, as a name to be found in the search path or as a path.
    type: str
    default: nvidia-smi
  timeout:
    description:
      - Seconds to wait for each call of a command.
      - A sick GPU can make C(nvidia-smi) hang. It is then stopped, and the problem C(nvidia_smi_hangs) reported.
    type: int
    default: 60
  root:
    description:
      - The directory that holds the machine's C(/proc), C(/sys), C(/run) and C(/usr).
      - Another than V(/) is for a container that sees its host's files there.
      - With another value than V(/), only O(nvidia_smi) is run; what other commands would say stays null.
    type: path
    default: /
  required:
    description: Fail if no GPU answers.
    type: bool
    default: false
  expected:
    description: What the machine is declared to have. Fails with every difference at once.
    type: dict
    suboptions:
      count:
        description: Number of GPUs that answer.
        type: int
      model:
        description: Product name of every GPU as C(nvidia-smi) prints it, upper or lower case.
        type: str
      slurm_type:
        description: Slurm type of every GPU, as in C(ansible_facts.gpu.devices[].slurm_type).
        type: str
      memory_mib:
        description:
          - Memory of every GPU in MiB.
          - Two percent more or less is no difference, since drivers keep different amounts for themselves.
        type: int
      driver_version:
        description: Version of the driver, or the beginning of it up to a dot (V(550) is any release of that branch).
        type: str
attributes:
  check_mode:
    support: full
    description: Reads only.
  diff_mode:
    support: none
    description: Reads only.
"""

EXAMPLES = r"""
- name: Look at the GPUs
  trainyard.cluster.gpu_facts:

- name: Show what is wrong with them
  ansible.builtin.debug:
    var: ansible_facts.gpu.problems

- name: Stop unless the machine is what the inventory says
  trainyard.cluster.gpu_facts:
    expected:
      count: 8
      slurm_type: h100
      memory_mib: 81559

- name: Look at the GPUs, but wait 20 seconds at most
  trainyard.cluster.gpu_facts:
    nvidia_smi: /opt/driver/bin/nvidia-smi
    timeout: 20
    required: true
"""

RETURN = r"""
ansible_facts:
  description: The facts, under the key C(gpu).
  returned: success
  type: dict
  contains:
    gpu:
      description: What is known about the GPUs.
      type: dict
      returned: always
      contains:
        driver:
          description: The driver and its services.
          type: dict
          contains:
            version:
              description: Version of the driver that runs.
              type: str
            cuda_version:
              description: Newest CUDA version that the driver supports.
              type: str
            kernel_module_loaded:
              description: Whether NVIDIA's kernel module is loaded.
              type: bool
            kernel_module_loaded_version:
              description: Version of the loaded kernel module.
              type: str
            kernel_module_installed_version:
              description: Version of the kernel module on the disk, which the next boot loads.
              type: str
            kernel_module_flavour:
              description: V(open) or V(proprietary).
              type: str
            library_version:
              description: Version of the library that programs load.
              type: str
            mismatch:
              description: Whether library and loaded kernel module differ, so that nothing can use a GPU.
              type: bool
            nouveau_loaded:
              description: Whether the free driver nouveau holds the place of NVIDIA's.
              type: bool
            persistence_daemon_running:
              description: Whether nvidia-persistenced runs.
              type: bool
            fabric_manager_installed:
              description: Whether the fabric manager for NVSwitch is installed.
              type: bool
            fabric_manager_version:
              description: Version of the fabric manager.
              type: str
            fabric_manager_state:
              description: State of its service as systemd names it.
              type: str
            fabric_manager_matches_driver:
              description: Whether the fabric manager is of the driver's version, as it must be.
              type: bool
        count:
          description: Number of GPUs that answer.
          type: int
        models:
          description: Number of GPUs by model.
          type: dict
        slurm_gres:
          description: The GPUs as C(Gres) in C(slurm.conf) has them; null without a GPU.
          type: str
        homogeneous:
          description:
            - Whether all GPUs are of one model and memory size; null without a GPU.
            - Two percent more or less is no other size, since the driver keeps more of a board that drives a display.
          type: bool
        devices:
          description: The GPUs, lost ones included.
          type: list
          elements: dict
          contains:
            index:
              description: Number of the GPU as nvidia-smi counts.
              type: int
            state:
              description:
                - V(ok), V(lost) (fallen off the bus, or the driver fails to read most of it) or V(incomplete) (the
                  report on it breaks off).
                - Only GPUs that are V(ok) count.
              type: str
            pci_bus_id:
              description: Address as in C(/sys/bus/pci/devices).
              type: str
            minor:
              description: Minor number of the device node C(/dev/nvidia*).
              type: int
            uuid:
              description: Identifier of the GPU.
              type: str
            serial:
              description: Serial number of the board.
              type: str
            model:
              description: Product name as the driver gives it.
              type: str
            slurm_type:
              description: Short lower-case name for Slurm (V(h100), V(l40s), V(rtx4090)).
              type: str
            brand:
              description: Product brand.
              type: str
            architecture:
              description: Architecture of the chip.
              type: str
            compute_mode:
              description: 'V(Default), V(Exclusive_Process) or V(Prohibited).'
              type: str
            persistence_mode:
              description: 'V(Enabled) or V(Disabled).'
              type: str
            performance_state:
              description: From V(P0) (highest) to V(P15).
              type: str
            display_active:
              description: Whether a display is driven, V(Enabled) or V(Disabled).
              type: str
            driver_model:
              description: On Windows only.
              type: str
            virtualization_mode:
              description: 'V(None), V(Pass-Through), V(VGPU) or V(Host VGPU).'
              type: str
            vgpu_license_status:
              description: Whether a virtual GPU is licensed, in the driver's words; null where it needs no licence.
              type: str
            vbios_version:
              description: Version of the video BIOS.
              type: str
            gsp_firmware_version:
              description: Version of the GPU system processor's firmware.
              type: str
            inforom_image_version:
              description: Version of the infoROM image.
              type: str
            inforom_ecc_version:
              description: Version of the infoROM's ECC object.
              type: str
            board_part_number:
              description: Part number of the board.
              type: str
            gpu_part_number:
              description: Part number of the GPU.
              type: str
            memory_total_mib:
              description: Memory in MiB.
              type: int
            memory_used_mib:
              description: Memory in use in MiB.
              type: int
            memory_free_mib:
              description: Free memory in MiB.
              type: int
            memory_reserved_mib:
              description: Memory that the driver keeps for itself in MiB.
              type: int
            bar1_total_mib:
              description: Size of the BAR1 window in MiB.
              type: int
            bar1_used_mib:
              description: Used part of the BAR1 window in MiB.
              type: int
            bar1_free_mib:
              description: Free part of the BAR1 window in MiB.
              type: int
            pci_device_id:
              description: PCI device and vendor in hexadecimal.
              type: str
            pci_sub_system_id:
              description: PCI subsystem device and vendor in hexadecimal.
              type: str
            pci_link_generation_current:
              description: PCIe generation at present; it falls while the GPU is idle.
              type: int
            pci_link_generation_max:
              description: Highest PCIe generation of this GPU in this machine.
              type: int
            pci_link_generation_device_max:
              description: Highest PCIe generation of the GPU.
              type: int
            pci_link_generation_host_max:
              description: Highest PCIe generation of the slot.
              type: int
            pci_link_width_current:
              description: PCIe lanes at present.
              type: int
            pci_link_width_max:
              description: Most PCIe lanes of the GPU, as the driver gives them.
              type: int
            pci_link_width_host_max:
              description: Most PCIe lanes of the slot, as the kernel gives them; null in a virtual machine.
              type: int
            pci_replay_count:
              description: PCIe packets sent again since the driver was loaded.
              type: int
            pci_numa_node:
              description: NUMA node of the slot.
              type: int
            pci_cpu_affinity:
              description: CPUs near the slot, as a list of ranges.
              type: str
            power_draw_watts:
              description: Power draw in watts, averaged over a second on boards that do so.
              type: float
            power_draw_instant_watts:
              description: Power draw at this moment in watts.
              type: float
            power_limit_watts:
              description: Power limit that was set, in watts.
              type: float
            power_limit_enforced_watts:
              description: Power limit in force, in watts.
              type: float
            power_limit_default_watts:
              description: Power limit of the board as delivered, in watts.
              type: float
            power_limit_min_watts:
              description: Lowest power limit that can be set, in watts.
              type: float
            power_limit_max_watts:
              description: Highest power limit that can be set, in watts.
              type: float
            temperature_gpu_celsius:
              description: Temperature of the chip in degrees Celsius.
              type: int
            temperature_memory_celsius:
              description: Temperature of the memory in degrees Celsius.
              type: int
            temperature_slowdown_celsius:
              description: Temperature from which the GPU slows down.
              type: int
            temperature_shutdown_celsius:
              description: Temperature from which the GPU shuts down.
              type: int
            temperature_target_celsius:
              description: Temperature that the GPU aims at.
              type: int
            temperature_operating_max_celsius:
              description: Highest temperature at which the chip works as specified.
              type: int
            temperature_memory_operating_max_celsius:
              description: Highest temperature at which the memory works as specified.
              type: int
            temperature_margin_celsius:
              description: Degrees left until the GPU slows down (T.Limit), on boards that give no absolute thresholds.
              type: int
            temperature_slowdown_margin_celsius:
              description: Margin at which the GPU slows down.
              type: int
            temperature_shutdown_margin_celsius:
              description: Margin at which the GPU shuts down.
              type: int
            fan_speed_percent:
              description: Fan speed in percent.
              type: int
            clock_graphics_current_mhz:
              description: Graphics clock in MHz.
              type: int
            clock_graphics_max_mhz:
              description: Highest graphics clock in MHz.
              type: int
            clock_graphics_application_mhz:
              description: Graphics clock set for applications in MHz.
              type: int
            clock_sm_current_mhz:
              description: Clock of the streaming multiprocessors in MHz.
              type: int
            clock_sm_max_mhz:
              description: Highest clock of the streaming multiprocessors in MHz.
              type: int
            clock_memory_current_mhz:
              description: Memory clock in MHz.
              type: int
            clock_memory_max_mhz:
              description: Highest memory clock in MHz.
              type: int
            clock_memory_application_mhz:
              description: Memory clock set for applications in MHz.
              type: int
            clock_video_current_mhz:
              description: Video clock in MHz.
              type: int
            clock_video_max_mhz:
              description: Highest video clock in MHz.
              type: int
            throttle_reasons_active:
              description:
                - Why the clocks are below their maximum.
                - For instance V(gpu_idle), V(sw_power_cap), V(hw_thermal_slowdown).
              type: list
              elements: str
            utilisation_gpu_percent:
              description: Share of the last second in which the GPU worked.
              type: int
            utilisation_memory_percent:
              description: Share of the last second in which the memory was read or written.
              type: int
            utilisation_encoder_percent:
              description: Utilisation of the video encoder.
              type: int
            utilisation_decoder_percent:
              description: Utilisation of the video decoder.
              type: int
            ecc_mode_current:
              description: 'V(Enabled) or V(Disabled).'
              type: str
            ecc_mode_pending:
              description: ECC mode after the next reset.
              type: str
            ecc_volatile_corrected:
              description: Errors corrected since the driver was loaded.
              type: int
            ecc_volatile_uncorrected:
              description: Errors not corrected since the driver was loaded.
              type: int
            ecc_aggregate_corrected:
              description: Errors corrected in the board's life.
              type: int
            ecc_aggregate_uncorrected:
              description: Errors not corrected in the board's life.
              type: int
            ecc_volatile_sram_uncorrected:
              description: Errors in SRAM not corrected since the driver was loaded.
              type: int
            ecc_volatile_dram_uncorrected:
              description: Errors in DRAM not corrected since the driver was loaded.
              type: int
            ecc_aggregate_sram_uncorrected:
              description: Errors in SRAM not corrected in the board's life.
              type: int
            ecc_aggregate_dram_uncorrected:
              description: Errors in DRAM not corrected in the board's life.
              type: int
            ecc_sram_threshold_exceeded:
              description: Whether SRAM had more uncorrected errors than NVIDIA allows.
              type: bool
            ecc_channel_repair_pending:
              description: Whether a memory channel waits for a reset to be repaired.
              type: bool
            ecc_tpc_repair_pending:
              description: Whether a TPC waits for a reset to be repaired.
              type: bool
            ecc_unrepairable_memory:
              description: Whether the memory is beyond repair.
              type: bool
            retired_pages_single_bit_count:
              description: Memory pages retired after corrected errors.
              type: int
            retired_pages_double_bit_count:
              description: Memory pages retired after uncorrected errors.
              type: int
            retired_pages_pending:
              description: Whether a page waits for a reset to be retired.
              type: bool
            remapped_rows_correctable:
              description: Memory rows remapped after corrected errors.
              type: int
            remapped_rows_uncorrectable:
              description: Memory rows remapped after uncorrected errors.
              type: int
            remapped_rows_pending:
              description: Whether a row waits for a reset to be remapped.
              type: bool
            remapped_rows_failure:
              description: Whether a row could not be remapped.
              type: bool
            remapped_rows_histogram_max_banks:
              description: Memory banks with all spare rows left.
              type: int
            remapped_rows_histogram_high_banks:
              description: Memory banks with many spare rows left.
              type: int
            remapped_rows_histogram_partial_banks:
              description: Memory banks with some spare rows left.
              type: int
            remapped_rows_histogram_low_banks:
              description: Memory banks with few spare rows left.
              type: int
            remapped_rows_histogram_none_banks:
              description: Memory banks with no spare row left.
              type: int
            recovery_action:
              description: What the driver asks for, V(None), V(Reset), V(Reboot), V(Drain P2P) or V(Drain and Reset).
              type: str
            reset_required:
              description: Whether the GPU must be reset.
              type: bool
            reset_drain_recommended:
              description: Whether a reset is recommended once the jobs have ended.
              type: bool
            mig_mode_current:
              description: 'V(Enabled) or V(Disabled).'
              type: str
            mig_mode_pending:
              description: MIG mode after the next reset.
              type: str
            mig_instances:
              description: MIG compute instances.
              type: list
              elements: dict
              contains:
                index: {type: int, description: 'Number of the MIG device.'}
                gpu_instance_id: {type: int, description: 'GPU instance of MIG.'}
                compute_instance_id: {type: int, description: 'Compute instance of MIG.'}
                multiprocessor_count: {type: int, description: 'Multiprocessors of the instance.'}
                memory_total_mib: {type: int, description: 'Memory in MiB.'}
                memory_used_mib: {type: int, description: 'Memory in use in MiB.'}
                memory_free_mib: {type: int, description: 'Free memory in MiB.'}
                memory_reserved_mib: {type: int, description: 'Memory that the driver keeps in MiB.'}
                bar1_total_mib: {type: int, description: 'Size of the BAR1 window in MiB.'}
                bar1_used_mib: {type: int, description: 'Used part of the BAR1 window in MiB.'}
                ecc_volatile_sram_uncorrected:
                  type: int
                  description: Errors in SRAM not corrected since the driver was loaded.
                uuid: {type: str, description: 'Identifier of the MIG device.'}
                profile: {type: str, description: 'Profile, for instance V(1g.10gb).'}
            nvlink_links_total:
              description: NVLinks that the driver lists.
              type: int
            nvlink_links_active:
              description: NVLinks that are up.
              type: int
            nvlink_links:
              description: The NVLinks.
              type: list
              elements: dict
              contains:
                link: {type: int, description: 'Number of the link.'}
                active: {type: bool, description: 'Whether the link is up.'}
                speed_gigabytes_per_second: {type: float, description: 'Speed in GB/s in one direction.'}
                errors_replay: {type: int, description: 'Packets sent again; up to NVLink 4.'}
                errors_recovery: {type: int, description: 'Recoveries of the link.'}
                errors_crc: {type: int, description: 'CRC errors; up to NVLink 4.'}
                errors_recovery_failed: {type: int, description: 'Recoveries that failed; from NVLink 5 on.'}
                errors_effective: {type: int, description: 'Errors left after correction; from NVLink 5 on.'}
            fabric_state:
              description: 'V(Completed), V(In Progress), V(Not Started).'
              type: str
            fabric_status:
              description: 'V(Success) or the error.'
              type: str
            fabric_clique_id:
              description: Clique within the NVLink domain.
              type: int
            fabric_cluster_uuid:
              description: Identifier of the NVLink domain.
              type: str
            fabric_health_summary:
              description: 'V(Healthy), V(Unhealthy) or V(Limited Capacity).'
              type: str
            fabric_health_faults:
              description:
                - What is wrong with the way through the NVLink switches.
                - For instance V(route_unhealthy) or V(bandwidth Degraded).
              type: list
              elements: str
            processes:
              description: Processes that hold the GPU.
              type: list
              elements: dict
              contains:
                pid: {type: int, description: 'Process ID.'}
                type: {type: str, description: 'V(C) (compute), V(G) (graphics), V(C+G) or V(M+C) (MPS).'}
                name: {type: str, description: 'Name of the program.'}
                memory_used_mib: {type: int, description: 'Memory in use in MiB.'}
                gpu_instance_id: {type: int, description: 'GPU instance of MIG.'}
                compute_instance_id: {type: int, description: 'Compute instance of MIG.'}
        topology:
          description: How near GPUs and NICs are to each other, from C(nvidia-smi topo -m).
          type: dict
          contains:
            gpus:
              description:
                - For each GPU its C(gpu) (index), C(cpu_affinity), C(numa_affinity), C(gpus) and C(nics) (distance by
                  index and by NIC name), C(nic_nearest) and C(nic_nearest_distance).
                - Distances are V(NV#) (joined by that many NVLinks), V(PIX), V(PXB), V(PHB), V(NODE) and V(SYS),
                  nearest first.
              type: list
              elements: dict
            nics:
              description: Names of the NICs as under C(/sys/class/infiniband).
              type: list
              elements: str
        problems:
          description: What a person must know, the worst not necessarily first.
          type: list
          elements: dict
          contains:
            severity:
              description: V(critical) (no job belongs on it), V(warning) or V(info).
              type: str
            code:
              description:
                - A stable name.
                - Of the machine, V(no_gpu), V(nvidia_smi_missing), V(nvidia_smi_hangs), V(nvidia_smi_failed),
                  V(nvidia_smi_output_unreadable), V(nvidia_smi_output_truncated), V(driver_not_loaded),
                  V(driver_library_missing), V(permission_denied), V(gpu_access_blocked), V(driver_library_mismatch),
                  V(driver_reload_pending), V(nouveau_loaded), V(fabric_manager_mismatch), V(models_mixed),
                  V(gpu_missing).
                - Of a GPU, V(gpu_lost), V(gpu_power_missing), V(gpu_report_incomplete), V(inforom_corrupted),
                  V(gpu_recovery_needed), V(gpu_reset_required), V(gpu_reset_recommended), V(values_unreadable),
                  V(ecc_uncorrected), V(ecc_sram_threshold_exceeded), V(row_remap_failure), V(row_remap_pending),
                  V(page_retirement_pending), V(page_retirement_full), V(channel_repair_pending),
                  V(tpc_repair_pending), V(memory_unrepairable), V(pci_link_narrow), V(pci_link_slow), V(nvlink_down),
                  V(fabric_not_completed), V(fabric_failed), V(fabric_unhealthy), V(thermal_slowdown),
                  V(power_brake_slowdown), V(hardware_slowdown), V(ecc_mode_pending), V(mig_mode_pending),
                  V(vgpu_unlicensed), V(persistence_off), V(xid).
                - V(pci_link_narrow) and V(pci_link_slow) are V(info) where the slot has no more, or where a virtual
                  machine may have no more.
                - V(xid) is about serious errors in the kernel log since the driver was loaded. It is a warning, for the
                  log keeps what a reset has mended. M(trainyard.cluster.xid_facts) says more.
              type: str
            gpu:
              description: Index of the GPU; null where the machine as a whole is meant or the index isn't known.
              type: int
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
    gpu:
      driver:
        version: "550.163.01"
        cuda_version: "12.4"
        kernel_module_loaded: true
        kernel_module_loaded_version: "550.163.01"
        kernel_module_installed_version: "550.163.01"
        kernel_module_flavour: open
        library_version: "550.163.01"
        mismatch: false
        nouveau_loaded: false
        persistence_daemon_running: true
        fabric_manager_installed: true
        fabric_manager_version: "550.163.01"
        fabric_manager_state: active
        fabric_manager_matches_driver: true
      count: 8
      models: {NVIDIA H100 80GB HBM3: 8}
      slurm_gres: "gpu:h100:8"
      homogeneous: true
      devices:
        - index: 0
          state: ok
          pci_bus_id: "0000:18:00.0"
          model: NVIDIA H100 80GB HBM3
          slurm_type: h100
          memory_total_mib: 81559
          power_limit_watts: 700.0
          temperature_gpu_celsius: 31
          ecc_mode_current: Enabled
          mig_mode_current: Disabled
      topology: {gpus: [], nics: []}
      problems:
        - severity: warning
          code: row_remap_pending
          gpu: 3
          message: A memory row waits for a reset to be remapped.
          evidence: row_remap_pending is Yes in nvidia-smi -q
          action: Drain the node, let its jobs end and reset the GPU (nvidia-smi --gpu-reset -i 3).
differences:
  description: Every difference from O(expected), a sentence each.
  returned: on failure
  type: list
  elements: str
  sample: ["count: 8 GPUs are declared, 7 answer; correct the declared count."]
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_facts import (
    Expected,
    collect,
    differences,
    reasons_for_missing,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "timeout": {"type": "int", "default": 60},
            "root": {"type": "path", "default": "/"},
            "required": {"type": "bool", "default": False},
            "expected": {
                "type": "dict",
                "options": {
                    "count": {"type": "int"},
                    "model": {"type": "str"},
                    "slurm_type": {"type": "str"},
                    "memory_mib": {"type": "int"},
                    "driver_version": {"type": "str"},
                },
            },
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout: {module.params['timeout']} is no number of seconds to wait; give 1 or more")
    facts = collect(run_command, module.params["root"], module.params["nvidia_smi"], module.params["timeout"])
    expected = Expected(**(module.params["expected"] or {}))
    found = differences(facts, expected)
    sentences = list(found)
    if facts.count == 0 and module.params["required"]:
        sentences.append("A GPU is required, but none answers.")
    if facts.count < (expected.count or 0) or (sentences and facts.count == 0):
        sentences += reasons_for_missing(facts)
    if sentences:
        # The facts stay out: Ansible would print their hundreds of lines around the sentence.
        module.fail_json(msg=" ".join(sentences), differences=found)
    module.exit_json(ansible_facts={"gpu": asdict(facts)})


if __name__ == "__main__":
    main()
