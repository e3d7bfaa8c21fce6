// linear_glu: y[t, n] = gated(gate, up), where gate and up are rows n and n + N of weight @ x. A quad has two of each.
fn n_quads() -> u32 { return (N + 1u) / 2u; }

fn quad_rows(quad: u32) -> vec4<u32> {
  let n = min(2u * quad, N - 1u);
  let next = min(n + 1u, N - 1u);
  return vec4(n, next, n + N, next + N);
}

fn finish(row: u32, quad: u32, sums: vec4<f32>, scale: f32) {
  let v = sums * scale;
  let at = row * Y_STRIDE + Y_OFFSET + 2u * quad;
  y[at] = gated(v.x, v.z);
  if (2u * quad + 1u < N) { y[at + 1u] = gated(v.y, v.w); }
}
