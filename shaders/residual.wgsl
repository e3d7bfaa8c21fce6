// residual: y[t, n] += SCALE * (sum_k weight[n, k] * x[t, k] + bias[n]).
override SCALE: f32 = 1.0;

fn add_quad(row: u32, quad: u32, sums: vec4<f32>, scale: f32) -> vec4<f32> {  // the new values of y
  var values = vec4<f32>();
  for (var r = 0u; r < 4u; r++) {
    let n = 4u * quad + r;
    if (n >= N) { break; }
    let at = row * Y_STRIDE + Y_OFFSET + n;
    values[r] = fma(SCALE, with_bias(sums[r], scale, n), y[at]);
    y[at] = values[r];
  }
  return values;
}
