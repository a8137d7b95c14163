# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pure parts of the stand-ins' programs: nvidia-ctk, dcgm-exporter and the registry's storage."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.simulator.vendor import registry, table


def _program(path: str) -> ModuleType:
    """A module of vendor/programs, which no import finds."""
    file = table.PROGRAMS / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ctk = _program("nvidia-container-toolkit-base/usr/lib/nvidia-container-toolkit-standin/nvidia_ctk.py")
exporter = _program("dcgm-exporter/usr/lib/dcgm-exporter-standin/dcgm_exporter.py")

GPUS = [ctk.Gpu(0, "GPU-aaaa", 0), ctk.Gpu(1, "GPU-bbbb", 3)]


def _specification(**options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = ctk.specification(
        GPUS, ["/dev/nvidiactl"], "/lib/libnvidia-ml.so.1", present=["/usr/bin/nvidia-smi"], **options
    )
    return spec


def _nodes(spec: dict[str, Any], name: str) -> list[str]:
    (device,) = (device for device in spec["devices"] if device["name"] == name)
    return [node["path"] for node in device["containerEdits"]["deviceNodes"]]


class TestSpecification:
    def test_names_every_gpu_by_index_and_uuid_and_all_together(self) -> None:
        spec = _specification()
        assert [device["name"] for device in spec["devices"]] == ["0", "1", "GPU-aaaa", "GPU-bbbb", "all"]
        assert _nodes(spec, "1") == _nodes(spec, "GPU-bbbb") == ["/dev/nvidia3"], "the node goes by the minor number"
        assert _nodes(spec, "all") == ["/dev/nvidia0", "/dev/nvidia3"]

    def test_leaves_out_all_where_asked(self) -> None:
        names = [device["name"] for device in _specification(everything=False, strategies=["index"])["devices"]]
        assert names == ["0", "1"]

    def test_is_the_same_in_yaml(self) -> None:
        spec = _specification()
        assert yaml.safe_load("---\n" + ctk.to_yaml(spec)) == spec

    @pytest.mark.parametrize("is_json", [True, False])
    def test_is_listed_with_qualified_names(self, is_json: bool) -> None:
        spec = _specification(strategies=["index"])
        text = json.dumps(spec) if is_json else "---\n" + ctk.to_yaml(spec)
        assert ctk.device_names(text, is_json) == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"]

    def test_text_without_a_kind_is_refused(self) -> None:
        with pytest.raises(ctk.ToolkitError, match="no kind"):
            ctk.device_names("devices: []\n", False)


class TestDaemonConfiguration:
    def test_keeps_what_is_there(self) -> None:
        before = {"log-driver": "journald", "runtimes": {"crun": {"path": "/usr/bin/crun"}}}
        after = ctk.configured(before, "nvidia", "nvidia-container-runtime", default=False, cdi=False)
        assert after == {
            "log-driver": "journald",
            "runtimes": {
                "crun": {"path": "/usr/bin/crun"},
                "nvidia": {"path": "nvidia-container-runtime", "args": []},
            },
        }

    def test_sets_the_default_runtime_where_asked(self) -> None:
        after = ctk.configured({}, "nvidia", "/usr/bin/x", default=True, cdi=False)
        assert after["default-runtime"] == "nvidia"

    def test_loses_other_features_as_release_1_20_does(self) -> None:
        after = ctk.configured({"features": {"buildkit": True}}, "nvidia", "x", default=False, cdi=True)
        assert after["features"] == {"cdi": True}

    def test_takes_values_of_switches_as_go_does(self) -> None:
        given = ["runtime", "configure", "--set-as-default=false", "--cdi.enabled=true", "--runtime=docker"]
        assert ctk.without_values(given) == ["runtime", "configure", "--cdi.enabled", "--runtime=docker"]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        (["PATH=/bin"], None),
        (["NVIDIA_VISIBLE_DEVICES=void"], None),
        (["NVIDIA_VISIBLE_DEVICES="], None),
        (["NVIDIA_VISIBLE_DEVICES=none"], []),
        (["NVIDIA_VISIBLE_DEVICES=0,GPU-bbbb"], ["0", "GPU-bbbb"]),
        (["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=1"], ["1"]),
        (["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1"], ["1"]),
    ],
)
def test_runtime_reads_what_a_container_wants(environment: list[str], wanted: list[str] | None) -> None:
    assert ctk.wanted_devices(environment) == wanted


