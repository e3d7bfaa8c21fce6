// packed_signed: weights in signed bytes.
fn weights4(word: u32) -> vec4<f32> { return signed_bytes(word); }
