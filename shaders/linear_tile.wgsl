// linear_tile: y[t, n] = sum_k weight[n, k] * x[t, k] + bias[n], for matmul.
const TILE_OUTPUTS: u32 = 64u;

fn weight_row(n: u32, slot: u32) -> u32 { return min(n + slot, N - 1u); }

fn finish(y_at: u32, n: u32, slot: u32, sums: vec4<f32>) {
  for (var r = 0u; r < 4u; r++) {
    let at = n + slot + r;
    if (at < N) { y[y_at + at] = with_bias(sums[r], at); }
  }
}