def test_runtime_refuses_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ctk.ToolkitError, match=r"unresolvable CDI devices nvidia\.com/gpu=9"):
        ctk.injected({}, _specification(), ["9"])


def test_runtime_injects_nodes_mounts_and_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        st_rdev = (195 << 8) | 3

    monkeypatch.setattr(ctk.os, "stat", lambda _path: Node())
    config = ctk.injected({"process": {"env": ["A=b"]}}, _specification(), ["1"])
    assert [device["path"] for device in config["linux"]["devices"]] == ["/dev/nvidiactl", "/dev/nvidia3"]
    allowed = {"allow": True, "type": "c", "major": 195, "minor": 3, "access": "rwm"}
    assert config["linux"]["resources"]["devices"] == [allowed, allowed]
    assert config["process"]["env"] == ["A=b", "NVIDIA_VISIBLE_DEVICES=void"]
    assert [mount["destination"] for mount in config["mounts"]] == [
        "/usr/bin/nvidia-smi",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    ]


class TestCounters:
    def test_the_default_file_is_read(self) -> None:
        text = (table.PROGRAMS / "dcgm-exporter/etc/dcgm-exporter/default-counters.csv").read_text(encoding="utf-8")
        counters = exporter.read_counters(text.splitlines())
        names = [counter.name for counter in counters]
        assert "DCGM_FI_DEV_GPU_TEMP" in names
        assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" not in names, "a comment in the real file"
        assert not [name for name in names if "_PROF_" in name], "profiling is skipped"

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("DCGM_FI_DEV_NONSENSE, gauge, x", "unknown ExporterCounter field 'DCGM_FI_DEV_NONSENSE'"),
            ("DCGM_FI_DEV_GPU_TEMP, gauge", "expected 3 fields"),
            ("DCGM_FI_DEV_GPU_TEMP, gage, x", "could not find Prometheus metric type 'gage'"),
        ],
    )
    def test_a_wrong_line_ends_it(self, line: str, said: str) -> None:
        with pytest.raises(exporter.ExporterError, match=said):
            exporter.read_counters([line])

    def test_its_version_is_the_tables(self) -> None:
        content = table.load()
        tags = [image["tag"] for image in content.images if image["image"] == "nvidia/k8s/dcgm-exporter"]
        packages = {package.name: package.placeholders["upstream"] for package in content.packages}
        pair = f"{packages['datacenter-gpu-manager-4-core']}-{packages['datacenter-gpu-manager-exporter']}"
        assert pair == exporter.VERSION
        assert tags == [f"{pair}-distroless"]


