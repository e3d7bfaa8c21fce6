// embed: y[t] = SCALE * weight[token]. The token is the row's id or the sequence's last sampled id, read from
// the ring on the device. Ids of a sequence's last RING_ROWS rows are written to the ring, each to its own
// place. grid: one workgroup per token row.
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> words: array<u32>;
@group(0) @binding(4) var<storage, read_write> ring: array<u32>;

const FROM_ID: u32 = 0u;
const FROM_RING: u32 = 1u;
override K: u32 = 8u;
override SCALE: f32 = 1.0;
override PLACES: u32 = 1u;  // rows of the whole weight
override FIRST_ROW: u32 = 0u;  // of this piece of the weight
override PIECE_ROWS: u32 = PLACES;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override RING_ROWS: u32 = 128u;
override GROUP: u32 = 0u;

fn token_of(row: Row) -> u32 {
  if (row.source != FROM_RING) { return row.value; }
  return ring[group_at(row.sequence, GROUP).read * RING_ROWS + row.state_row % RING_ROWS];
}

fn goes_to_ring(t: u32, row: Row) -> bool {
  let sequence = sequence_at(row.sequence);
  return row.source == FROM_ID && t + RING_ROWS >= step[sequence] + step[sequence + 1u];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = row_at(group.x);
  let token = min(token_of(row), PLACES - 1u) - FIRST_ROW;  // wraps before the piece
  if (lane == 0u && goes_to_ring(group.x, row)) {
    ring[group_at(row.sequence, GROUP).write * RING_ROWS + row.state_row % RING_ROWS] = row.value;
  }
  if (token >= PIECE_ROWS) { return; }
  let to = (group.x * Y_STRIDE + Y_OFFSET) / 4u;
  for (var c = lane; c < n_chunks(); c += 64u) {
    var chunk = chunk_at(token, c);
    for (var i = 0u; i < 8u; i++) {
      let column = column_of(c, i);
      if (is_inside(column)) { y[to + column] = SCALE * weights_of(&chunk, i); }
    }
  }
}
