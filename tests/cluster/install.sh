#!/usr/bin/env bash
# Debian's packages of SLURM and Open MPI, for `pytest -m cluster`; needs root. Says why it cannot.
set -euo pipefail
wanted=(munge openmpi-bin openssl slurm-client slurmctld slurmd)
missing=()
for package in "${wanted[@]}"; do
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0
((EUID == 0)) || { echo "installing ${missing[*]} needs root"; exit 1; }
export DEBIAN_FRONTEND=noninteractive
install() { timeout 300 apt-get install -y -q --no-install-recommends "${missing[@]}"; }
{ install || { timeout 120 apt-get update -q && install; }; } >/dev/null 2>&1 ||
  { echo "apt-get does not find ${missing[*]}"; exit 1; }
