// defer_norm: z = deferred norm of y.  grid: (tiles of 64 quads, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

override N: u32 = 4u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (4u * id.x >= N) { return; }
  let at = id.y * Y_STRIDE + Y_OFFSET + 4u * id.x;
  follow(id.y, id.x, vec4(y[at], y[at + 1u], y[at + 2u], y[at + 3u]));
}
