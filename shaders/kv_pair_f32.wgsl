// kv_pair_f32: writes neighbouring values, the first at an even place behind word `base` of the layer.
fn put_pair(base: u32, at: u32, values: vec2<f32>) {
  layer[base + at] = bitcast<u32>(values.x);
  layer[base + at + 1u] = bitcast<u32>(values.y);
}
