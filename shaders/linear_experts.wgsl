// linear_experts: y[t, slot] = weight[ids[t, slot]] @ x[t, slot] + bias[ids[t, slot]]. Rows have different
// experts, so a decoded weight serves one row only.  grid: (tiles of 64 / LANES quads, rows, slots).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let quads = GROUP_LANES / LANES;
  let first = 4u * group.x * quads;
  let expert = expert_of(group.y, group.z) - FIRST_EXPERT;  // wraps before the piece
  let is_here = expert < PIECE_EXPERTS;
  let weight_row = expert * N;
  let row = first + 4u * (lane / LANES);
  let rows = weight_row + min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
  let x_at = (group.y * X_STRIDE + X_OFFSET) / 4u + group.z * X_SLOT;
  partial_sums(is_here && row < N, rows, x_at, 0u, lane);
  workgroupBarrier();
  if (lane >= quads) { return; }
  let sums = total(lane, 0u);
  for (var r = 0u; r < 4u; r++) {
    let n = first + 4u * lane + r;
    let to = group.y * Y_STRIDE + Y_OFFSET + group.z * Y_SLOT + n;
    if (is_here && n < N) { y[to] = with_bias(sums[r], 1.0, weight_row + n); }
  }
}
