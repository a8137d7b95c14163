# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_slurm_type import slurm_type


@pytest.mark.parametrize(
    ("product_name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100"),
        ("GRID A100D-40C", "a100d"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A2", "a2"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla V100S-PCIE-32GB", "v100s"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla T4", "t4"),
        ("GRID T4-16Q", "t4"),
        ("Tesla K80", "k80"),
        ("Quadro GV100", "gv100"),
        ("Quadro P400", "p400"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX A2000 12GB", "a2000"),
        ("NVIDIA T1000 8GB", "t1000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "rtx4000sffada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", "rtx4090d"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 2080 SUPER", "rtx2080super"),
        ("GeForce GTX 1660 Ti", "gtx1660ti"),
        ("NVIDIA GeForce GT 1030", "gt1030"),
        ("NVIDIA GeForce RTX 3070 Laptop GPU", "rtx3070laptop"),
        ("TITAN V", "titanv"),
        ("TITAN RTX", "titanrtx"),
        ("NVIDIA TITAN X (Pascal)", "titanx"),
        ("TITAN Xp", "titanxp"),
        ("Orin (nvgpu)", "orin"),
        ("NVIDIA CMP 170HX", "cmp_170hx"),
        ("NVIDIA DGX Display", "dgx_display"),
        ("Graphics Device", None),
        ("NVIDIA Graphics Device", None),
        ("", None),
        (None, None),
    ],
)
def test_names_the_type(product_name: str | None, expected: str | None) -> None:
    assert slurm_type(product_name) == expected
