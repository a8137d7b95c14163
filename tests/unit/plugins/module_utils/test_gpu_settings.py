# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings import (
    Machine,
    Request,
    Result,
    SettingsError,
    apply,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Name: ID, instances at most, memory slices to begin at, size in memory slices, as an H100 with 80 GB has them.
H100_PROFILES: dict[str, tuple[int, int, list[int], int]] = {
    "1g.10gb": (19, 7, [0, 1, 2, 3, 4, 5, 6], 1),
    "1g.10gb+me": (20, 1, [0, 1, 2, 3, 4, 5, 6], 1),
    "1g.20gb": (15, 4, [0, 2, 4, 6], 2),
    "2g.20gb": (14, 3, [0, 2, 4], 2),
    "3g.40gb": (9, 2, [0, 4], 4),
    "4g.40gb": (5, 1, [0], 4),
    "7g.80gb": (0, 1, [0], 8),
}


@dataclass
class FakeGpu:
    """A card as the driver keeps it. None: the card has no such thing."""

    number: int
    model: str = "NVIDIA H100 80GB HBM3"
    architecture: str = "Hopper"
    persistence: bool = False
    power: tuple[int, int, int] | None = (200, 700, 700)
    limit: float = 700
    compute_mode: str = "Default"
    ecc: list[bool] | None = field(default_factory=lambda: [True, True])
    mig: list[bool] | None = field(default_factory=lambda: [False, False])
    profiles: dict[str, tuple[int, int, list[int], int]] = field(default_factory=lambda: dict(H100_PROFILES))
    # GPU instance: its profile and the names of its compute instances
    instances: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    graphics: str = ""
    memory: str = ""
    processes: list[tuple[int, str]] = field(default_factory=list)
    virtualization: str = "None"

    @property
    def uuid(self) -> str:
        return f"GPU-{self.number}-0000"

    @property
    def address(self) -> str:
        return f"00000000:{16 + self.number:X}:00.0"


