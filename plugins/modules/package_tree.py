#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: package_tree
short_description: Give the scattered files of Debian packages a prefix of their own, made of links
version_added: 0.1.0
description:
  - Links the files of all installed packages that were built from given source packages into one directory,
    in a layout of choice.
  - Links to files that are gone are removed; anything else in the directory is left alone.
author: Trainyard contributors (@trainyard)
options:
  path:
    description: The directory. Folders that do not exist are created, mode 0755.
    type: path
    required: true
  source_packages:
    description: Names of source packages, as C(dpkg-query) shows them under C(source:Package).
    type: list
    elements: str
    required: true
  layout:
    description: Folder of the packages to folder of the tree. Files outside of these folders are left out.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: Says what would change and changes nothing.
  diff_mode:
    support: full
    description: Shows the links that are made and removed.
"""
EXAMPLES = r"""
- name: Give Debian's CUDA toolkit the shape that programs look for
  trainyard.cluster.package_tree:
    path: /usr/local/cuda-12.4
    source_packages: [nvidia-cuda-toolkit]
    layout:
      /usr/bin: bin
      /usr/include: include
      /usr/lib/x86_64-linux-gnu: lib64
"""
RETURN = r"""
packages:
  description: The installed packages whose files are linked.
  returned: success
  type: list
  elements: str
  sample: [libcudart12]
links:
  description: Number of links in the tree.
  returned: success
  type: int
  sample: 2
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._package_tree import (
    apply,
    compare,
    installed_packages,
    package_files,
    wanted_links,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source_packages": {"type": "list", "elements": "str", "required": True},
            "layout": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    prefix = module.params["path"]

    def run(command: list[str]) -> tuple[int, str]:
        status, output, _errors = module.run_command(command, environ_update={"LC_ALL": "C.UTF-8"})
        return status, output

    try:
        packages = installed_packages(run, module.params["source_packages"])
        wanted = wanted_links(package_files(run, packages), module.params["layout"])
        difference = compare(prefix, wanted)
        if not module.check_mode:
            apply(prefix, difference)
    except OSError as error:
        module.fail_json(msg=f"path: the tree {prefix} can't be made: {error}")
    before = "".join(f"{name}\n" for name in difference.drop)
    after = "".join(f"{name} -> {target}\n" for name, target in sorted(difference.make.items()))
    module.exit_json(
        changed=bool(difference.make or difference.drop),
        packages=packages,
        links=len(wanted),
        diff={"before_header": prefix, "after_header": prefix, "before": before, "after": after},
    )


if __name__ == "__main__":
    main()
