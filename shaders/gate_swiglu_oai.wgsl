// gate_swiglu_oai: gated unit of gpt-oss: gate clamped to at most 7, up to -7..7; sigmoid with slope 1.702;
// one is added to up.
fn gated(gate: f32, up: f32) -> f32 {
  let g = select(min(gate, 7.0), gate, is_nan(gate));
  let u = select(clamp(up, -7.0, 7.0), up, is_nan(up));
  return g / (1.0 + exp(min(-1.702 * g, 80.0))) * (u + 1.0);
}