class FakeSmi:
    """nvidia-smi and the GPUs behind it. calls: what was asked of it that changes something."""

    def __init__(self, gpus: list[FakeGpu], profiles_without_mig: bool = True) -> None:
        self.gpus = gpus
        self.profiles_without_mig = profiles_without_mig
        self.calls: list[str] = []
        self.hanging = ""
        self.refused = ""
        self.ignored = ""
        self.messages = ""

    def reset(self) -> None:
        for gpu in self.gpus:
            for mode in (gpu.ecc, gpu.mig):
                if mode:
                    mode[0] = mode[1]

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        words = list(argv[1:])
        line = " ".join(words)
        if self.hanging and self.hanging in line:
            return CommandResult(None, "", "", timed_out=True)
        if words == ["-q", "-x"]:
            return CommandResult(0, self._report(), self.messages)
        if words[0] == "mig" and words[1].startswith("-l"):
            return self._list(words[1])
        self.calls.append(line)
        if self.refused and self.refused in line:
            return CommandResult(4, "The driver says: Insufficient Power\n", "")
        if self.ignored and self.ignored in line:
            return CommandResult(0, "Treating as warning and moving on.\nAll done.\n", "")
        if words[0] == "mig":
            return self._divide(words[1:])
        assert words[0] == "-i"
        for name in words[1].split(","):
            gpu = next(gpu for gpu in self.gpus if gpu.uuid == name)
            answer = self._set(gpu, words[2], words[3] if len(words) > 3 else "")
            if answer:
                return CommandResult(2, answer, "")
        return CommandResult(0, "All done.\n", "")

    def _set(self, gpu: FakeGpu, flag: str, value: str) -> str:
        if flag == "-pm":
            gpu.persistence = value == "1"
        elif flag == "-pl":
            assert gpu.power
            if not gpu.power[0] <= float(value) <= gpu.power[1]:
                return "Provided power limit is not a valid power limit"
            gpu.limit = float(value)
        elif flag == "-c":
            gpu.compute_mode = {"DEFAULT": "Default", "PROHIBITED": "Prohibited"}.get(value, "Exclusive_Process")
        elif flag == "-e":
            assert gpu.ecc
            gpu.ecc[1] = value == "1"
        elif flag == "-mig":
            assert gpu.mig
            assert not gpu.instances or value == "1", "instances would be lost"
            gpu.mig[1] = value == "1"
            if gpu.architecture != "Ampere":
                gpu.mig[0] = gpu.mig[1]
        elif flag in ("-lgc", "-rgc"):
            gpu.graphics = value
        elif flag in ("-lmc", "-rmc"):
            if gpu.architecture == "Turing":
                return "Resetting memory clocks is not supported for GPU"
            gpu.memory = value
        else:
            raise AssertionError(flag)
        return ""

    def _divide(self, words: list[str]) -> CommandResult:
        gpu = next(gpu for gpu in self.gpus if gpu.uuid == words[1])
        assert gpu.mig
        assert gpu.mig[0], "not in MIG mode"
        if words[2] == "-dci":
            gpu.instances = {number: (name, []) for number, (name, _compute) in gpu.instances.items()}
        elif words[2] == "-dgi":
            assert not any(compute for _name, compute in gpu.instances.values())
            gpu.instances = {}
        else:
            assert (words[2], words[4:]) == ("-cgi", ["-C"])
            for number, name in enumerate(words[3].split(","), start=len(gpu.instances) + 1):
                gpu.instances[number] = (name, [name])
        return CommandResult(0, "Successfully\n", "")

    def _list(self, option: str) -> CommandResult:
        inside = [gpu for gpu in self.gpus if gpu.mig and gpu.mig[0]]
        if option in ("-lgip", "-lgipp") and self.profiles_without_mig:
            inside = [gpu for gpu in self.gpus if gpu.mig]
        if not inside:
            return CommandResult(6, "No MIG-enabled devices found.\n", "")
        rows = []
        for gpu in inside:
            for name, (number, most, starts, size) in gpu.profiles.items():
                if option == "-lgip":
                    rows.append(
                        f"|   {gpu.number}  MIG {name:14} {number:3}     {most}/{most}        9.75       No     16  |"
                    )
                    rows.append("|                                                             1     1     0   |")
                elif option == "-lgipp":
                    places = f"Placement{'s' * (len(starts) > 1)}: {{{','.join(map(str, starts))}}}:{size}"
                    rows.append(f"GPU  {gpu.number} Profile ID {number:2} {places}")
            for number, (name, compute) in gpu.instances.items():
                if option == "-lgi":
                    rows.append(f"|   {gpu.number}  MIG {name:14} {19:3}       {number:2}          0:1     |")
                elif option == "-lci":
                    rows += [
                        f"|   {gpu.number}     {number:2}       MIG {each:14} 0         {place}          0:1     |"
                        for place, each in enumerate(compute)
                    ]
        if not rows:
            return CommandResult(6, "No GPU instances found: Not Found\n", "")
        return CommandResult(0, "\n".join(["+---+", "| GPU instances: |", "|====|", *rows, "+---+"]) + "\n", "")

    def _report(self) -> str:
        return f"<nvidia_smi_log><attached_gpus>2</attached_gpus>{''.join(map(self._gpu, self.gpus))}</nvidia_smi_log>"

    def _gpu(self, gpu: FakeGpu) -> str:
        ecc = [_word(on) for on in gpu.ecc] if gpu.ecc else ["N/A", "N/A"]
        mig = [_word(on) for on in gpu.mig] if gpu.mig else ["N/A", "N/A"]
        low, high, default = [f"{watts}.00 W" for watts in gpu.power] if gpu.power else ["N/A"] * 3
        limit = f"{gpu.limit:.2f} W" if gpu.power else "N/A"
        users = "".join(
            f"<process_info><pid>{pid}</pid><type>C</type><process_name>{name}</process_name></process_info>"
            for pid, name in gpu.processes
        )
        return f"""<gpu id="{gpu.address}"><product_name>{gpu.model}</product_name><uuid>{gpu.uuid}</uuid>
            <product_architecture>{gpu.architecture}</product_architecture>
            <persistence_mode>{_word(gpu.persistence)}</persistence_mode><display_active>Disabled</display_active>
            <gpu_virtualization_mode><virtualization_mode>{gpu.virtualization}</virtualization_mode></gpu_virtualization_mode>
            <mig_mode><current_mig>{mig[0]}</current_mig><pending_mig>{mig[1]}</pending_mig></mig_mode>
            <fb_memory_usage><total>81559 MiB</total></fb_memory_usage><compute_mode>{gpu.compute_mode}</compute_mode>
            <ecc_mode><current_ecc>{ecc[0]}</current_ecc><pending_ecc>{ecc[1]}</pending_ecc></ecc_mode>
            <gpu_power_readings><current_power_limit>{limit}</current_power_limit>
            <requested_power_limit>{limit}</requested_power_limit><default_power_limit>{default}</default_power_limit>
            <min_power_limit>{low}</min_power_limit><max_power_limit>{high}</max_power_limit></gpu_power_readings>
            <max_clocks><graphics_clock>1980 MHz</graphics_clock><mem_clock>2619 MHz</mem_clock></max_clocks>
            <supported_clocks><supported_mem_clock><value>2619 MHz</value>
            <supported_graphics_clock>1980 MHz</supported_graphics_clock>
            <supported_graphics_clock>345 MHz</supported_graphics_clock></supported_mem_clock>
            <supported_mem_clock><value>1593 MHz</value></supported_mem_clock></supported_clocks>
            <processes>{users}</processes></gpu>"""


