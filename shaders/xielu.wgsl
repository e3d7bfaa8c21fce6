// xielu: xIELU(v) (arXiv 2411.13010), for unary. exp(v) - 1 = tanh(v / 2) * (exp(v) + 1), which keeps its
// digits near 0.
@group(0) @binding(2) var<storage, read> alpha: array<f32>;

fn act(v: f32) -> f32 {
  let low = min(v, alpha[3]);
  let negative = alpha[1] * (smooth_tanh(0.5 * low) * (exp(low) + 1.0) - v);
  return select(alpha[2] * v + select(negative, alpha[0] * v * v, v > 0.0), v, is_nan(v));
}
