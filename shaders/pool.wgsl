// pool: y[o, c] = mean, first (cls) or last of x[t, c] over the rows t of the sequence of output o, added in order.
// grid: (tiles of 64 c, outputs).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

const CLS: u32 = 1u;
const LAST: u32 = 2u;
override KIND: u32 = 0u;
override C: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let sequence = sequence_at(step[output_at(id.y) + 1u]);
  let first = step[sequence];
  let n = step[sequence + 1u];
  let start = select(first, first + n - 1u, KIND == LAST);
  let end = select(first + n, first + 1u, KIND == CLS);
  var sum = 0.0;
  for (var t = start; t < end; t++) { sum += x[t * X_STRIDE + X_OFFSET + id.x]; }
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = sum / f32(end - start);
}
