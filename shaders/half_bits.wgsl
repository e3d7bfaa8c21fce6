// half_bits: the f16 nearest to v, ties to even; pack2x16float may round either way, and state must hold the
// same bits on every device.
fn rounded_shift(bits: u32, by: u32) -> u32 { return (bits + ((1u << (by - 1u)) - 1u) + ((bits >> by) & 1u)) >> by; }

fn half_bits(v: f32) -> u32 {
  let sign = (bitcast<u32>(v) >> 16u) & 0x8000u;
  let size = bitcast<u32>(v) & 0x7fffffffu;
  if (is_nan(v)) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }  // 65520 and more are infinite
  if (size < 0x33000000u) { return sign; }  // less than 2^-25 is 0
  if (size < 0x38800000u) {  // less than 2^-14: multiples of 2^-24
    return sign | rounded_shift((size & 0x7fffffu) | 0x800000u, 126u - (size >> 23u));
  }
  return sign | rounded_shift(size - 0x38000000u, 13u);  // f16's exponent is biased by 112 less
}
