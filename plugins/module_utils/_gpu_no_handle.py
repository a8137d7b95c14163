# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The GPUs that nvidia-smi can't open, and what that does to the numbers of the others.

Format: public reports of drivers 352 to 595. Drivers up to 550 say it in place of any report, newer ones go on with
the next GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import integer, pci_bus_id

# "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", with or without the index.
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU\s*(?:(?P<index>[0-9]{1,4})(?=:?\s|:?$))?:?\s*"
    r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)?:?\s*(?P<reason>[^\r\n<]*)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class NoHandle:
    """A GPU that nvidia-smi could not open: its index and address as far as the message names them."""

    index: int | None
    pci_bus_id: str | None
    reason: str
    line: str


def parse_messages(output: str) -> list[NoHandle]:
    """Return the GPUs that the output names, each once: some drivers print the message to both outputs."""
    lines = {match[0].strip(): match for match in _NO_HANDLE.finditer(output)}
    return [
        NoHandle(
            index=integer(match["index"]),
            pci_bus_id=pci_bus_id(match["pci"]),
            reason=match["reason"].strip() or "no reason given",
            line=line,
        )
        for line, match in lines.items()
    ]


def place_lost(
    handles: Sequence[NoHandle], addresses: Sequence[str | None], attached_gpus: int | None
) -> list[NoHandle]:
    """Give GPUs that a message names by address alone their index; nvidia-smi counts in the order of the bus.

    addresses: of the GPUs that the report lists. Where those aren't in that order, or no GPU is missing from the count,
    the index stays unknown.
    """
    listed = [address for address in addresses if address is not None]
    lost = {handle.pci_bus_id for handle in handles if handle.pci_bus_id is not None}
    everything = sorted({*listed, *lost})
    known = listed == sorted(listed) and (attached_gpus is None or attached_gpus >= len(everything))
    return [
        replace(handle, index=everything.index(handle.pci_bus_id))
        if handle.index is None and handle.pci_bus_id is not None and known
        else handle
        for handle in handles
    ]


def numbers_without(handles: Sequence[NoHandle], indices: Sequence[int] = ()) -> Iterator[int]:
    """Yield the indices of the GPUs that a report lists, in its order: those of unreachable ones are left out."""
    taken = {handle.index for handle in handles}
    return (index for index in chain(indices, count(len(indices))) if index not in taken)
