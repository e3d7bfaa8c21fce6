// linear: y[t, n] = sum_k weight[n, k] * x[t, k] + bias[n].
fn finish(row: u32, quad: u32, sums: vec4<f32>, scale: f32) {
  for (var r = 0u; r < 4u; r++) {
    let n = 4u * quad + r;
    if (n < N) { y[row * Y_STRIDE + Y_OFFSET + n] = with_bias(sums[r], scale, n); }
  }
}
