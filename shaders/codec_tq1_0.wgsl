// tq1_0: planes {q: u8[48]}, {high: u8[4]}, {d: f16}; a byte is a fraction of 256 with 5 (in `high` 4) base-3
// digits, and a product with a power of 3 begins with the next one; value = (digit - 1) * d.
const POWERS: array<u32, 5> = array<u32, 5>(1u, 3u, 9u, 27u, 81u);

fn digits(word: u32, power: u32) -> u32 {  // two bytes at a time, in 16 bits each
  let even = (((word & 0xff00ffu) * power) & 0xff00ffu) * 3u;
  let odd = ((((word >> 8u) & 0xff00ffu) * power) & 0xff00ffu) * 3u;
  return ((even >> 8u) & 0x30003u) | (odd & 0x3000300u);
}

fn run_at(block: u32, run: u32) -> vec4<u32> {  // of 16 weights
  if (run == 15u) {
    let high = words[PLANE_1 + block];
    return vec4(digits(high, 1u), digits(high, 3u), digits(high, 9u), digits(high, 27u));
  }
  let w = weights[3u * block + select(2u, run % 2u, run < 10u)];
  let power = POWERS[select(run - 10u, run / 2u, run < 10u)];
  return vec4(digits(w.x, power), digits(w.y, power), digits(w.z, power), digits(w.w, power));
}

fn packed_at(row: u32, c: u32) -> Packed {
  let a = run_at(block_number(row, c), c % 8u * 2u);
  let b = run_at(block_number(row, c), c % 8u * 2u + 1u);
  let d = half_of(PLANE_2, block_number(row, c), c, 8u);
  return Packed(a, b, vec2(d), vec2(0.0));
}
