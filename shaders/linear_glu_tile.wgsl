// linear_glu_tile: y[t, n] = gated(gate, up), for matmul. Gate and up are rows n and n + N of weight @ x; a lane
// has two of each.
const TILE_OUTPUTS: u32 = 32u;

fn weight_row(n: u32, slot: u32) -> u32 {
  return min(n + slot / 4u * 2u + slot % 2u, N - 1u) + slot % 4u / 2u * N;
}

fn finish(y_at: u32, n: u32, slot: u32, sums: vec4<f32>) {
  let at = n + slot / 2u;
  if (at < N) { y[y_at + at] = gated(sums.x, sums.z); }
  if (at + 1u < N) { y[y_at + at + 1u] = gated(sums.y, sums.w); }
}
