#!/usr/bin/env bash
# Makes a checkout ready to work in; a second run takes no time. Called by `make setup`.
#   .venv            Python environment: ansible-core 2.19 on Python 3.11, 2.21 on newer ones
#   .venv-2.21       a second one on Python 3.12 or newer, where .venv is on 3.11 and the machine has such a Python
#   .cache/collections/ansible_collections/trainyard/cluster -> the checkout
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

# A version manager leaves stubs in PATH that only print an error, so an interpreter counts when it runs.
version_of() { "$1" -c 'import sys; print("%d%02d" % sys.version_info[:2])' 2>/dev/null || echo 0; }

newest() { # newest MINIMUM MAXIMUM: prints a working interpreter, or nothing
    local candidate version best="" best_version=0
    for candidate in python3.11 python3.12 python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
        version=$(version_of "$candidate")
        if ((version >= $1 && version <= $2 && version > best_version)); then
            best=$candidate best_version=$version
        fi
    done
    echo "$best"
}

policy=/usr/sbin/policy-rc.d
policy_mark="# made by trainyard's tests/setup.sh while it installs packages"
let_services_start() { # also after a run that was killed; a policy of the machine's own stays
    if grep -qxF "$policy_mark" "$policy" 2>/dev/null; then rm -f "$policy"; fi
}

# A fresh machine's first updates may hold dpkg's lock for a while; --reinstall is for what dpkg was killed unpacking.
install_packages() { apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends --reinstall "$@"; }
interrupted() { [ -n "$(ls -A /var/lib/dpkg/updates)" ]; } # dpkg was, by whatever killed this script before

system_packages() { # apt packages that the simulator and the checks call
    local wanted=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || wanted+=("$package")
    done
    [ ${#wanted[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "this machine lacks ${wanted[*]} and has no apt-get; use a Debian 12 or 13 machine"
    [ "$(id -u)" = 0 ] || fail "this machine lacks some packages; install them as root: apt-get install ${wanted[*]}"
    echo "setup: installing ${wanted[*]}"
    # A package cache or a container engine that starts by itself would be a change this checkout never undoes.
    local answer=0
    [ -e "$policy" ] || { printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy" && chmod 755 "$policy"; }
    trap let_services_start EXIT
    {
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q update && { install_packages "${wanted[@]}" || { interrupted && dpkg --configure -a && install_packages "${wanted[@]}"; }; }
    } >/dev/null || answer=$?
    let_services_start
    [ "$answer" = 0 ] || fail "apt-get couldn't install them (its messages are above); once this works, run \`make setup\` again:" \
        "apt-get update && apt-get install ${wanted[*]}"
}

environment() { # environment FOLDER INTERPRETER: a virtual environment that matches the pinned requirements
    local folder=$1 interpreter=$2 core stamp
    core=2.21
    [ "$(version_of "$interpreter")" = 311 ] && core=2.19
    stamp=$(cat requirements/development.txt "requirements/ansible-core-$core.txt" | sha256sum | cut -c1-16)-$(version_of "$interpreter")
    [ "$(cat "$folder/trainyard-stamp" 2>/dev/null)" = "$stamp" ] && return
    echo "setup: making $folder ($("$interpreter" --version), ansible-core $core)"
    rm -rf "$folder"
    "$interpreter" -m venv "$folder" || fail "$interpreter can't make a virtual environment; install it: apt-get install python3-venv"
    "$folder/bin/pip" --quiet --quiet --disable-pip-version-check install -r requirements/development.txt -r "requirements/ansible-core-$core.txt"
    echo "$stamp" >"$folder/trainyard-stamp"
}

[ "$(uname -m)" = x86_64 ] || fail "the simulated GPUs need an x86_64 machine, this one is $(uname -m)"
# podman's network: Debian 12's podman uses CNI, newer ones netavark.
network=netavark
grep -qx 'VERSION_ID="12"' /etc/os-release && network=containernetworking-plugins
system_packages apt-cacher-ng binutils ca-certificates gcc git gpg gpg-agent gpgv iproute2 iptables libc6-dev make \
    mmdebstrap "$network" openssh-client openssl podman python3-venv rsync runc shellcheck

mkdir -p .cache/collections/ansible_collections/trainyard
ln -sfn "$PWD" .cache/collections/ansible_collections/trainyard/cluster

python=$(newest 311 311)
[ -n "$python" ] || python=$(newest 312 314)
[ -n "$python" ] || fail "Python 3.11 or newer is needed; install it: apt-get install python3 python3-venv"
environment .venv "$python"
if [ "$(version_of .venv/bin/python)" = 311 ]; then
    newer=$(newest 312 313)
    if [ -n "$newer" ]; then environment .venv-2.21 "$newer"; fi
fi
