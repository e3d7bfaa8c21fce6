// conv1d: y[t, c] = act(bias[c] + sum over j <= HELD of weight[c, j] * x[t - HELD + j, c]); the slot has the HELD
// rows of x before the step's first row, oldest first. The lanes of a sequence's first row compute all rows that
// read the slot, then write it, so no lane reads it later.  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;

override C: u32 = 1u;
override HELD: u32 = 1u;  // at least 1
override HAS_BIAS: bool = false;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

// x of row i of the slot's rows, followed by the step's rows.
fn seen(slot: Slot, i: u32, c: u32) -> f32 {
  if (i >= HELD) { return x[(slot.first + i - HELD) * X_STRIDE + X_OFFSET + c]; }
  if (slot.is_held) { return state[slot.read + i * C + c]; }
  return 0.0;
}

fn convolve(slot: Slot, row: u32, c: u32) {
  var sum = 0.0;
  if (HAS_BIAS) { sum = bias[c]; }
  for (var j = 0u; j <= HELD; j++) { sum = fma(weight[c * (HELD + 1u) + j], seen(slot, row + j, c), sum); }
  y[(slot.first + row) * Y_STRIDE + Y_OFFSET + c] = act(sum);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let slot = slot_of(row_at(id.y).sequence);
  let row = id.y - slot.first;
  if (row >= HELD) { convolve(slot, row, id.x); }
  if (row > 0u) { return; }
  for (var i = 0u; i < min(HELD, slot.rows); i++) { convolve(slot, i, id.x); }
  // If both slots are one, rows move to earlier places, in order.
  for (var i = 0u; i < HELD; i++) { state[slot.write + i * C + id.x] = seen(slot, slot.rows + i, id.x); }
}
