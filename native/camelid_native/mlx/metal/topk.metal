// topk: exact selection of the `want` highest places of a row of logits, at most THREADS.
constant constexpr uint MOST_WANTED = 256, BINS = 256, MOST_KEPT = MOST_WANTED + BINS;  // a bin per value of 8 bits

// In threadgroup memory: `sorted` gets the places in order.
struct Selection {
  threadgroup ulong *tops, *kept, *sorted;  // [MOST_WANTED], [MOST_KEPT], [MOST_WANTED]
  threadgroup atomic_uint *bins, *n_kept;  // [BINS], [1]
  threadgroup uint *cut;  // [2]: the bin with the wanted place, and the rank of that place in it
};

// The want-th of the threads' highest places: at least `want` places of the row are not below it, and usually few more.
inline ulong guess_of(Selection s, uint want, ulong own_top, uint thread_number) {
  s.tops[thread_number] = own_top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint rank = count_above(s.tops, THREADS, own_top) + 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (rank == want) s.sorted[0] = own_top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return s.sorted[0];
}

// Keeps the places from `least` on, and counts the next digit of those with the digits of `low`.
inline void keep_from(Selection s, Logits logits, ulong least, ulong low, ulong mask, uint shift, uint thread_number) {
  for (uint id = thread_number; id < VOCAB; id += THREADS) {
    ulong place = place_of(logit_at(logits, id), id);
    if (place < least) continue;
    uint slot = atomic_fetch_add_explicit(s.n_kept, 1, memory_order_relaxed);
    if (slot < MOST_KEPT) s.kept[slot] = place;
    if ((place & mask) == low) atomic_fetch_add_explicit(&s.bins[place >> shift & 255], 1, memory_order_relaxed);
  }
}

inline void cut_bins(Selection s, uint left) {
  uint bin = BINS - 1;
  for (; bin > 0; bin--) {
    uint n = atomic_load_explicit(&s.bins[bin], memory_order_relaxed);
    if (n >= left) break;
    left -= n;
  }
  s.cut[0] = bin, s.cut[1] = left;
}

// Moves each kept place to its rank.
inline void sort_kept(Selection s, uint want, uint thread_number) {
  uint n = atomic_load_explicit(s.n_kept, memory_order_relaxed);
  for (uint i = thread_number; i < n; i += THREADS) {
    uint above = count_above(s.kept, n, s.kept[i]);
    if (above < want) s.sorted[above] = s.kept[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Keeps the places from the guess on. If they are too many, radix selection narrows them, by one digit of 8 bits a pass;
// the want-th place is not below the guess, so places below it need not be counted. In the last pass, at most BINS places
// have the digits of the want-th, and fewer than `want` are above.
inline void keep_highest(Selection s, Logits logits, uint want, ulong own_top, uint thread_number) {
  ulong low = 0, mask = 0, guess = guess_of(s, want, own_top, thread_number);  // known digits of the want-th place
  uint left = want;  // its rank among the places with these digits
  for (int shift = 56; shift >= 0; shift -= 8) {
    atomic_store_explicit(&s.bins[thread_number], 0, memory_order_relaxed);
    if (thread_number == 0) atomic_store_explicit(s.n_kept, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    keep_from(s, logits, max(guess, low), low, mask, uint(shift), thread_number);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (atomic_load_explicit(s.n_kept, memory_order_relaxed) <= MOST_KEPT) break;
    if (thread_number == 0) cut_bins(s, left);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    low |= ulong(s.cut[0]) << shift;
    mask |= ulong(255) << shift;
    left = s.cut[1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  sort_kept(s, want, thread_number);
}
