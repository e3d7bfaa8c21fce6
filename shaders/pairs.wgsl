// pairs: values of both 4-bit codes of a byte, as two f16 in the codebook, which follows the planes: 2.4 instructions a
// weight on RDNA3, where a selection among 16 constants has 13.
override BOOK: u32 = 0u;

fn pair(w: u32, i: u32) -> vec2<f32> { return unpack2x16float(words[BOOK + ((w >> (8u * i)) & 0xffu)]); }

fn pairs(w: u32) -> mat2x4<f32> {  // of the low nibbles, and of the high nibbles
  return transpose(mat4x2<f32>(pair(w, 0u), pair(w, 1u), pair(w, 2u), pair(w, 3u)));
}

fn paired_runs(w: vec4<u32>) -> array<vec4<f32>, 8> {
  let a = pairs(w.x);
  let b = pairs(w.y);
  let c = pairs(w.z);
  let d = pairs(w.w);
  return array<vec4<f32>, 8>(a[0], b[0], c[0], d[0], a[1], b[1], c[1], d[1]);
}
