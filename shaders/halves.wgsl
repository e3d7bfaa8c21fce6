// halves: access to a file's bytes in 16-bit units, since GGUF blocks are aligned to 2 bytes only.
@group(0) @binding(0) var<storage, read> task: array<u32>;  // number of blocks, first block, offset of scales
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<u32>;

fn half_at(i: u32) -> u32 { return (source[i / 2u] >> (16u * (i % 2u))) & 0xffffu; }

fn word_at(i: u32) -> u32 { return half_at(i) | (half_at(i + 1u) << 16u); }
