// smooth_tanh: tanh without overflow and without loss of digits near 0; WGSL's tanh may do both.
fn smooth_tanh(x: f32) -> f32 {
  let a = min(abs(x), 20.0);  // tanh(20) is 1 in f32
  let s = a * a;
  let tail = fma(-s, fma(-s, fma(-s, 62.0 / 2835.0, 17.0 / 315.0), 2.0 / 15.0), 1.0 / 3.0);
  let series = a * fma(-s, tail, 1.0);
  let t = exp(-2.0 * a);
  let size = select((1.0 - t) / (1.0 + t), series, a < 0.25);
  return select(select(size, -size, x < 0.0), x, is_nan(x));
}
