   0: f2050000               mov      $r1, threadgroup_in_grid_x
   4: f2093300               mov      $r2, thread_index_in_threadgroup
   8: 8e05c28658000000       iadd     $r1, ^r1.sx, u4.sx
  10: 2e0500202c0c0000       shl      r1, ^r1, 12
  18: 62000000               ldimm    r0l, 0
  1c: 7e0da4098000           mov      r3, u18
  22: 7e11a4098000           mov      r4, u18
  28: 7e15440a8000           mov      r5, r2
  2e: 621900000000           ldimm    r6, 0
  34: 7e1da4098000           mov      r7, u18
  3a: 520d4e020000           while    r7, 0, 1, ine
  40: 921d008024010110       csel     $r7, 0, r4, 1, 0, ieq
  48: 0e0d46ee64000000       isub     r3, r3.sx, r7.sx
  50: 522c8a621a00           while    $r5, u19, 1, ult
  56: 0e1d42a668000000       iadd     r7, r1.sx, $r5.sx
  5e: 0541e00e10c01200       load     r8, du8, r7, i32, x, a
  66: 0549e44e10c01200       load     r9, du10, r7, i32, x, b
  6e: 3800                   wait     a
  70: 3801                   wait     b
  72: aaa150222500           fadd     $r8, r8, r9
  78: 4541e00e10c01200       store    r8, du8, r7, i32, x, a
  80: 3a995002254c0200       ffma     r6, r8, r8, r6
  88: 8e11481e00000000       isub     $r4, r4.sx, 1
  90: 121d486224486044       csel     r7, r4, r3, r4, r3, ugt
  98: 0e154a0600010000       iadd     r5, r5.sx, 64
  a0: 3800                   wait     a
  a2: 00c098ffffff           jmp_any  -104
  a8: 520e00000000           pop_exec 1
  ae: 6800                   barrier
  b0: 920d44f20344f033       csel     $r3, r2, 63, r2, 63, ult
  b8: 0e0d006064001000       iadd     r3, 0, r3.sx, lsl 2
  c0: 2999060214000000       lstore   r6, r3l, 0, i32, x
  c8: 6800                   barrier
  ca: 522844020200           if       r2, 32, 1, ult
  d0: 6991060214000000       lload    r4, r3l, 0, i32, x
