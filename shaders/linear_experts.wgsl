// linear_experts: y[t, slot] = weight[ids[t, slot]] @ x[t, slot] + bias[ids[t, slot]]. Rows have different
// experts, so a decoded weight serves one row only.  grid: (tiles of WEIGHT_ROWS n, rows, slots).
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let n = group.x * WEIGHT_ROWS;
  let weight_row = expert_of(group.y, group.z) * N;
  let row = n + lane / LANES * R;
  if (row < N) {
    let rows = weight_row + min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u));
    partial_sums(rows, (group.y * X_STRIDE + X_OFFSET) / 4u + group.z * X_SLOT, 0u, lane);
  }
  workgroupBarrier();
  for (var i = lane; i < WEIGHT_ROWS; i += GROUP_LANES) {
    if (n + i < N) {
      let to = group.y * Y_STRIDE + Y_OFFSET + group.z * N + n + i;
      y[to] = with_bias(total(i, 0u), weight_row + n + i);
    }
  }
}
