#!/usr/bin/env bash
# Runs a command in a bare Debian 12, where nothing is installed: does it install everything that it needs? Then again where the packages that are optional for zero are
# present, as on many machines. Both start from the files of HEAD. Needs root rights, a network and debootstrap, which it installs (Debian, Ubuntu); 1.5 GB, removed
# at the end.
#
# usage: scripts/bare_root.sh [command...]     default: scripts/demo.sh
# The last line sums up the two runs in the words of CTest. The exit status is 0 if both passed, and 77 with a line "skipped: ..." if there can be no such root here.
# Settings: ZERO_MIRROR (Debian's packages, http://deb.debian.org/debian), ZERO_BUILD_ROOT (the root lies below it, build/).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help) usage; exit 0 ;; -*) refuse "unknown option '$1'" ;; esac
command=("$@")
[ "$#" -gt 0 ] || command=(scripts/demo.sh)
optional=(libopenmpi-dev openmpi-bin nlohmann-json3-dev libxxhash-dev)

skip() { printf 'skipped: %s\n' "$1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a root folder of its own needs root rights"
has git && git -c safe.directory='*' -C "$root_dir" rev-parse -q --verify HEAD >/dev/null || skip "git, or the repository that holds the files, was not found"
# Mounts and processes of a contained command end with it, so that nothing is left to unmount.
contained() { unshare --mount --pid --fork --kill-child -- "$@"; }
contained true 2>/dev/null || skip "mounts of its own are not permitted (unshare --mount --pid)"
if ! has debootstrap; then
    has apt-get || skip "debootstrap was not found"
    run_quietly apt-get update && run_quietly apt-get install -y --no-install-recommends debootstrap || skip "debootstrap could not be installed"
fi

mkdir -p "$build_root"
root=$(mktemp -d "$(cd "$build_root" && pwd)/bare_root.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"
say "making a bare Debian 12 in $root"
started=$SECONDS
contained debootstrap --variant=minbase bookworm "$root" "${ZERO_MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || {
    why=$(grep -E '^E: ' "$root.log" | tail -n 1)
    rm -f "$root.log"
    skip "debootstrap failed: ${why:-no message}; is there a network connection?"
}
rm -f "$root.log"
for file in resolv.conf hosts; do cat "/etc/$file" >"$root/etc/$file" 2>/dev/null || true; done # the network of this machine, and its proxies
if has apt-config; then apt-config dump | grep -i '^Acquire::.*proxy' >"$root/etc/apt/apt.conf.d/90proxy" || true; fi
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # the root does not outlive this script
say "made in $((SECONDS - started)) s"

# inside COMMAND...: runs a command in the root, with nothing of this environment but proxies.
inside() {
    local proxies=() name
    for name in http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || proxies+=("$name=${!name}"); done
    # shellcheck disable=SC2016
    contained bash -c 'set -e
        root=$1; shift
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' \
        bash "$root" "${proxies[@]}" "$@"
}

report=()
failed=0
# attempt WHAT: runs the command in a fresh copy of HEAD. Objects of an earlier attempt stay, for those that are compiled in the same way; CMake starts anew.
attempt() {
    local began=$SECONDS result=passed
    say "$1: ${command[*]}"
    mkdir -p "$root/zero"
    find "$root/zero" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    find "$root/zero" -name CMakeCache.txt -delete
    git -c safe.directory='*' -C "$root_dir" archive HEAD | tar -x -C "$root/zero"
    # shellcheck disable=SC2016
    inside bash -c 'cd /zero && exec "$@"' bash "${command[@]}" || result=FAILED
    [ "$result" = passed ] || failed=$((failed + 1))
    report+=("$(printf '%-46s %5d s  %s' "$1" "$((SECONDS - began))" "$result")")
}

[ -z "$(git -c safe.directory='*' -C "$root_dir" status --porcelain)" ] || say "changes that are not committed are left out"
attempt "bare Debian 12"
say "installing with apt-get: ${optional[*]}"
# shellcheck disable=SC2016
run_quietly inside bash -c 'apt-get update && apt-get install -y --no-install-recommends "$@"' bash "${optional[@]}" || stop "the optional packages could not be installed (output above)"
attempt "Debian 12 with MPI, nlohmann/json and xxHash"
say "results"
printf '%s\n' "${report[@]}"
printf '%d%% tests passed, %d tests failed out of 2\n' "$((50 * (2 - failed)))" "$failed"
[ "$failed" -eq 0 ]
