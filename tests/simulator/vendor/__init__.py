# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The vendors' repositories for test hosts: README.md beside this file says what is real and what is not.

publish("scratch")      builds what vendor_packages.yml says, unless it is there, and lets an instance serve it
"""

from .mirror import Published, publish, volumes, withdraw

__all__ = ["Published", "publish", "volumes", "withdraw"]
