// gelu: tanh form (Hendrycks and Gimpel, arXiv 1606.08415). Beyond |v| = 20 the result is v or 0; the clamp
// keeps the cube finite.
fn act(v: f32) -> f32 {
  let u = clamp(v, -20.0, 20.0);
  return 0.5 * v * (1.0 + smooth_tanh(0.7978845608028654 * (u + 0.044715 * u * u * u)));
}
