// attention_part: as attention, one run of keys per workgroup; its softmax sums go to [rows, sides of query heads, SPLITS,
// PARTS + 1], which attention_join adds. grid: (sides of query heads, rows, SPLITS).
@group(0) @binding(1) var<storage, read_write> sums: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = row_at(group.y);
  let state = group_at(row.sequence, GROUP);
  let start = group.z * SPLIT;
  let first = max(first_key(row, state), start);
  let end = min(end_key(row, state), start + SPLIT);
  if (first >= end) { return; }
  load_query(group.y, group.x, lane);
  let part = run_of(row, state, first, end, group.x, lane);
  let to = ((group.y * HEADS * SIDES + group.x) * SPLITS + group.z) * (PARTS + 1u);
  if (lane == 0u) { sums[to] = vec4(part.top, part.sum, 0.0, 0.0); }
  if (lane < PARTS) { sums[to + 1u + lane] = part.out; }
}
