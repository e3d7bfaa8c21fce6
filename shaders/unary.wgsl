// unary: x[t, c] = act(x[t, c]), in place.  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

override C: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let at = id.y * X_STRIDE + X_OFFSET + id.x;
  x[at] = act(x[at]);
}