def _word(on: bool) -> str:
    return "Enabled" if on else "Disabled"


class Bench:
    """Two GPUs, or those given, and a folder for the record."""

    def __init__(self, root: Path, gpus: list[FakeGpu] | None = None, **smi: Any) -> None:
        self.smi = FakeSmi([FakeGpu(0), FakeGpu(1)] if gpus is None else gpus, **smi)
        self.root = root
        (root / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)

    def load_driver(self) -> None:
        """Load the driver again."""
        folder = self.root / "sys/module/nvidia"
        folder.rename(folder.with_name("old"))
        folder.mkdir()

    def run(self, check: bool = False, is_root: bool = True, **wanted: Any) -> Result:
        return apply(Machine(self.smi, "nvidia-smi", 60, str(self.root), is_root), Request(**wanted), check)

    def refusal(self, **wanted: Any) -> str:
        """Return what is said of a request that must change nothing."""
        with pytest.raises(SettingsError) as raised:
            self.run(**wanted)
        assert not raised.value.changed
        return str(raised.value)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


BOTH = "-i GPU-0-0000,GPU-1-0000"
CALLS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"persistence_mode": True}, [f"{BOTH} -pm 1"]),
    ({"persistence_mode": False}, []),
    ({"power_limit": "400"}, [f"{BOTH} -pl 400"]),
    ({"power_limit": "450.5"}, [f"{BOTH} -pl 450.5"]),
    ({"power_limit": "default"}, []),
    ({"power_limit": "700", "gpus": ["1"]}, []),
    ({"compute_mode": "exclusive_process", "gpus": ["1"]}, ["-i GPU-1-0000 -c EXCLUSIVE_PROCESS"]),
    ({"compute_mode": "default"}, []),
    ({"ecc": False, "gpus": ["GPU-0-0000"]}, ["-i GPU-0-0000 -e 0"]),
    ({"ecc": True}, []),
    ({"graphics_clocks": ["1500"], "gpus": ["0000:11:00.0"]}, ["-i GPU-1-0000 -lgc 1500,1500"]),
    ({"graphics_clocks": ["1000", "1500"], "gpus": ["00000000:10:00.0", "0"]}, ["-i GPU-0-0000 -lgc 1000,1500"]),
    ({"memory_clocks": ["1593"], "gpus": ["0"]}, ["-i GPU-0-0000 -lmc 1593,1593"]),
    ({"graphics_clocks": ["default"], "gpus": ["0"]}, ["-i GPU-0-0000 -rgc"]),
    ({"mig": True}, [f"{BOTH} -mig 1"]),
    ({"mig": False}, []),
    (
        {"mig": True, "mig_layout": ["3g.40gb", "MIG 4g.40gb"], "gpus": ["0"]},
        ["-i GPU-0-0000 -mig 1", "mig -i GPU-0-0000 -cgi 4g.40gb,3g.40gb -C"],
    ),
    (
        {"persistence_mode": True, "power_limit": "300", "compute_mode": "prohibited", "ecc": False},
        [f"{BOTH} -pm 1", f"{BOTH} -e 0", f"{BOTH} -c PROHIBITED", f"{BOTH} -pl 300"],
    ),
    ({"defaults": True, "gpus": ["0"]}, ["-i GPU-0-0000 -rgc", "-i GPU-0-0000 -rmc"]),
]


@pytest.mark.parametrize(("wanted", "calls"), CALLS)
def test_sets_what_differs_and_nothing_twice(bench: Bench, wanted: dict[str, Any], calls: list[str]) -> None:
    predicted = bench.run(check=True, **wanted)
    assert bench.smi.calls == []
    done = bench.run(**wanted)
    assert bench.smi.calls == calls
    assert done.changed == bool(calls)
    assert predicted == done
    again = bench.run(**wanted)
    assert bench.smi.calls == calls
    assert (again.changed, again.before, again.after, again.gpus) == (False, "", "", done.gpus)


