# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys of the mirror, made once for this machine and never committed: one for each vendor, one for the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine import SimulatorError, run

_DAYS = "3650"


class Keys:
    """OpenPGP keys by vendor, in a keyring of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._gnupg = folder / "gnupg"
        self._gnupg.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._known: dict[str, str] = {}

    def _gpg(self, *arguments: str | Path) -> str:
        words: Sequence[str | Path] = ("gpg", "--homedir", self._gnupg, "--batch", "--no-tty", "--quiet", *arguments)
        return run(words).stdout

    def fingerprint(self, vendor: str) -> str:
        """The 40 hex digits of a vendor's key, which is made at the first call."""
        if vendor not in self._known:
            self._known[vendor] = self._find(vendor)
        return self._known[vendor]

    def _find(self, vendor: str) -> str:
        address = f"<{vendor}@mirror.invalid>"
        found = self._fingerprints(address)
        if not found:
            owner = f"Test stand-in for the key of {vendor} {address}"
            self._gpg("--passphrase", "", "--quick-generate-key", owner, "rsa3072", "sign", "never")
            found = self._fingerprints(address)
        if len(found) != 1:
            raise SimulatorError(f"{self._gnupg} has {len(found)} keys of {vendor}; remove that folder")
        return found[0]

    def _fingerprints(self, address: str) -> list[str]:
        """Keys whose owner has the address. Asked without a pattern, since none at all is no failure then."""
        found, fingerprint = [], ""
        for line in self._gpg("--with-colons", "--list-keys").splitlines():
            fields = line.split(":")
            if fields[0] == "fpr":
                fingerprint = fields[9]
            elif fields[0] == "uid" and address in fields[9]:
                found.append(fingerprint)
        return found

    def public(self, vendor: str) -> str:
        """A vendor's public key, armored."""
        return self._gpg("--armor", "--export", self.fingerprint(vendor))

    def sign(self, release: Path, vendor: str) -> None:
        """Write InRelease and Release.gpg beside a Release file."""
        signer = ("--yes", "--local-user", self.fingerprint(vendor), "--digest-algo", "SHA512")
        self._gpg(*signer, "--clearsign", "--output", release.with_name("InRelease"), release)
        self._gpg(*signer, "--armor", "--detach-sign", "--output", release.with_name("Release.gpg"), release)

    def stop(self) -> None:
        """End the agent that gpg started for this keyring."""
        run(["gpgconf", "--homedir", self._gnupg, "--kill", "all"])


def certificate(folder: Path, host: str) -> str:
    """Make the registry's certificate and that of its issuer, once. Returns the issuer's, for clients to trust."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    issuer, key = folder / "ca.pem", folder / "registry.key"
    if not key.exists():
        fresh = ("openssl", "req", "-x509", "-newkey", "rsa:3072", "-noenc", "-days", _DAYS)
        run([*fresh, "-keyout", folder / "ca.key", "-out", issuer, "-subj", "/CN=Test stand-in for a registry's issuer",
             "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"])  # fmt: skip
        partial = folder / "registry.key.partial"
        run([*fresh, "-keyout", partial, "-out", folder / "registry.pem", "-subj", f"/CN={host}",
             "-CA", issuer, "-CAkey", folder / "ca.key", "-addext", f"subjectAltName=DNS:{host}",
             "-addext", "basicConstraints=critical,CA:FALSE"])  # fmt: skip
        partial.rename(key)
    return issuer.read_text(encoding="utf-8")
