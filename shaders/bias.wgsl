// bias: what is added to a finished sum, where there is one. It is joined before matvec, as Naga 29 panics on
// an override that follows an array whose size is one.
@group(0) @binding(4) var<storage, read> bias: array<f32>;

override HAS_BIAS: bool = false;

fn with_bias(sum: f32, at: u32) -> f32 {
  if (HAS_BIAS) { return sum + bias[at]; }
  return sum;
}
