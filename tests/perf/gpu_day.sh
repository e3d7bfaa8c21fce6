#!/bin/sh
# The first minutes of a lent NVIDIA GPU: figures with device and commit, in files of a folder.
#   sh tests/perf/gpu_day.sh PART [OUT] [--rig]
# PART: facts, ops, bits, cria, company (tests/cuda/on_device.py), bench. Each ends within ten minutes. The
# machine has no network: packages that its Python lacks come as wheels in .whl (a folder that git does not see).
# --rig runs a part on the processor's emulator, for a trial without a GPU.
#   before: python -m tests.cuda.on_device bits --rig > .whl/bits.json     the emulator's hashes, to compare with
set -eu
part=${1:?usage: gpu_day.sh facts|ops|bits|cria|company|bench [OUT] [--rig]}
out=${2:-build/gpu-day}
rig=${3:-}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
if ls .whl/*.whl >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl
  export PYTHONPATH=/tmp/site
fi
export PYTHONPATH="core:native:.:${PYTHONPATH-}"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU")
file=$out/$part.txt
echo "$part · $device · commit $commit · $(date -u +%F)" > "$file"
shape=/tmp/8b-q4_k_m.gguf
case $part in
  bench)
    command=camelid; models="cria $shape"; sizes="-p 512 -n 128 -b 1,8 -r 3"
    if [ "$rig" ]; then command=tests.cuda.on_rig; models=cria; sizes="-p 16 -n 4 -r 1"; fi
    for model in $models; do
      if [ "$model" = "$shape" ] && [ ! -f "$shape" ]; then
        python3 -m tests.perf.shapes Llama-3.1-8B q4_k_m "$shape"
      fi
      # shellcheck disable=SC2086
      python3 -m "$command" bench "$model" --backend cuda $sizes >> "$file" 2>&1
    done ;;
  bits)
    against=; if [ -f .whl/bits.json ]; then against="--against .whl/bits.json"; fi
    # shellcheck disable=SC2086
    python3 -m tests.cuda.on_device bits $against $rig >> "$file" 2>&1 ;;
  *)
    # shellcheck disable=SC2086
    python3 -m tests.cuda.on_device "$part" $rig >> "$file" 2>&1 ;;
esac
cat "$file"
