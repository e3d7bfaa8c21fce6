// turn: the rotation of a pair of floats by an angle, as a product of complex numbers. Each fma is explicit, so
// that all kernels give the same bits.
fn turned(v: vec2<f32>, by: vec2<f32>) -> vec2<f32> {
  return vec2(fma(v.x, by.x, -(v.y * by.y)), fma(v.x, by.y, v.y * by.x));
}
