// linear: y[t, n] = sum_k weight[n, k] * x[t, k] + bias[n].
// grid: (tiles of WEIGHT_ROWS n, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = (group.z * TILES_X + group.x) * WEIGHT_ROWS;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let row = n + lane / LANES * R;
  if (row < N) {
    let rows = min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
    partial_sums(rows, (first * X_STRIDE + X_OFFSET) / 4u, tokens - 1u, lane);
  }
  workgroupBarrier();
  for (var i = lane; i < WEIGHT_ROWS * tokens; i += GROUP_LANES) {
    let slot = i % WEIGHT_ROWS;
    let t = i / WEIGHT_ROWS;
    if (n + slot < N) { y[(first + t) * Y_STRIDE + Y_OFFSET + n + slot] = with_bias(total(slot, t), n + slot); }
  }
}
