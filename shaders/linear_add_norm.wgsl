// linear_add_norm: residual, and z, the deferred norm of y: y * gain, then the sum of squares of each quad.
@group(0) @binding(6) var<storage, read_write> z: array<f32>;
@group(0) @binding(7) var<storage, read> gain: array<f32>;

override Z_STRIDE: u32 = 0u;
override Z_OFFSET: u32 = 0u;
override SQUARES_AT: u32 = N;  // column of z

fn finish(row: u32, quad: u32, sums: vec4<f32>, scale: f32) {
  let values = add_quad(row, quad, sums, scale);
  let to = row * Z_STRIDE + Z_OFFSET;
  for (var r = 0u; r < 4u; r++) { z[to + 4u * quad + r] = values[r] * gain[FIRST_ROW + 4u * quad + r]; }
  z[to + SQUARES_AT + quad] = fma4(values, values, 0.0);
}
