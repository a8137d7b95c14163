"""What apt prints, by the versions that print it, and what is made of it."""

# ruff: noqa: E501 # apt's lines are long

from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._apt_repository import fault_kind, missing_packages

SQV = "W: OpenPGP signature verification failed: http://mirror/x  InRelease: Sub-process /usr/bin/sqv returned an error code (1), error message is: "
NOT_SIGNED = "\nE: The repository 'http://mirror/x  InRelease' is not signed.\n"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param("", ("", ""), id="no fault"),
        pytest.param(
            SQV
            + "Missing key 57F86137CA6DF44832A6254347AFFD8772FB6B72, which is needed to verify signature."
            + NOT_SIGNED,
            ("key", "it is signed with another key (57F86137CA6DF44832A6254347AFFD8772FB6B72) than the pinned one"),
            id="apt 3.0: another key",
        ),
        pytest.param(
            "W: GPG error: http://mirror/x  InRelease: The following signatures couldn't be verified because the public key is not available: "
            "NO_PUBKEY 47AFFD8772FB6B72" + NOT_SIGNED,
            ("key", "it is signed with another key (47AFFD8772FB6B72) than the pinned one"),
            id="apt 2.6: another key",
        ),
        pytest.param(
            SQV
            + "Signing key on EB693B is not bound:            No binding signature   because: SHA1 is not considered secure"
            + NOT_SIGNED,
            (
                "signature",
                "its signature does not hold (Sub-process /usr/bin/sqv returned an error code (1), error message is: "
                "Signing key on EB693B is not bound: No binding signature because: SHA1 is not considered secure)",
            ),
            id="apt 3.0: a key that it refuses",
        ),
        pytest.param(
            "W: GPG error: http://mirror/x  InRelease: The following signatures were invalid: EXPKEYSIG 47AFFD8772FB6B72 someone"
            + NOT_SIGNED,
            (
                "signature",
                "its signature does not hold (The following signatures were invalid: EXPKEYSIG 47AFFD8772FB6B72 someone)",
            ),
            id="apt 2.6: an expired key",
        ),
        pytest.param(
            "E: The repository 'http://mirror/x nosuch Release' does not have a Release file.\n",
            ("missing", "no package lists are there (404 Not Found)"),
            id="404, or no such suite",
        ),
        pytest.param(
            "E: Failed to fetch http://mirror/x/InRelease  Could not connect to mirror:80 (198.18.0.10). - connect (111: Connection refused)\n"
            "E: Some index files failed to download. They have been ignored, or old ones used instead.\n",
            (
                "unreachable",
                "it can't be fetched (Could not connect to mirror:80 (198.18.0.10). - connect (111: Connection refused))",
            ),
            id="nobody answers",
        ),
        pytest.param(
            "W: Skipping acquire of configured file 'stabel/binary-amd64/Packages' as repository 'http://mirror/x bookworm InRelease' doesn't have "
            "the component 'stabel' (component misspelt in sources.list?)\n",
            ("component", "it has no component stabel"),
            id="no such component, of which apt only warns",
        ),
        pytest.param(
            "E: Conflicting values set for option Signed-By regarding source http://mirror/x/ /: /usr/share/keyrings/cuda.gpg != /tmp/y.asc\n"
            "E: The list of sources could not be read.\n",
            (
                "conflict",
                "another source of the machine names http://mirror/x/ / with another Signed-By (/usr/share/keyrings/cuda.gpg != /tmp/y.asc)",
            ),
            id="the machine has the repository already",
        ),
        pytest.param(
            "E: Conflicting values set for option Trusted regarding source http://mirror/x/ /\n",
            ("conflict", "another source of the machine names http://mirror/x/ / with another Trusted"),
            id="the machine has the repository already, by another option",
        ),
        pytest.param(
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\nE: Unable to lock directory /var/lib/apt/lists/\n",
            ("locked", "Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"),
            id="another apt is at work",
        ),
        pytest.param(
            "E: Release file for http://mirror/x/InRelease is expired (invalid since 3d 2h). Updates for this repository will not be applied.\n",
            (
                "expired",
                "Release file for http://mirror/x/InRelease is expired (invalid since 3d 2h). Updates for this repository will not be applied",
            ),
            id="an old mirror",
        ),
        pytest.param("E: Something new\n", ("other", "Something new"), id="what we don't know is said in apt's words"),
    ],
)
def test_fault(output: str, expected: tuple[str, str]) -> None:
    assert fault_kind(output) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("No package matching 'b' is available", ["b"], id="the module's own word"),
        pytest.param("no available installation candidate for c=2.0", ["c=2.0"], id="a version that isn't there"),
        pytest.param("'apt-get install b' failed: E: Unable to locate package b\n", ["b"], id="apt's word"),
        pytest.param("E: Version '2.0' for 'c' was not found\n", ["c=2.0"], id="apt's word on a version"),
        pytest.param("E: Package 'a' has no installation candidate\n", ["a"], id="known by name alone"),
        pytest.param("No package matching 'libz' is available", ["libz"], id="a package that wasn't asked for"),
        pytest.param("E: Unmet dependencies.", [], id="another failure"),
    ],
)
def test_missing_packages(message: str, expected: list[str]) -> None:
    assert missing_packages(message, ["a", "b", "c=2.0"]) == expected
