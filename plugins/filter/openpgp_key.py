# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from ansible_collections.trainyard.cluster.plugins.module_utils._openpgp import armored, read_keys

DOCUMENTATION = r"""
name: openpgp_key
short_description: The pinned key out of an OpenPGP key file
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Computes the fingerprints of the keys in a file, armored or binary, and returns the one that is pinned,
    with its subkeys and without the file's other keys.
positional: _input
options:
  _input:
    description: The file's content in base64, as M(ansible.builtin.slurp) returns it.
    type: str
    required: true
  fingerprint:
    description: The fingerprint of the key that is wanted, 40 hexadecimal digits. Blanks are passed over.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Which key signs this repository?
  ansible.builtin.debug:
    msg: "{{ (file.content | trainyard.cluster.openpgp_key(pinned)).fingerprints }}"
  vars:
    pinned: EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC
"""
RETURN = r"""
_value:
  description: What the file holds.
  type: dict
  contains:
    armored:
      description: The wanted key as text, empty where the file doesn't hold it.
      type: str
    fingerprints:
      description: Fingerprints of all keys in the file.
      type: list
      elements: str
      sample: [EB693B3035CD5710E231E123A4B469963BF863CC]
    problem:
      description: Why the file can't be read as keys, empty where it can.
      type: str
      sample: it begins with '<html>'
"""


def openpgp_key(content: str, fingerprint: str) -> dict[str, str | list[str]]:
    """Return the pinned key of a file; see DOCUMENTATION."""
    try:
        keys = read_keys(base64.b64decode(content))
    except ValueError as error:
        return {"armored": "", "fingerprints": [], "problem": str(error)}
    wanted = re.sub(r"\s", "", fingerprint).upper()
    return {
        "armored": next((armored(key) for key in keys if key.fingerprint == wanted), ""),
        "fingerprints": [key.fingerprint for key in keys],
        "problem": "",
    }


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., dict[str, str | list[str]]]]:
        return {"openpgp_key": openpgp_key}
