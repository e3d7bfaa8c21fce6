// rope: rotates pairs of floats of each head by position * frequency, in place, from float OFFSET of a
// head on. grid: (tiles of 64 pairs, rows).
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> fine: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> coarse: array<vec2<f32>>;

override HEADS: u32 = 1u;
override HEAD_DIM: u32 = 2u;
override CHANNEL: u32 = 0u;  // of the positions
override OFFSET: u32 = 0u;
override NEXT: u32 = 1u;  // stride from a pair's first float to its second
override PITCH: u32 = 2u;  // stride between pairs
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= HEADS * PAIRS) { return; }
  let pair = id.x % PAIRS;
  let at = id.y * X_STRIDE + X_OFFSET + id.x / PAIRS * HEAD_DIM + OFFSET + pair * PITCH;
  let values = turned(vec2<f32>(x[at], x[at + NEXT]), angle(step[ROWS_AT + id.y * ROW_WORDS + 4u + CHANNEL], pair));
  x[at] = values.x;
  x[at + NEXT] = values.y;
}
