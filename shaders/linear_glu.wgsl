// linear_glu: y[t, n] = gated(gate, up), where gate and up are rows n and n + N of weight @ x.
// grid: (tiles of PAIRS n, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = (group.z * TILES_X + group.x) * PAIRS;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let x_at = (first * X_STRIDE + X_OFFSET) / 4u;
  let row = n + lane / LANES;
  if (row < N) { partial_sums(row, row + N, x_at, tokens, lane); }
  workgroupBarrier();
  for (var i = lane; i < PAIRS * tokens; i += GROUP_LANES) {
    let slot = i % PAIRS;
    let t = i / PAIRS;
    if (n + slot < N) {
      y[(first + t) * Y_STRIDE + Y_OFFSET + n + slot] = gated(total(slot, t), total(PAIRS + slot, t));
    }
  }
}
