// turn: the rotation of a pair of floats by an angle, as a product of complex numbers. Each fma is explicit, so
// that all kernels give the same bits. The op's file declares the tables `fine` and `coarse`.
override PAIRS: u32 = 1u;  // rotated pairs per head
override FINE_ROWS: u32 = 256u;

fn turned(v: vec2<f32>, by: vec2<f32>) -> vec2<f32> {
  return vec2(fma(v.x, by.x, -(v.y * by.y)), fma(v.x, by.y, v.y * by.x));
}

// (cos, sin) of position * frequency: the product of two table entries, of position % FINE_ROWS and of position /
// FINE_ROWS.
fn angle(position: u32, pair: u32) -> vec2<f32> {
  return turned(fine[position % FINE_ROWS * PAIRS + pair], coarse[position / FINE_ROWS * PAIRS + pair]);
}