def test_series_are_sorted_by_field_and_lack_what_has_no_value() -> None:
    lines = [
        "DCGM_FI_DEV_XID_ERRORS, gauge, The last Xid.",
        "DCGM_FI_DEV_POWER_USAGE, gauge, Watts.",
        "DCGM_FI_DEV_GPU_TEMP, gauge, Heat.",
        "DCGM_FI_DEV_MEMORY_TEMP, gauge, Heat.",
        "DCGM_FI_DRIVER_VERSION, label, Driver.",
    ]
    gpu = exporter.Gpu(2, "GPU-cccc", "00000000:3A:00.0", "NVIDIA H100 80GB HBM3")
    values = {
        (2, "DCGM_FI_DEV_XID_ERRORS"): 79,
        (2, "DCGM_FI_DEV_POWER_USAGE"): 71.5,
        (2, "DCGM_FI_DEV_GPU_TEMP"): 36,
        (2, "DCGM_FI_DEV_MEMORY_TEMP"): None,
        (2, "DCGM_FI_DRIVER_VERSION"): "580.1",
    }
    labels = (
        'gpu="2",UUID="GPU-cccc",pci_bus_id="00000000:3A:00.0",device="nvidia2",modelName="NVIDIA H100 80GB HBM3"'
        ',hostname="gpu1",DCGM_FI_DRIVER_VERSION="580.1"'
    )
    assert exporter.render(exporter.read_counters(lines), [gpu], values, "gpu1") == (
        "# HELP DCGM_FI_DEV_GPU_TEMP Heat.\n"
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 36\n"
        "# HELP DCGM_FI_DEV_POWER_USAGE Watts.\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 71.500000\n"
        "# HELP DCGM_FI_DEV_XID_ERRORS The last Xid.\n"
        "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
        f'DCGM_FI_DEV_XID_ERRORS{{{labels},err_code="79",err_msg="GPU has fallen off the bus"}} 79\n'
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [(":9400", ("", 9400)), ("127.0.0.1:9401", ("127.0.0.1", 9401)), ("[::1]:9400", ("::1", 9400))],
)
def test_listen_address(text: str, address: tuple[str, int]) -> None:
    assert exporter.listen_address(text) == address


def test_listen_address_without_a_port() -> None:
    with pytest.raises(exporter.ExporterError, match="missing port"):
        exporter.listen_address("localhost")


class TestRegistry:
    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(registry, "_base", lambda: registry._layer(b"base"))
        folder = tmp_path / "programs/tool"
        (folder / "usr/bin").mkdir(parents=True)
        (folder / "usr/bin/tool").write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / "usr/bin/snake").write_text("print()\n", encoding="utf-8")
        (folder / "DEBIAN").mkdir()
        (folder / "DEBIAN/postinst").write_text("#!/bin/sh\n", encoding="utf-8")
        return folder.parent

    def _blob(self, storage: Path, digest: str) -> bytes:
        name = digest.partition(":")[2]
        content = (storage / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data").read_bytes()
        assert hashlib.sha256(content).hexdigest() == name
        return content

    def test_what_a_client_pulls_hangs_together(self, tmp_path: Path, programs: Path) -> None:
        row = {"image": "nvidia/tool", "tag": "1.0", "program": ["tool"], "entrypoint": ["/usr/bin/tool"]}
        known = registry.build([row], programs, tmp_path)
        digest = known["nvidia/tool"]["digest"]
        link = tmp_path / "docker/registry/v2/repositories/nvidia/tool/_manifests/tags/1.0/current/link"
        assert known["nvidia/tool"]["tag"] == "1.0"
        assert link.read_text(encoding="ascii") == digest
        manifest = json.loads(self._blob(tmp_path, digest))
        config = json.loads(self._blob(tmp_path, manifest["config"]["digest"]))
        assert config["config"]["Entrypoint"] == ["/usr/bin/tool"]
        layers = [gzip.decompress(self._blob(tmp_path, layer["digest"])) for layer in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        with tarfile.open(fileobj=io.BytesIO(layers[1])) as layer:
            assert {entry.name: entry.mode for entry in layer if entry.isfile()} == {
                "usr/bin/snake": 0o755,
                "usr/bin/tool": 0o755,
            }
            snake = layer.extractfile("usr/bin/snake")
            assert snake is not None
            assert snake.read() == b"#!/usr/bin/python3\nprint()\n"

    def test_the_same_contents_have_the_same_digest(self, tmp_path: Path, programs: Path) -> None:
        row = {"image": "nvidia/tool", "tag": "1.0", "program": ["tool"]}
        first = registry.build([row], programs, tmp_path / "a")
        (programs / "tool/usr/bin/tool").touch()
        assert registry.build([row], programs, tmp_path / "b") == first