FAULTS: list[tuple[dict[str, Any], str]] = [
    (
        {"power_limit": "900"},
        "power_limit: 900 W is out of range for GPUs 0 and 1 (NVIDIA H100 80GB HBM3); write 200 to 700.",
    ),
    (
        {"power_limit": "199.5", "gpus": ["1"]},
        "power_limit: 199.5 W is out of range for GPU 1 (NVIDIA H100 80GB HBM3); write 200 to 700.",
    ),
    ({"power_limit": "much"}, "power_limit: 'much' is no number of watts; write one, as 400, or default."),
    ({"gpus": ["0", "7", "GPU-x"]}, "gpus: 7, GPU-x are no GPUs of this machine (it has 0, 1); write an index,"),
    ({"gpus": []}, "gpus: the list is empty; name GPUs"),
    (
        {"graphics_clocks": ["1000", "2000"], "gpus": ["0"]},
        "graphics_clocks: 1000 to 2000 MHz is out of range for GPU 0 (NVIDIA H100 80GB HBM3); write 345 to 1980 MHz.",
    ),
    ({"graphics_clocks": ["300"]}, "graphics_clocks: 300 MHz is out of range"),
    ({"memory_clocks": ["2000"], "gpus": ["0"]}, "its memory runs at 1593, 2619 MHz."),
    (
        {"memory_clocks": ["2000", "3000"], "gpus": ["0"]},
        "memory_clocks: 2000 to 3000 MHz is no clock of GPU 0 (NVIDIA",
    ),
    ({"graphics_clocks": ["1500", "1000"]}, "graphics_clocks: '1500,1000' is no clock; write MHz as one number or"),
    ({"graphics_clocks": ["fast"]}, "graphics_clocks: 'fast' is no clock"),
    ({"memory_clocks": ["1", "2", "3"]}, "memory_clocks: '1,2,3' is no clock"),
    ({"graphics_clocks": []}, "graphics_clocks: '' is no clock"),
    ({"mig_layout": ["half"]}, "mig_layout: 'half' is no name of a GPU instance profile; write names such as 3g.40gb"),
    ({"mig": False, "mig_layout": ["3g.40gb"]}, "mig_layout: a GPU out of MIG mode has no instances; write mig: true"),
    ({"mig_layout": ["3g.40gb"]}, "which is not in MIG mode; write mig: true too."),
    (
        {"mig": True, "mig_layout": ["3g.48gb"]},
        "3g.48gb is not among its profiles; it offers 1g.10gb, 1g.10gb+me, 1g.2",
    ),
    ({"mig": True, "mig_layout": ["4g.40gb"] * 2}, "it takes 1 of 4g.40gb at most, 2 are wanted."),
    (
        {"mig": True, "mig_layout": ["4g.40gb", "2g.20gb", "2g.20gb"]},
        "it has 7 compute slices, and the layout needs 8.",
    ),
    ({"mig": True, "mig_layout": ["3g.40gb", "3g.40gb", "1g.10gb"]}, "its memory slices don't hold them all at once;"),
    (
        {"mig": True, "compute_mode": "prohibited"},
        "compute_mode: prohibited is not for GPUs 0 and 1 (NVIDIA H100 80GB ",
    ),
]


@pytest.mark.parametrize(("wanted", "words"), FAULTS)
def test_refuses_before_anything_is_touched(bench: Bench, wanted: dict[str, Any], words: str) -> None:
    said = bench.refusal(persistence_mode=True, **wanted)
    assert words in said
    assert said.endswith(".")
    assert bench.smi.calls == []


@pytest.mark.parametrize(
    ("card", "wanted", "words"),
    [
        (
            {"power": None},
            {"power_limit": "400"},
            "power_limit: 400 W is not for GPU 1 (Other), whose limit can't be set",
        ),
        (
            {"power": None},
            {"power_limit": "default"},
            "power_limit: default is not known of GPU 1 (Other); write watts",
        ),
        ({"power": (100, 300, 250), "limit": 250}, {"power_limit": "400"}, "400 W is out of range for GPU 1 (Other);"),
        ({"ecc": None}, {"ecc": True}, "ecc: true is not for GPU 1 (Other), which has no ECC to switch; leave it out"),
        ({"mig": None}, {"mig": True}, "mig: true is not for GPU 1 (Other), which has no MIG mode; leave it out"),
        ({"architecture": "Pascal"}, {"graphics_clocks": ["1500"]}, "1500 MHz is not for GPU 1 (Other), whose clocks "),
        ({"architecture": "Turing"}, {"memory_clocks": ["2619"]}, "2619 MHz is not for GPU 1 (Other), whose clocks "),
    ],
)
def test_one_card_that_cannot_keeps_all_as_they_are(
    tmp_path: Path, card: dict[str, Any], wanted: dict[str, Any], words: str
) -> None:
    bench = Bench(tmp_path, [FakeGpu(0), FakeGpu(1, model="Other", **card)])
    assert words in bench.refusal(**wanted)
    assert bench.smi.calls == []


