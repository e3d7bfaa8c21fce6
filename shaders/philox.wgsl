// philox: noise of a draw, the first word of Philox4x32-10 (Salmon et al., SC 2011) keyed by the seed. The
// counter is (id, position, choice, purpose), so the noise does not depend on order or batch.
fn mul_high(a: u32, b: u32) -> u32 {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

fn philox(counter: vec4<u32>, seed: vec2<u32>) -> u32 {
  var c = counter;
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let high = vec2<u32>(mul_high(0xD2511F53u, c.x), mul_high(0xCD9E8D57u, c.z));
    c = vec4<u32>(high.y ^ c.y ^ key.x, c.z * 0xCD9E8D57u, high.x ^ c.w ^ key.y, c.x * 0xD2511F53u);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return c.x;
}

fn gumbel(counter: vec4<u32>, seed: vec2<u32>) -> f32 {
  let x = philox(counter, seed);
  // Near 1, float32 rounds u to 1 and log is inaccurate: there -log(u) is a series in d = 1 - u.
  let u = (f32(x >> 8u) + 0.5) * 5.9604644775390625e-8;
  let d = (f32(0xffffffu - (x >> 8u)) + 0.5) * 5.9604644775390625e-8;
  return -log(select(-log(u), d * (1.0 + d * (0.5 + d * (1.0 / 3.0 + d * 0.25))), d < 0.01));
}
