"""A package index of stand-ins for PyTorch in a folder, to see what the role tells pip to do.

Version 1 works as far as the role looks, version 2 was built without distributed training, version 3 doesn't import.
Prints the sha256 of version 1's wheel.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

PARTS = {
    "1.0": {
        "torch/__init__.py": (
            "__version__ = '1.0'\n"
            "class version:\n    cuda = None\n"
            "class Number(float):\n    def item(self):\n        return float(self)\n"
            "def ones(count):\n    return Number(1)\n"
        ),
        "torch/distributed.py": (
            "def is_available():\n    return True\n"
            "is_gloo_available = is_available\n"
            "def HashStore():\n    return None\n"
            "def init_process_group(*arguments, **options):\n    pass\n"
            "all_reduce = destroy_process_group = init_process_group\n"
        ),
    },
    "2.0": {
        "torch/__init__.py": "__version__ = '2.0'\nclass version:\n    cuda = None\n",
        "torch/distributed.py": "def is_available():\n    return False\n",
    },
    "3.0": {"torch/__init__.py": "raise ImportError('libcudart.so.12: cannot open shared object file')\n"},
}

folder = Path(sys.argv[1]) / "torch"
folder.mkdir(parents=True, exist_ok=True)
links = []
for version, modules in PARTS.items():
    information = f"torch-{version}.dist-info"
    files = {
        **modules,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{information}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{information}/RECORD"])
    wheel = folder / f"torch-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # with a fixed date: the same sum every time
    links.append(f'<a href="{wheel.name}">{wheel.name}</a>')
(folder / "index.html").write_text("<!DOCTYPE html><body>" + "".join(links) + "</body>")
print(hashlib.sha256((folder / "torch-1.0-py3-none-any.whl").read_bytes()).hexdigest())