def test_says_all_faults_at_once(bench: Bench) -> None:
    said = bench.refusal(power_limit="900", graphics_clocks=["5000"], mig=True, compute_mode="prohibited")
    assert [said.count(word) for word in ("power_limit: ", "graphics_clocks: ", "compute_mode: ")] == [1, 1, 1]


def test_off_is_what_a_card_without_the_mode_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, ecc=None, mig=None, power=None)])
    assert not bench.run(ecc=False, mig=False, mig_layout=[]).changed
    assert bench.run(defaults=True).changed
    assert bench.smi.calls == ["-i GPU-0-0000 -rgc", "-i GPU-0-0000 -rmc"]


def test_defaults_give_everything_back_but_what_is_named(bench: Bench) -> None:
    bench.run(persistence_mode=True, power_limit="400", graphics_clocks=["1500"], memory_clocks=["2619"], ecc=False)
    bench.run(gpus=["0"], compute_mode="prohibited")
    bench.run(gpus=["1"], mig=True, mig_layout=["7g.80gb"])
    result = bench.run(defaults=True, power_limit="600")
    for gpu in bench.smi.gpus:
        assert (gpu.limit, gpu.compute_mode, gpu.graphics, gpu.memory) == (600, "Default", "", "")
        assert (gpu.mig, gpu.instances, gpu.persistence, gpu.ecc) == ([False, False], {}, True, [True, False])
    assert [gpu.graphics_clocks_mhz for gpu in result.gpus] == [[], []]
    assert not bench.run(defaults=True, power_limit="600").changed


def test_unlocking_what_cannot_be_locked_is_no_fault(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, architecture="Turing")])
    assert bench.run(memory_clocks=["default"]).changed
    assert not bench.run(memory_clocks=["default"]).changed


def test_what_changes_is_told_in_lines(bench: Bench) -> None:
    result = bench.run(
        power_limit="400", gpus=["1"], persistence_mode=True, graphics_clocks=["1000", "1500"], ecc=False
    )
    assert result.before.splitlines() == [
        "GPU 1 persistence_mode: off",
        "GPU 1 ecc: on",
        "GPU 1 power_limit: 700 W",
        "GPU 1 graphics_clocks: unknown",
    ]
    assert result.after.splitlines() == [
        "GPU 1 persistence_mode: on",
        "GPU 1 ecc: on (off is pending)",
        "GPU 1 power_limit: 400 W",
        "GPU 1 graphics_clocks: 1000 to 1500 MHz",
    ]
    assert [gpu.index for gpu in result.gpus] == [1]
    assert result.warnings == []


def test_warns_of_a_limit_that_the_driver_may_forget(bench: Bench) -> None:
    assert "Persistence mode is off on GPUs 0 and 1" in bench.run(power_limit="400").warnings[0]
    assert bench.run(power_limit="default").warnings == []


def test_ecc_waits_for_a_reset(bench: Bench) -> None:
    first = bench.run(ecc=False)
    assert [(each.gpu, each.setting, each.needs) for each in first.pending] == [
        (0, "ecc", "reset"),
        (1, "ecc", "reset"),
    ]
    assert "nvidia-smi --gpu-reset --id=0, or reboot the machine." in first.pending[0].how
    again = bench.run(ecc=False)
    assert (again.changed, again.pending) == (False, first.pending)
    assert bench.run().pending == first.pending
    bench.smi.reset()
    assert bench.run(ecc=False).pending == []
    assert bench.run(ecc=True).changed


def test_a_pending_change_is_taken_back(bench: Bench) -> None:
    bench.run(ecc=False)
    back = bench.run(ecc=True)
    assert (back.changed, back.pending, bench.smi.calls[-1]) == (True, [], f"{BOTH} -e 1")


