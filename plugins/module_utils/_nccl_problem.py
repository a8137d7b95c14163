# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What a person must know about NCCL on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NcclProblem:
    """severity: "critical", "warning" or "info". device: the port, GPU or variable meant, None for the machine."""

    severity: str
    code: str
    device: str | None
    message: str
    evidence: str
    action: str
