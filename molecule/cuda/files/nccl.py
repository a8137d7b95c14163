# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the NCCL that the loader finds for its version and for the id of a new communicator."""

import ctypes

nccl = ctypes.CDLL("libnccl.so.2")
version = ctypes.c_int()
status = [nccl.ncclGetVersion(ctypes.byref(version)), nccl.ncclGetUniqueId(ctypes.create_string_buffer(128))]
print(version.value, *status)
