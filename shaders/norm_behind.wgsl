// norm_behind: z, the deferred norm of y, behind an op that completes quads of y: y * gain, then the sum of squares of
// each quad.
@group(0) @binding(6) var<storage, read_write> z: array<f32>;
@group(0) @binding(7) var<storage, read> gain: array<f32>;

const IS_FOLLOWED: bool = true;
override Z_STRIDE: u32 = 0u;
override Z_OFFSET: u32 = 0u;
override SQUARES_AT: u32 = N;  // column of z
override GAIN_AT: u32 = 0u;  // of this piece of y

fn follow(row: u32, quad: u32, v: vec4<f32>) {
  let to = row * Z_STRIDE + Z_OFFSET;
  for (var r = 0u; r < 4u; r++) { z[to + 4u * quad + r] = v[r] * gain[GAIN_AT + 4u * quad + r]; }
  z[to + SQUARES_AT + quad] = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, 0.0))));
}
