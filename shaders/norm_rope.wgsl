// norm_rope: the RMS norm of each head of queries and keys, then its rotation as by rope, in place. store_pair gets
// the pairs of keys and values.  grid: (heads of queries and keys, then tiles of 2 * 64 values; rows).
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> fine: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> coarse: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> q_gain: array<f32>;

override TURNED: u32 = 0u;  // columns of queries and keys
override WIDTH: u32 = 0u;  // columns of keys
override V_WIDTH: u32 = 0u;
override HEAD_DIM: u32 = 2u;
override OFFSET: u32 = 0u;
override NEXT: u32 = 1u;  // stride from a pair's first float to its second
override PITCH: u32 = 2u;  // stride between pairs
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override EPS: f32 = 0.0;

var<workgroup> head: array<f32, HEAD_DIM>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y * X_STRIDE + X_OFFSET;
  let column = group.x * HEAD_DIM;
  if (column >= TURNED) {
    let i = 2u * (LANES * (group.x - TURNED / HEAD_DIM) + lane);
    if (i < V_WIDTH) { store_pair(group.y, TURNED + i, vec2(x[row + TURNED + i], x[row + TURNED + i + 1u])); }
    return;
  }
  read_head(row + column, column < TURNED - WIDTH, lane);
  turn_head(row_at(group.y).position, lane);
  for (var c = 2u * lane; c < HEAD_DIM; c += 2u * LANES) {
    x[row + column + c] = head[c];
    x[row + column + c + 1u] = head[c + 1u];
    store_pair(group.y, column + c, vec2(head[c], head[c + 1u]));
  }
}

fn read_head(at: u32, is_query: bool, lane: u32) {
  var squares = 0.0;
  for (var c = lane; c < HEAD_DIM; c += LANES) {
    head[c] = x[at + c];
    squares += head[c] * head[c];
  }
  let scale = 1.0 / sqrt(workgroup_sum(squares, lane) / f32(HEAD_DIM) + EPS);
  for (var c = lane; c < HEAD_DIM; c += LANES) { head[c] *= scale * select(k_gain[c], q_gain[c], is_query); }
  workgroupBarrier();
}

fn turn_head(position: u32, lane: u32) {
  for (var pair = lane; pair < PAIRS; pair += LANES) {
    let at = OFFSET + pair * PITCH;
    let values = turned(vec2(head[at], head[at + NEXT]), angle(position, pair));
    head[at] = values.x;
    head[at + NEXT] = values.y;
  }
  workgroupBarrier();
}
