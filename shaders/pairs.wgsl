// pairs: chunks whose bytes have two 4-bit codes, PAIR vec4 of columns apart. A codec defines coded_at(row, c). The
// codebook, which follows the planes, has both values of each byte as two f16, and behind them as the low bytes of two
// 16-bit fields. A lookup takes 2.3 instructions a weight on RDNA3, in integers 1.8; a selection among 16 constants 13.
override BOOK: u32 = 0u;

struct Coded { words: vec4<u32>, scale: vec2<f32> }

fn pair(w: u32, i: u32) -> vec2<f32> { return unpack2x16float(words[BOOK + ((w >> (8u * i)) & 0xffu)]); }

fn pairs(w: u32) -> mat2x4<f32> {  // of the low nibbles, and of the high nibbles
  return transpose(mat4x2<f32>(pair(w, 0u), pair(w, 1u), pair(w, 2u), pair(w, 3u)));
}

fn chunk_at(row: u32, c: u32) -> Chunk {
  let coded = coded_at(row, c);
  let w = coded.words;
  let p = array<mat2x4<f32>, 4>(pairs(w.x), pairs(w.y), pairs(w.z), pairs(w.w));
  var q = array<vec4<f32>, 8>(p[0][0], p[1][0], p[2][0], p[3][0], p[0][1], p[1][1], p[2][1], p[3][1]);
  if (PAIR == 2u) { q = array<vec4<f32>, 8>(q[0], q[1], q[4], q[5], q[2], q[3], q[6], q[7]); }
  return Chunk(q, coded.scale, vec2(0.0));
}

fn bytes_of(w: u32, i: u32) -> u32 {  // of bytes i and i + 1 of w: two low nibbles, two high ones
  let first = words[BOOK + 256u + ((w >> (8u * i)) & 0xffu)];
  return first | (words[BOOK + 256u + ((w >> (8u * i + 8u)) & 0xffu)] << 8u);
}

fn packed_at(row: u32, c: u32) -> Packed {
  let coded = coded_at(row, c);
  let w = coded.words;
  let a = vec4(bytes_of(w.x, 0u), bytes_of(w.x, 2u), bytes_of(w.y, 0u), bytes_of(w.y, 2u));
  let b = vec4(bytes_of(w.z, 0u), bytes_of(w.z, 2u), bytes_of(w.w, 0u), bytes_of(w.w, 2u));
  return Packed(a, b, coded.scale, vec2(0.0));
}
