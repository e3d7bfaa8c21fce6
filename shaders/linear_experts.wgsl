// linear_experts: y[t, slot] = weight[ids[t, slot]] @ x[t, slot] + bias[ids[t, slot]]. Rows have different
// experts, so a decoded weight serves one row only.  grid: (tiles of WEIGHT_ROWS n, rows, slots).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = group.x * WEIGHT_ROWS;
  let weight_row = expert_of(group.y, group.z) * N;
  let x_at = (group.y * X_STRIDE + X_OFFSET) / 4u + group.z * X_SLOT;
  let row = n + lane / LANES;
  if (row < N) { partial_sums(weight_row + row, weight_row + min(row + PAIRS, N - 1u), x_at, 1u, lane); }
  workgroupBarrier();
  if (lane < WEIGHT_ROWS && n + lane < N) {
    let to = group.y * Y_STRIDE + Y_OFFSET + group.z * N + n + lane;
    y[to] = with_bias(total(lane, 0u), weight_row + n + lane);
  }
}
