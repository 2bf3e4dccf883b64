#!/usr/bin/env bash
# Everything that is worth measuring on a machine with a CUDA card, the most valuable first, within a time limit.
#
# Usage: benchmarks/cuda.sh FOLDER [SECONDS]
#
# Writes into FOLDER: tests.txt, normalizer.md, sampler.md, training-*.md, and the records of five seeds of each cell of
# the paper's table that was reached (500 epochs, the paper's settings; what the limit cuts off leaves checkpoints).
# Needs Python with torch, numpy, scipy, scikit-learn, matplotlib, filelock, rich and typer,
# and no network: the data sets are read from the folder in KSUBSET_DATA. Nothing is installed.
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: benchmarks/cuda.sh FOLDER [SECONDS]" >&2
    exit 2
fi
limit=${2:-540}
case $limit in
    '' | *[!0-9]*) echo "SECONDS must be a whole number, got '$limit'" >&2; exit 2 ;;
esac
mkdir -p "$1" && [ -w "$1" ] || { echo "cannot write to the folder '$1'" >&2; exit 2; }
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python3}
left() { echo $((limit - SECONDS)); }
at_most() { echo $(($1 < $(left) ? $1 : $(left) > 1 ? $(left) : 1)); }  # seconds, within what is left

"$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
    { echo "torch finds no CUDA device: nothing to measure" >&2; exit 1; }
"$python" -c 'import torch; print(torch.cuda.get_device_name(), "torch", torch.__version__)'

echo "== tests on CUDA"
if "$python" -c 'import pytest, hypothesis, mpmath' 2>/dev/null; then
    tests=("$python" -m pytest --device cuda -q tests/numerics tests/estimators tests/distributions/test_ksubset.py)
else
    tests=("$python" benchmarks/device_checks.py cuda)
fi
timeout "$(at_most 180)" "${tests[@]}" 2>&1 | tee "$out/tests.txt"
status=${PIPESTATUS[0]}

echo "== benchmarks"
for name in normalizer sampler "training classification" "training reconstruction"; do
    read -r script task <<<"$name"
    file=$out/$script${task:+-$task}.md
    timeout "$(at_most 90)" "$python" "benchmarks/$script.py" $task | tee "$file"
    [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "(cut off, or failed)" | tee -a "$file"; status=1; }
done

# Five seeds of a cell at a time: a step of a small network leaves most of a GPU idle.
echo "== the paper's table, $(left) s left"
for cell in \
    "classification fashion-mnist sfess-v" "classification fashion-mnist gs" \
    "classification mnist sfess-v" "classification mnist gs" \
    "classification fashion-mnist stgs" "classification fashion-mnist sfess" \
    "reconstruction fashion-mnist sfess-v" "reconstruction fashion-mnist gs" \
    "classification mnist stgs" "classification mnist sfess" \
    "reconstruction mnist sfess-v" "reconstruction mnist gs"; do
    read -r task dataset method <<<"$cell"
    [ "$(left)" -gt 30 ] || break
    # SIGINT: the runs write checkpoints and the records of their finished epochs, and the same command goes on there.
    timeout --signal=INT --kill-after=15 "$(($(left) - 20))" "$python" -m ksubset.cli sweep --jobs 5 --out "$out" \
        --task "$task" --dataset "$dataset" --method "$method" --seed 0 --seed 1 --seed 2 --seed 3 --seed 4
done
"$python" -m ksubset.cli table "$out" || status=1
exit "$status"
