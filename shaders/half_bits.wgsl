// half_bits: f16 bits nearest to v, ties to even. pack2x16float may round either way, but state must have the
// same bits on every device.
fn rounded_shift(bits: u32, by: u32) -> u32 { return (bits + ((1u << (by - 1u)) - 1u) + ((bits >> by) & 1u)) >> by; }

fn half_bits(v: f32) -> u32 {
  let sign = (bitcast<u32>(v) >> 16u) & 0x8000u;
  let size = bitcast<u32>(v) & 0x7fffffffu;
  if (is_nan(v)) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }  // 65520 and above round to infinity
  if (size < 0x33000000u) { return sign; }  // below 2^-25 rounds to 0
  if (size < 0x38800000u) {  // below 2^-14: subnormal, a multiple of 2^-24
    return sign | rounded_shift((size & 0x7fffffu) | 0x800000u, 126u - (size >> 23u));
  }
  return sign | rounded_shift(size - 0x38000000u, 13u);  // the exponent bias of f16 is 112 lower
}
