// kv_pair_f16: writes neighbouring values as one word, the first at an even place behind word `base` of the layer.
fn put_pair(base: u32, at: u32, values: vec2<f32>) {
  layer[base + at / 2u] = half_bits(values.x) | (half_bits(values.y) << 16u);
}
