// attention_join: y[t, h] of the sums that attention_part wrote. grid: (sides of query heads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> extra: array<f32>;  // sinks, or a bias

override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  if (lane >= PARTS) { return; }
  let row = row_at(group.y);
  let state = group_at(row.sequence, GROUP);
  let first = first_key(row, state);
  let end = end_key(row, state);
  var all = begun(extra[group.x / SIDES]);
  for (var split = first / SPLIT; max(first, split * SPLIT) < end; split++) {
    let at = ((group.y * HEADS * SIDES + group.x) * SPLITS + split) * (PARTS + 1u);
    all = joined(all, Softmax(sums[at].x, sums[at].y, sums[at + 1u + lane]));
  }
  let to = group.y * Y_STRIDE + Y_OFFSET + group.x * V_DIM + 4u * lane;
  let mean = all.out / all.sum;
  for (var i = 0u; i < 4u; i++) { y[to + i] = mean[i]; }
}
