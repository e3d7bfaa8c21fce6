// linear_glu: y[t, n] = gated(gate, up), where gate and up are rows n and n + N of weight @ x.
// grid: (tiles of WEIGHT_ROWS / 2 n, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let pairs = WEIGHT_ROWS / 2u;
  let n = (group.z * TILES_X + group.x) * pairs;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let slot = lane / LANES;  // first all gates, then all ups
  let x_at = (first * X_STRIDE + X_OFFSET) / 4u;
  if (n + slot % pairs < N) { partial_sums(n + slot % pairs + (slot / pairs) * N, x_at, tokens, lane); }
  workgroupBarrier();
  for (var i = lane; i < pairs * tokens; i += GROUP_LANES) {
    let pair = i % pairs;
    let t = i / pairs;
    if (n + pair < N) {
      y[(first + t) * Y_STRIDE + Y_OFFSET + n + pair] = gated(total(pair, t), total(pair + pairs, t));
    }
  }
}
