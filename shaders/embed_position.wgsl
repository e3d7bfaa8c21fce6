// embed_position: x[t] += weight[position], with the position in channel CHANNEL of the row.
// grid: one workgroup per token row.
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> words: array<u32>;

override K: u32 = 8u;
override PLACES: u32 = 1u;  // rows of the whole weight
override FIRST_ROW: u32 = 0u;  // of this piece of the weight
override PIECE_ROWS: u32 = PLACES;
override CHANNEL: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let place = min(step[ROWS_AT + group.x * ROW_WORDS + 4u + CHANNEL], PLACES - 1u);
  let position = place - FIRST_ROW;  // wraps before the piece
  if (position >= PIECE_ROWS) { return; }
  let to = (group.x * X_STRIDE + X_OFFSET) / 4u;
  for (var c = lane; c < n_chunks(); c += 64u) {
    var chunk = chunk_at(position, c);
    for (var i = 0u; i < 8u; i++) {
      let column = column_of(c, i);
      if (is_inside(column)) { x[to + column] += weights_of(&chunk, i); }
    }
  }
}
