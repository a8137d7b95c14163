# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the PyTorch of an environment works: it imports, and processes can talk through it.

Read by the environment's own Python from standard input; arguments: the environment's folder, and `remember` to leave a
note of a good result there. Importing PyTorch takes seconds, so while not one of its files differs from those of the
note, the note is the answer. Ends with 3 and a sentence when PyTorch doesn't work.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import sys

NOT_WORKING = 3


class NotWorkingError(Exception):
    """A sentence for the user."""


def fingerprint(environment: str) -> str:
    """Changes when Python, PyTorch or a library of PyTorch does: path, size and time of every file."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n".encode())
    specification = importlib.util.find_spec("torch")
    if specification is None or specification.origin is None:
        raise NotWorkingError(
            f"{environment} has no PyTorch: its Python {sys.version.split()[0]} finds no module torch."
        )
    folders = {os.path.realpath(os.path.dirname(specification.origin))}
    folders.update(  # the distribution's PyTorch is a link farm to libraries elsewhere
        os.path.dirname(os.path.realpath(os.path.join(root, file)))
        for root, _folders, files in os.walk(os.path.dirname(specification.origin))
        for file in files
        if ".so" in file
    )
    for folder in sorted(folders):
        for root, directories, files in os.walk(folder):
            directories[:] = sorted(name for name in directories if name != "__pycache__")
            for file in sorted(files):
                path = os.path.join(root, file)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue  # a dangling link
                digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def examine() -> dict[str, object]:
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
    except Exception as error:  # an import runs any code and may fail in any way
        raise NotWorkingError(f"PyTorch doesn't import: {type(error).__name__}: {error}.") from error
    cuda = torch.version.cuda
    if not dist.is_available() or not dist.is_gloo_available():
        raise NotWorkingError(
            f"PyTorch {torch.__version__} was built without distributed training over Gloo: install another build."
        )
    if cuda is not None and not dist.is_nccl_available():
        raise NotWorkingError(
            f"PyTorch {torch.__version__} was built for CUDA {cuda} but without NCCL: install another build."
        )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    number = torch.ones(1)
    dist.all_reduce(number)
    dist.destroy_process_group()
    if number.item() != 1:
        raise NotWorkingError(
            f"PyTorch {torch.__version__} can't add: a sum over one process is {number.item()} instead of 1."
        )
    return {"torch": torch.__version__, "cuda": cuda}


def main(environment: str, remember: bool) -> str:
    note = os.path.join(environment, "trainyard-verified.json")
    now = fingerprint(environment)
    try:
        with open(note, encoding="utf-8") as handle:
            known = json.load(handle)
        if known["fingerprint"] == now:
            return json.dumps(known)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no note, or none that can be used
    text = json.dumps({**examine(), "fingerprint": now})
    if remember:
        with open(note + ".new", "w", encoding="utf-8") as handle:
            handle.write(text + "\n")
        os.replace(note + ".new", note)
    return text


if __name__ == "__main__":
    try:
        print(main(sys.argv[1], sys.argv[2] == "remember"))
    except NotWorkingError as problem:
        print(problem)
        sys.exit(NOT_WORKING)
