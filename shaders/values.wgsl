// values: 4-bit indices into 16 signed bytes.
fn valued(indices: u32, table: vec4<u32>) -> vec4<f32> {  // an index in the low nibble of each byte
  let at = unpack4xU8(indices);
  let low = select(vec4(table.x), vec4(table.y), (at & vec4(4u)) != vec4(0u));
  let high = select(vec4(table.z), vec4(table.w), (at & vec4(4u)) != vec4(0u));
  let word = select(low, high, at >= vec4(8u));
  return vec4<f32>(bitcast<vec4<i32>>(word << (vec4(24u) - 8u * (at & vec4(3u)))) >> vec4(24u));
}

fn valued_runs(a: vec4<u32>, b: vec4<u32>, table: vec4<u32>) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    valued(a.x, table), valued(a.y, table), valued(a.z, table), valued(a.w, table),
    valued(b.x, table), valued(b.y, table), valued(b.z, table), valued(b.w, table));
}
