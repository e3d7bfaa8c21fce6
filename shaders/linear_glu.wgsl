// linear_glu: y[t, n] = act(gate) * up, where gate and up are rows n and n + N of weight @ x.
// grid: (tiles of 2 n, tiles of TOKENS t, tiles / 32768).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = (group.z * TILES_X + group.x) * 2u;
  let first = group.y * TOKENS;
  let tokens = min(TOKENS, step[ROWS_WORD] - first);
  let slot = lane / LANES;  // gate n, gate n + 1, up n, up n + 1
  if (n + slot % 2u < N) { partial_sums(n + slot % 2u + (slot / 2u) * N, first, tokens, lane); }
  workgroupBarrier();
  let i = lane % 2u;
  let t = lane / 2u;
  if (t < tokens && n + i < N) {
    y[(first + t) * Y_STRIDE + Y_OFFSET + n + i] = act(total(i, t)) * total(i + 2u, t);
  }
}