def test_a_virtual_machine_has_to_be_rebooted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, virtualization="Pass-Through")])
    (pending,) = bench.run(ecc=False).pending
    assert (pending.needs, pending.how) == ("reboot", "Reboot the machine.")


def test_mig_of_ampere_waits_with_its_layout(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, architecture="Ampere")], profiles_without_mig=False)
    wanted: dict[str, Any] = {"mig": True, "mig_layout": ["4g.40gb", "3g.40gb"]}
    first = bench.run(**wanted)
    assert [each.setting for each in first.pending] == ["mig", "mig_layout"]
    assert first.pending[1].how.endswith("Run this task again then.")
    again = bench.run(**wanted)
    assert (again.changed, again.pending) == (False, first.pending)
    bench.smi.reset()
    last = bench.run(**wanted)
    assert (last.changed, last.pending, last.gpus[0].mig_layout) == (True, [], ["3g.40gb", "4g.40gb"])
    assert bench.smi.calls == ["-i GPU-0-0000 -mig 1", "mig -i GPU-0-0000 -cgi 4g.40gb,3g.40gb -C"]
    assert not bench.run(**wanted).changed


def test_a_card_that_offers_no_profile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, mig=[True, True], profiles={})])
    assert "it offers no profile at all" in bench.refusal(mig_layout=["3g.40gb"])


def test_profiles_that_show_in_mig_mode_only_are_checked_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0)], profiles_without_mig=False)
    assert "it has 81559 MiB of memory, and the layout needs 141 GB" in bench.refusal(mig=True, mig_layout=["7g.141gb"])
    assert "no card has more than 7 compute slices" in bench.refusal(mig=True, mig_layout=["1g.5gb"] * 8)
    assert bench.smi.calls == []
    with pytest.raises(SettingsError, match=r"3g.39gb is not among its profiles.*left so: GPU 0 .mig on") as raised:
        bench.run(mig=True, mig_layout=["3g.39gb"])
    assert raised.value.changed
    assert bench.smi.gpus[0].instances == {}


def test_instances_are_replaced_only_if_they_are_others(bench: Bench) -> None:
    wanted: dict[str, Any] = {"gpus": ["0"], "mig_layout": ["1g.10gb", "1g.10gb", "2g.20gb"]}
    gpu = bench.smi.gpus[0]
    bench.run(mig=True, **wanted)
    assert sorted(name for name, _compute in gpu.instances.values()) == ["1g.10gb", "1g.10gb", "2g.20gb"]
    bench.smi.calls.clear()
    assert not bench.run(**wanted).changed
    gpu.instances[1] = (gpu.instances[1][0], ["1c.2g.20gb", "1c.2g.20gb"])
    assert bench.run(**wanted).before == "GPU 0 mig_layout: 1g.10gb, 1g.10gb, 2g.20gb (1c.2g.20gb, 1c.2g.20gb)\n"
    assert bench.smi.calls == [
        "mig -i GPU-0-0000 -dci",
        "mig -i GPU-0-0000 -dgi",
        "mig -i GPU-0-0000 -cgi 2g.20gb,1g.10gb,1g.10gb -C",
    ]
    assert bench.run(mig_layout=[], gpus=["0"]).gpus[0].mig_layout == []
    bench.run(mig_layout=["7g.80gb"], gpus=["0"])
    gone = bench.run(mig=False)
    assert (gone.gpus[0].mig_current, gone.gpus[0].mig_layout, gpu.instances) == (False, None, {})


@pytest.mark.parametrize("wanted", [{"ecc": False}, {"mig": True}, {"mig": True, "mig_layout": ["7g.80gb"]}])
def test_waits_for_processes(bench: Bench, wanted: dict[str, Any]) -> None:
    bench.smi.gpus[1].processes = [(4242, "python3"), (4243, "vllm")]
    said = bench.refusal(power_limit="400", **wanted)
    assert (
        "waits until GPU 1 (NVIDIA H100 80GB HBM3) is free; now processes 4242 (python3), 4243 (vllm) hold it" in said
    )
    assert bench.smi.calls == []
    assert bench.run(power_limit="400").changed
    assert bench.run(gpus=["0"], **wanted).changed


def test_a_process_is_no_matter_once_the_change_is_pending(bench: Bench) -> None:
    bench.run(ecc=False)
    bench.smi.gpus[0].processes = [(4242, "python3")]
    assert not bench.run(ecc=False).changed
    assert "ecc: true waits until GPU 0" in bench.refusal(ecc=True)


