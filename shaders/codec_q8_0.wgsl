// q8_0, repacked: all quants (4 per word), then all scales (2 f16 per word). A unit is 8 weights, a block 4
// units.
override SCALES_AT: u32 = 0u;

const TO_TOP = vec4<u32>(0x1000000u, 0x10000u, 0x100u, 1u);

// Four signed bytes of a word, each times 2^24, which is exact: in the top byte of a number the sign bit is
// in place. Products move the bytes, since software adapters scalarize a vector shift by different amounts.
fn raised(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>((word * TO_TOP) & vec4<u32>(0xff000000u)));
}

fn decode8(unit: u32) -> mat2x4<f32> {
  let block = unit / 4u;
  let pair = unpack2x16float(weights[SCALES_AT + block / 2u]);
  let scale = select(pair.x, pair.y, block % 2u == 1u) * 5.9604644775390625e-8;  // 2^-24, also exact
  return mat2x4<f32>(scale * raised(weights[2u * unit]), scale * raised(weights[2u * unit + 1u]));
}
