#!/usr/bin/env bash
# Trains across two "hosts": network namespaces of this machine with host names and addresses of their own, joined by a virtual cable. Then cuts the cable during a
# training, and sees every rank end with an error. Needs root, iproute2 and Open MPI.
#
# usage: two_hosts.sh TRAIN_GPT
set -euo pipefail

train_gpt=$1
time_out=10
skip() { echo "skipped: no $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "root, which makes network namespaces"
command -v ip >/dev/null || skip "iproute2"
command -v unshare >/dev/null || skip "unshare"
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "mpirun of Open MPI"

a=zero-a-$$
b=zero-b-$$
work=$(mktemp -d)
clean_up() {
    for host in "$a" "$b"; do
        for process in $(ip netns pids "$host" 2>/dev/null); do kill -9 "$process" 2>/dev/null || true; done
        ip netns delete "$host" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT
ip netns add "$a" 2>/dev/null || skip "network namespaces"
ip netns add "$b"
ip -n "$a" link add cable type veth peer name cable netns "$b" || skip "virtual cables"
ip -n "$a" address add 10.87.0.1/24 dev cable
ip -n "$b" address add 10.87.0.2/24 dev cable
for host in "$a" "$b"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set cable up
done

# What mpirun calls instead of ssh: the arguments are a host, which is always the second one, and a command line. Its processes are in a namespace of their own, as on
# another host, so that ranks cannot read the memory of the first one. The daemon of mpirun must not leave its session (--leave-session-attached): the namespace ends with it.
cat >"$work/agent" <<EOF
#!/bin/sh
shift
exec ip netns exec $b unshare --uts --pid --fork --mount-proc sh -c 'hostname $b; exec sh -c "\$*"' sh "\$@"
EOF
# A rank writes its errors to a file of its host, because a cut cable would keep them from mpirun.
cat >"$work/rank" <<EOF
#!/bin/sh
exec '$train_gpt' "\$@" 2>>$work/errors-\$(hostname)
EOF
chmod +x "$work/agent" "$work/rank"

# launch ARGUMENT...: two ranks on each host.
launch() {
    ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" sh mpirun --allow-run-as-root --leave-session-attached --mca plm_rsh_agent "$work/agent" \
        --mca btl tcp,self --mca btl_tcp_if_include 10.87.0.0/24 --mca oob_tcp_if_include 10.87.0.0/24 -host 10.87.0.1:2,10.87.0.2:2 -n 4 \
        "$work/rank" --communicator mpi --width 16 --context 16 --batch 2 --bucket-bytes 4096 --stage 3 "$@"
}
fail() { echo "two_hosts: $1"; cat "$work"/* 2>/dev/null || true; exit 1; }

expected=$("$train_gpt" --world 4 --width 16 --context 16 --batch 2 --bucket-bytes 4096 --stage 3 --steps 10 | grep '^parameters:')
launch --steps 10 >"$work/output" 2>&1 || fail "the training across two hosts failed"
found=$(grep '^parameters:' "$work/output") || fail "no hash"
[ "$found" = "$expected" ] || fail "the hash across two hosts is '$found', and on threads '$expected'"
moved=$(ip -n "$a" -s link show cable | awk '/TX:/ { getline; print $1 }')
echo "two hosts: $found, as four threads; $moved bytes left the first host"
[ "$moved" -gt 1000000 ] || fail "only $moved bytes went through the cable"

launch --steps 1000000 --time-out "$time_out" >"$work/output" 2>&1 &
launcher=$!
for _ in $(seq 600); do
    grep -q '^step ' "$work/output" && break
    sleep 0.1
done
grep -q '^step ' "$work/output" || fail "the training did not start"
ip -n "$a" link set cable down
start=$SECONDS
# The ranks of both hosts; the daemons of mpirun are cleaned up below.
ranks() { for host in "$a" "$b"; do for process in $(ip netns pids "$host"); do tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null | grep "^$train_gpt" || true; done; done; }
for _ in $(seq 600); do
    [ -n "$(ranks)" ] || break
    sleep 0.1
done
took=$((SECONDS - start))
[ -z "$(ranks)" ] || fail "ranks still run a minute after the cable was cut"
for host in "$a" "$b"; do
    grep -q "waited $((time_out * 1000)) ms for rank" "$work/errors-$host" || fail "no rank on $host said for whom it waited"
    sed "s/^/$host: /" "$work/errors-$host" | cut -c1-260
done
[ "$took" -le $((time_out + 12)) ] || fail "the ranks ended $took s after the cable was cut, with a time-out of $time_out s"
for _ in $(seq 50); do # mpirun learns of the cut by itself, or is ended
    kill -0 "$launcher" 2>/dev/null || break
    sleep 0.1
done
kill -9 "$launcher" 2>/dev/null || true
! wait "$launcher" || fail "mpirun reports success after the cut"
echo "two hosts: all ranks ended at most $took s after the cut; the time-out was $time_out s"
