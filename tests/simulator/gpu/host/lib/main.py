# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Started by bin/simgpu with the name it was called by and the arguments."""

from __future__ import annotations

import sys

from simgpu.cli import run

sys.exit(run(sys.argv[1], sys.argv[2:]))
