// matmul_tile: 16 quads of weight rows times TOKENS token rows, at most 64, by 256 lanes: each has a quad and every
// 16th token row. matmul and matmul_q8 define tile_totals(row, first, last, lane), the sums of a lane.
// grid: (tiles of quads, tiles of TOKENS t, tiles / 32768).
const TILE_QUADS: u32 = 16u;
const SHARE: u32 = 4u;  // token rows of a lane, at most

var<workgroup> inputs: array<vec4<f32>, 256>;  // [4, token rows], of one run

fn x_row(first: u32, token: u32, last: u32) -> u32 { return ((first + min(token, last)) * X_STRIDE + X_OFFSET) / 4u; }

fn stage_squares(row: u32, lane: u32) {  // four pieces by each lane, in the memory of inputs
  for (var i = 0u; i < 4u; i++) { inputs[lane][i] = square_piece(row, lane % 4u * 4u + i); }
  workgroupBarrier();
}

fn squares_of(token: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < PIECES; i++) { sum += inputs[4u * token + i / 4u][i % 4u]; }
  return sum;
}

// One call per token row: a loop around a long finish() is not unrolled, and NVIDIA's compiler then keeps totals in
// memory.
fn put(first: u32, last: u32, quad: u32, t: u32, sums: vec4<f32>) {
  if (t > last || quad >= n_quads()) { return; }
  var scale = 1.0;
  if (IS_DEFERRED) { scale = norm_scale(squares_of(t)); }
  finish(first + t, quad, sums, scale);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let quad = (group.z * TILES_X + group.x) * TILE_QUADS;
  let first = group.y * TOKENS;
  let last = min(TOKENS, step[ROWS_WORD] - first) - 1u;
  let own = lane % 16u;  // the first token row of the lane
  let row = quad_rows(min(quad + lane % 64u / 4u, n_quads() - 1u))[lane % 4u];
  let totals = tile_totals(row, first, last, lane);
  if (IS_DEFERRED) { stage_squares(first + min(lane / 4u, last), lane); }
  put(first, last, quad + lane / 16u, own, totals[0]);
  if (TOKENS > 16u) { put(first, last, quad + lane / 16u, own + 16u, totals[1]); }
  if (TOKENS > 32u) { put(first, last, quad + lane / 16u, own + 32u, totals[2]); }
  if (TOKENS > 48u) { put(first, last, quad + lane / 16u, own + 48u, totals[3]); }
}
