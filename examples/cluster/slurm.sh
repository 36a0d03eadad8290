#!/bin/bash
# A cluster for one Slurm job, and a program on it:
#
#     sbatch --nodes=4 examples/cluster/slurm.sh python examples/cluster/train.py --workers 8
#
# Every node of the job gets one task, which is a node of the cluster; the first is its head. The program starts when all have joined, and
# its exit code is the job's. When it ends, and also after scancel, the cluster ends with the job.
#SBATCH --job-name=syncline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00

set -euo pipefail

if [[ $# -eq 0 ]]; then
    echo "usage: sbatch $0 COMMAND [ARGUMENT ...]" >&2
    exit 2
fi

# This script runs on the first node of the job. Where that has several networks, put the address on the fastest one here.
host=$(hostname -I | awk '{print $1}')
# Jobs that share a node must not share a port. Ray's workers use ports below 20000, programs that connect somewhere those above 32000.
port=$((20000 + SLURM_JOB_ID % 12000))

export SYNCLINE_ADDRESS=$host:$port
# On a filesystem that all nodes see: home directories usually are.
export SYNCLINE_STORAGE_PATH=${SYNCLINE_STORAGE_PATH:-$HOME/syncline_results}

run_node() {
    local -a place
    if [[ $SLURM_NODEID -eq 0 ]]; then
        # Sessions lie in a directory of this job alone, and are left there for whoever wants to read Ray's logs.
        place=(--head --port="${SYNCLINE_ADDRESS##*:}" --temp-dir="/tmp/syncline-$SLURM_JOB_ID" --include-dashboard=false)
    else
        until (: > "/dev/tcp/${SYNCLINE_ADDRESS/:/\/}") 2> /dev/null; do sleep 0.5; done
        place=(--address="$SYNCLINE_ADDRESS")
    fi
    exec syncline start "${place[@]}" --num-cpus="${SLURM_CPUS_PER_TASK:-1}" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --block
}
export -f run_node

srun --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" bash -c run_node &
cluster=$!
trap 'kill "$cluster" 2> /dev/null || true; wait "$cluster" || true' EXIT

syncline nodes --wait-for="$SLURM_JOB_NUM_NODES" --limit=300

# A step of its own: scancel signals steps first, and the script last.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" "$@"
