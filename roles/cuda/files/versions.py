# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print the versions of the libraries that a program gets from the loaded modules. Needs no GPU and no driver."""

from __future__ import annotations

import ctypes
import os
import re


def cuda() -> str:
    # Before CUDA 12 the library doesn't tell its version without a driver; the file that was loaded does.
    folder = os.path.join(os.environ["CUDA_HOME"], "lib64")
    ctypes.CDLL(min(name for name in os.listdir(folder) if re.fullmatch(r"libcudart\.so\.[\d.]+", name)))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = re.search(r"/libcudart\.so\.(\d+\.\d+)\.\d+$", maps.read(), re.MULTILINE)
    return found[1] if found else "of unknown version"


def nccl() -> str:
    answer = ctypes.c_int()
    status = ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(answer))
    if status != 0:
        raise SystemExit(f"ncclGetVersion failed with status {status}")
    return f"{answer.value // 10000}.{answer.value % 10000 // 100}.{answer.value % 100}"


for module in os.environ["MODULES"].split():
    print(module, {"cuda": cuda, "nccl": nccl}[module]())
