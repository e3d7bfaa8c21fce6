// gelu, the tanh form (Hendrycks and Gimpel, arXiv 1606.08415). Beyond 20 it is v or 0 anyway, so that the
// cube stays small.
fn act(v: f32) -> f32 {
  let u = clamp(v, -20.0, 20.0);
  return 0.5 * v * (1.0 + smooth_tanh(0.7978845608028654 * (u + 0.044715 * u * u * u)));
}
