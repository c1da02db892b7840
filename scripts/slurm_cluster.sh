#!/usr/bin/env bash
# A Slurm of one node, for the test of `qassay submit`: no systemd, no accounting, everything in one folder.
#
#     scripts/slurm_cluster.sh start DIR     prints the SLURM_CONF to use
#     scripts/slurm_cluster.sh stop DIR
set -euo pipefail
verb=${1:?start or stop}
mkdir -p "${2:?folder}"
dir=$(cd "$2" && pwd)

stop() {
  for name in slurmd slurmctld munged; do
    if [ -e "$dir/$name.pid" ]; then kill "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
  done
}
if [ "$verb" = stop ]; then
  stop
  exit
fi

host=$(hostname -s)
mkdir -p "$dir/state" "$dir/spool"
if [ ! -e "$dir/munge.key" ]; then head -c 1024 /dev/urandom >"$dir/munge.key"; fi
chmod 400 "$dir/munge.key"
chmod 755 "$dir"
munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munge.seed"
cat >"$dir/slurm.conf" <<CONF
ClusterName=qassay
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
CryptoType=crypto/munge
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldPort=27817
SlurmdPort=27818
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
JobRequeue=1
MinJobAge=3600
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"
slurmctld -c
slurmd -c
for _ in $(seq 50); do
  if sinfo -h -o %T 2>/dev/null | grep -q idle; then
    echo "$SLURM_CONF"
    exit
  fi
  sleep 0.2
done
echo "slurm did not start; see $dir/*.log" >&2
stop
exit 1
