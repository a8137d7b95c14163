# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _docker

DOCUMENTATION = r"""
name: docker_daemon_configuration
short_description: What Docker's daemon.json becomes when settings are merged into it
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Merges settings into the machine's own daemon.json, whose other keys stay.
  - Takes back what an earlier merge set and this one does not, and gives back the values it had replaced.
positional: _input
options:
  _input:
    description: The file's text as it is, empty when there is no file.
    type: str
    required: true
  record:
    description: What the last merge returned as RV(_value.record), empty before the first.
    type: str
    required: true
  defaults:
    description: Settings for which the file's own value is kept where it has one.
    type: dict
    required: true
  settings:
    description: Settings that replace the file's own value.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: Show what the file becomes
  ansible.builtin.debug:
    msg: >-
      {{ file | trainyard.cluster.docker_daemon_configuration(record='', defaults={'live-restore': true},
      settings={'features': {'cdi': true}}) }}
"""
RETURN = r"""
_value:
  description: The new file, and what the daemon must do to take it up.
  type: dict
  contains:
    fault:
      description: Why the text can't be read. Empty when it can; the other keys are there only then.
      type: str
    configuration:
      description: What the file is to hold.
      type: dict
    text:
      description: The file's text, the given one where nothing changes.
      type: str
    record:
      description: What to give to the next merge.
      type: str
    changed:
      description: Keys of the first level that differ from the given text.
      type: list
      elements: str
    restart:
      description: Those of them that only a start of the daemon takes up.
      type: list
      elements: str
    unsafe:
      description: Those of them after which a started daemon loses running containers.
      type: list
      elements: str
"""


def docker_daemon_configuration(
    text: str, record: str, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    return _docker.daemon_configuration(text, record, defaults, settings)


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"docker_daemon_configuration": docker_daemon_configuration}
