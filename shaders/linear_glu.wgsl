// linear_glu: y[t, n] = gated(gate, up), where gate and up are rows n and n + N of weight @ x. A lane has two
// of each. grid: (tiles of WEIGHT_ROWS / 2 n, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = (group.z * TILES_X + group.x) * (WEIGHT_ROWS / 2u);
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let row = n + lane / LANES * 2u;
  if (row < N) {
    let next = min(row + 1u, N - 1u);
    partial_sums(vec4(row, next, row + N, next + N), (first * X_STRIDE + X_OFFSET) / 4u, tokens - 1u, lane);
  }
  workgroupBarrier();
  for (var i = lane; i < WEIGHT_ROWS / 2u * tokens; i += GROUP_LANES) {
    let at = i % (WEIGHT_ROWS / 2u);
    let t = i / (WEIGHT_ROWS / 2u);
    let slot = at / 2u * R + at % 2u;
    if (n + at < N) { y[(first + t) * Y_STRIDE + Y_OFFSET + n + at] = gated(total(slot, t), total(slot + 2u, t)); }
  }
}
