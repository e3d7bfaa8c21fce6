// token_shift: y[t, i * C + c] = x[t, c] + lerp[i, c] * (x[t - 1, c] - x[t, c]) for each row i of lerp; the slot has,
// from PART * C on, the row of x before the step's first row. The lanes of a sequence's first row read the slot, then
// write it, so no lane reads it later.  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> lerp: array<f32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;

override C: u32 = 1u;
override MIXED: u32 = 1u;  // rows of lerp
override PART: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

fn x_at(row: u32, c: u32) -> f32 { return x[row * X_STRIDE + X_OFFSET + c]; }

fn before(slot: Slot, row: u32, c: u32) -> f32 {
  if (row > slot.first) { return x_at(row - 1u, c); }
  if (slot.is_held) { return state[slot.read + PART * C + c]; }
  return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let slot = slot_of(row_at(id.y).sequence);
  let now = x_at(id.y, id.x);
  let change = before(slot, id.y, id.x) - now;
  let to = id.y * Y_STRIDE + Y_OFFSET + id.x;
  for (var i = 0u; i < MIXED; i++) { y[to + i * C] = fma(lerp[i * C + id.x], change, now); }
  if (id.y == slot.first) { state[slot.write + PART * C + id.x] = x_at(slot.first + slot.rows - 1u, id.x); }
}
