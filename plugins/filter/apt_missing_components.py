# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.trainyard.cluster.plugins.module_utils._apt_sources import missing_components

DOCUMENTATION = r"""
name: apt_missing_components
short_description: The apt sources that enable further components of the distribution's own archive
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Compares the components a machine has enabled with those wanted, for its release
    and that release's updates, security and backports suites.
  - The result copies address, keyring and other options from the machine's own sources.
positional: _input
options:
  _input:
    description:
      - What C(apt-get indextargets) printed for the indexes of packages, each line made of
        SOURCESENTRY, SITE, RELEASE, COMPONENT and ORIGIN with a blank between.
    type: str
    required: true
  files:
    description: The text of each source file, by its path.
    type: dict
    required: true
  components:
    description: The components wanted.
    type: list
    elements: str
    required: true
  codename:
    description: The release, C(trixie) for example.
    type: str
    required: true
  origin:
    description: The distribution's name as its Release files have it, C(Debian) for example.
    type: str
    required: true
  own_file:
    description: The file that the result is written to. What it enables already is not counted.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: What is missing for packages from non-free?
  ansible.builtin.debug:
    msg: >-
      {{ targets.stdout | trainyard.cluster.apt_missing_components(files=sources, components=['non-free'],
      codename='trixie', origin='Debian', own_file='/etc/apt/sources.list.d/trainyard.sources') }}
"""
RETURN = r"""
_value:
  description: Sources as deb822 fields, empty when nothing is missing.
  type: list
  elements: dict
  sample: [{Types: deb, URIs: "http://mirror.example.org/debian", Suites: trixie, Components: non-free}]
"""


def apt_missing_components(
    targets: str, files: Mapping[str, str], components: Sequence[str], *, codename: str, origin: str, own_file: str
) -> list[dict[str, str]]:
    """Return the sources that enable the components; see DOCUMENTATION."""
    try:
        return missing_components(targets, files, components, codename=codename, origin=origin, own_file=own_file)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., list[dict[str, str]]]]:
        return {"apt_missing_components": apt_missing_components}