@pytest.mark.parametrize("event", ["driver", "reset", "boot"])
def test_clocks_are_locked_again_when_the_driver_forgot_them(bench: Bench, event: str) -> None:
    wanted: dict[str, Any] = {"graphics_clocks": ["1500"], "memory_clocks": ["2619"], "gpus": ["0"]}
    bench.run(**wanted)
    assert not bench.run(**wanted).changed
    if event == "driver":
        bench.load_driver()
    elif event == "reset":
        bench.run(ecc=False)
        bench.smi.reset()
    else:
        (bench.root / "run/trainyard/gpu_settings.json").unlink()
    bench.smi.calls.clear()
    assert bench.run(check=True).gpus[0].graphics_clocks_mhz is None
    assert bench.run(**wanted).changed
    assert bench.smi.calls == ["-i GPU-0-0000 -lgc 1500,1500", "-i GPU-0-0000 -lmc 2619,2619"]
    assert not bench.run(**wanted).changed


@pytest.mark.parametrize("content", ["", "[]", "{", '{"driver": 3}', '{"driver": "1", "gpus": {"GPU-0-0000": {}}}'])
def test_a_spoilt_record_is_none(bench: Bench, content: str) -> None:
    record = bench.root / "run/trainyard/gpu_settings.json"
    record.parent.mkdir(parents=True)
    record.write_text(content)
    assert bench.run(graphics_clocks=["1500"]).changed
    assert not bench.run(graphics_clocks=["1500"]).changed


def test_says_which_gpus_were_changed_before_it_failed(bench: Bench) -> None:
    bench.smi.refused = "GPU-1-0000 -lgc"
    with pytest.raises(SettingsError) as raised:
        bench.run(persistence_mode=True, power_limit="400", graphics_clocks=["1500"])
    assert raised.value.changed
    assert str(raised.value) == (
        "graphics_clocks: nvidia-smi -lgc 1500,1500 failed for GPU 1: The driver says: Insufficient Power. "
        "Changed until then, and left so: GPU 0 (persistence_mode on, power_limit 400 W, graphics_clocks 1500 to 1500 "
        "MHz); GPU 1 (persistence_mode on, power_limit 400 W)."
    )
    bench.smi.refused = ""
    bench.smi.calls.clear()
    bench.run(persistence_mode=True, power_limit="400", graphics_clocks=["1500"])
    assert bench.smi.calls == ["-i GPU-1-0000 -lgc 1500,1500"]


def test_says_that_nothing_was_changed(bench: Bench) -> None:
    bench.smi.refused = "-pl"
    assert bench.refusal(power_limit="400").endswith("Insufficient Power. No GPU was changed.")


@pytest.mark.parametrize(
    ("flag", "wanted", "words"),
    [
        ("-pl", {"power_limit": "400"}, "power_limit: nvidia-smi took the setting, but GPUs 0 and 1 .* has 700 W now"),
        (
            "-c",
            {"compute_mode": "prohibited"},
            "compute_mode: .* has default now, perhaps since persistence mode is off",
        ),
        ("-e", {"ecc": False}, "ecc: .* has on now"),
        ("-mig", {"mig": True}, "mig: .* has off now"),
        (
            "-lgc",
            {"graphics_clocks": ["1500"]},
            "graphics_clocks: nvidia-smi -lgc 1500,1500 failed for GPU 0: Treating",
        ),
    ],
)
def test_a_setting_that_was_not_taken_is_a_failure(bench: Bench, flag: str, wanted: dict[str, Any], words: str) -> None:
    bench.smi.ignored = flag
    with pytest.raises(SettingsError, match=words):
        bench.run(**wanted)


def test_only_root_may(bench: Bench) -> None:
    assert bench.refusal(is_root=False, power_limit="400").startswith("Only root may change a GPU's settings:")
    assert not bench.run(is_root=False, power_limit="700").changed
    assert bench.run(is_root=False, check=True, power_limit="400").changed


