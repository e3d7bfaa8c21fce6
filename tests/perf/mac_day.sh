#!/bin/sh
# The first minutes of a Mac: figures with device and commit, in files of build/mac-day.
#   sh tests/perf/mac_day.sh PART [MODEL]
# PART: doctor   every kernel against the reference, on the GPU
#       tests    models, KV types, sampling, promise A and peak memory of the backend mlx, on the GPU
#       cria     greedy tokens against the reference
#       bench    cria, and MODEL (a directory that MLX quantized) beside mlx-lm, against tests/perf/mlx.md
set -eu
part=${1:?usage: mac_day.sh doctor|tests|cria|bench [MODEL]}
model=${2:-}
cd "$(dirname "$0")/../.."
python=.venv/bin/python
export PYTHONPATH="core:native:." CAMELID_MLX_GPU=1
out=build/mac-day
mkdir -p "$out"
file=$out/$part.txt
chip=$(sysctl -n machdep.cpu.brand_string 2>/dev/null || uname -m)
echo "$part · $chip · commit $(git rev-parse --short HEAD) · $(date -u +%F)" > "$file"
case $part in
  doctor) $python -m camelid doctor --backend mlx >> "$file" 2>&1 || code=$? ;;
  tests) $python -m pytest -q tests/mlx >> "$file" 2>&1 || code=$? ;;
  cria) $python .ci/check-adapter mlx gpu >> "$file" 2>&1 || code=$? ;;
  bench)
    $python -m camelid bench --backend mlx -b 1,8 >> "$file" 2>&1 || code=$?
    if [ "$model" ]; then
      $python -m camelid bench "$model" --backend mlx --kv-type f16 --compare mlx-lm >> "$file" 2>&1 || code=$?
    fi ;;
esac
cat "$file"
exit "${code:-0}"
