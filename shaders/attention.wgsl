// attention: y[t, h] = softmax(cap(SCALE * q[t, h] . keys)) @ values over the keys that the row sees, in
// pages. Keys from state.write on, at most the last WINDOW up to the row (0: no limit). Mask causal: to state_row.
// Mask held: to held - 1. Mask chunked: to state_row, from the first of the row's chunk of WINDOW keys.
// grid: (sides of query heads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = row_at(group.y);
  let state = group_at(row.sequence, GROUP);
  let first = first_key(row, state);
  let end = end_key(row, state);
  load_query(group.y, group.x, lane);
  var all = begun(extra[group.x / SIDES]);
  for (var start = first / SPLIT * SPLIT; max(first, start) < end; start += SPLIT) {
    all = joined(all, run_of(row, state, max(first, start), min(end, start + SPLIT), group.x, lane));
  }
  if (lane < PARTS) {
    let to = group.y * Y_STRIDE + Y_OFFSET + group.x * V_DIM + 4u * lane;
    let mean = all.out / all.sum;
    for (var i = 0u; i < 4u; i++) { y[to + i] = mean[i]; }
  }
}
