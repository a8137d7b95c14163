# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The GPU's type as Slurm sites write it.

Slurm's gres.conf takes any name as a type; sites use the short lower-case name of the chip or board:
h100, a100, l40s, rtx4090. Rules, first match wins:

- a data centre board is named by its chip: "NVIDIA A100-SXM4-80GB" is a100, "Tesla V100S-PCIE-32GB" is v100s.
  Memory size, form factor and MIG profile are no part of it;
- a GeForce, TITAN or RTX board is its series and number with the suffix that makes it another board:
  "NVIDIA GeForce RTX 2080 Ti" is rtx2080ti, "NVIDIA RTX PRO 6000 Blackwell Server Edition" is rtxpro6000;
- a workstation board of the A series goes without "RTX": "NVIDIA RTX A6000" is a6000;
- a laptop's is another board than the card of that name: "NVIDIA RTX A5000 Laptop GPU" is a5000laptop;
- anything else is its product name in lower case, without the maker's name, joined by underscores.
"""

from __future__ import annotations

import re

_MAKER = re.compile(r"\b(?:NVIDIA|Tesla|Quadro|GeForce|GRID)\b[-\s]*", re.IGNORECASE)
_NO_NAME = frozenset({"graphics device", "nvidia graphics device", "device", "graphics"})
_CHIP = re.compile(r"^((?:GB|GH|GV|GP|[ABCHKLMPSTV])\d{1,4}[A-Z]{0,2})(?=$|[\s_/-])", re.IGNORECASE)
_SERIES = re.compile(
    r"^(?P<series>RTX PRO|RTX|GTX|GTS|GT|TITAN|MX|NVS)\s*(?P<number>\d+[A-Z]?|RTX|Xp|X|V|Z|Black)?"
    r"(?:[\s-]+(?P<kind>Ti SUPER|Ti|SUPER|D|M|SFF Ada|Ada)(?=$|\s|-))?",
    re.IGNORECASE,
)
_WORKSTATION = re.compile(r"^RTX\s*(A\d{3,4}[A-Z]?)\b", re.IGNORECASE)
_JETSON = re.compile(r"\b(Orin|Xavier|Thor)\b", re.IGNORECASE)


def slurm_type(product_name: str | None) -> str | None:
    """Return the type of a product name as nvidia-smi prints it, or None where the driver knows no name."""
    if product_name is None or product_name.strip().casefold() in _NO_NAME:
        return None
    name = _MAKER.sub("", product_name).strip()
    laptop = "laptop" if re.search(r"\bLaptop\b", name, re.IGNORECASE) else ""
    for pattern in (_CHIP, _WORKSTATION):
        match = pattern.match(name)
        if match:
            return match[1].lower() + laptop
    match = _SERIES.match(name)
    if match and match["number"]:
        return re.sub(r"\s+", "", match["series"] + match["number"] + (match["kind"] or "")).lower() + laptop
    match = _JETSON.search(name)
    if match:
        return match[1].lower()
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or None