@pytest.mark.parametrize("hanging", ["-q", "-pl"])
def test_a_hanging_nvidia_smi(bench: Bench, hanging: str) -> None:
    bench.smi.hanging = hanging
    with pytest.raises(
        SettingsError, match=r"^timeout: nvidia-smi .* gave no answer within 60 seconds, so a GPU or"
    ) as raised:
        bench.run(power_limit="400")
    assert raised.value.changed == (hanging == "-pl")
    assert raised.value.changed == ("What was changed until then is unknown." in str(raised.value))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            CommandResult(None, "", "No such file or directory", missing=True),
            "nvidia_smi: nvidia-smi can't be run (No ",
        ),
        (
            CommandResult(9, "NVIDIA-SMI has failed.\n", ""),
            "nvidia_smi: nvidia-smi gives no report: NVIDIA-SMI has failed.",
        ),
        (
            CommandResult(255, "Unable to determine the device handle for GPU3: 0000:5D:00.0: Unknown Error\n", ""),
            "A GPU can't be reached, so that none can be set: Unable to determine the device handle for GPU3",
        ),
        (CommandResult(0, "<nvidia_smi_log></nvidia_smi_log>", ""), "gpus: this machine has no GPU that answers"),
        (
            CommandResult(0, '<nvidia_smi_log><gpu id="0:1:0.0"><uuid>GPU is lost</uuid></gpu></nvidia_smi_log>', ""),
            "gpus: GPU 0 does not answer the driver; leave out what is broken",
        ),
    ],
)
def test_a_machine_without_working_gpus(tmp_path: Path, result: CommandResult, words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        apply(
            Machine(lambda argv, timeout: result, "nvidia-smi", 60, str(tmp_path), True),
            Request(power_limit="1"),
            False,
        )
    assert words in str(raised.value)


def test_counts_a_gpu_that_only_a_message_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FakeGpu(0), FakeGpu(2)])
    bench.smi.messages = "Unable to determine the device handle for GPU1: 0000:11:00.0: Unknown Error\n"
    bench.run(gpus=["2"], power_limit="400")
    assert [gpu.limit for gpu in bench.smi.gpus] == [700, 400]
    assert "GPU 1 does not answer" in bench.refusal(gpus=["1"], power_limit="400")


@pytest.mark.parametrize(("architecture", "kept"), [("Hopper", [1000, 1500]), ("Ampere", None)])
def test_locked_clocks_outlive_mig_mode_where_it_needs_no_reset(
    tmp_path: Path, architecture: str, kept: list[int] | None
) -> None:
    bench = Bench(tmp_path, [FakeGpu(0, architecture=architecture)])
    bench.run(graphics_clocks=["1000", "1500"])
    bench.run(mig=True)
    bench.smi.reset()
    assert bench.run().gpus[0].graphics_clocks_mhz == kept
    assert bench.run(graphics_clocks=["1000", "1500"]).changed == (kept is None)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


CLOCKS = st.sampled_from([["default"], ["1593"], ["1000", "1600"], ["99999"]])
REQUESTS = st.fixed_dictionaries(
    {
        "gpus": optional(st.sampled_from([["0"], ["1"], ["0", "1"], ["5"]])),
        "persistence_mode": optional(st.booleans()),
        "power_limit": optional(st.sampled_from(["default", "200", "333.5", "701"])),
        "compute_mode": optional(st.sampled_from(["default", "exclusive_process", "prohibited"])),
        "ecc": optional(st.booleans()),
        "mig": optional(st.booleans()),
        "mig_layout": optional(st.lists(st.sampled_from(sorted(H100_PROFILES)), max_size=4)),
        "graphics_clocks": optional(CLOCKS),
        "memory_clocks": optional(CLOCKS),
        "defaults": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=REQUESTS, then=REQUESTS, architecture=st.sampled_from(["Ampere", "Hopper"]), listed=st.booleans())
def test_a_second_run_sets_nothing(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], architecture: str, listed: bool
) -> None:
    gpus = [FakeGpu(0, architecture=architecture), FakeGpu(1, model="Other", ecc=None, mig=None)]
    bench = Bench(tmp_path, gpus, profiles_without_mig=listed)
    record = tmp_path / "run/trainyard/gpu_settings.json"
    record.unlink(missing_ok=True)
    for wanted in (first, then):
        bench.smi.calls.clear()
        try:
            predicted = bench.run(check=True, **wanted)
        except SettingsError:
            with pytest.raises(SettingsError):
                bench.run(**wanted)
            assert bench.smi.calls == []
            continue
        assert bench.smi.calls == []
        try:
            done = bench.run(**wanted)
        except SettingsError as error:
            # Profiles that the driver lists in MIG mode only.
            if listed or "mig_layout" not in str(error):
                raise
            continue
        assert (done.changed, done.gpus, done.pending) == (predicted.changed, predicted.gpus, predicted.pending)
        assert done.changed == bool(bench.smi.calls)
        bench.smi.calls.clear()
        assert not bench.run(**wanted).changed
        assert bench.smi.calls == []
