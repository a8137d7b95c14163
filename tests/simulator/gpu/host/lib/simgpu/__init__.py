# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Simulated GPUs of a test host. Runs on the host's own Python 3.9 or newer with the standard library alone."""
