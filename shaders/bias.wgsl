// bias: a finished sum times the scale of a deferred norm, plus the bias if the op has one. Joined before matvec, since
// Naga 29 panics on an override after an array whose size is an override.
@group(0) @binding(5) var<storage, read> bias: array<f32>;

override HAS_BIAS: bool = false;
override FIRST_ROW: u32 = 0u;  // of this piece of the weight

fn with_bias(sum: f32, scale: f32, at: u32) -> f32 {
  if (HAS_BIAS) { return fma(sum, scale, bias[FIRST_ROW + at]); }
  return sum * scale;
}
