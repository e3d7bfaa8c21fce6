BB8:
	v_add_nc_u32_e32 v2, 64, v2                                 ; 4a0404c0
BB1:
	s_cmp_eq_i32 s2, 0                                          ; bf008002
	s_mov_b64 s[4:5], exec                                      ; be84017e
	s_delay_alu instid0(VALU_DEP_1)                             ; bf870001
	v_cmpx_le_u32_e32 0x1000, v2                                ; 7d9604ff 00001000
	s_sub_i32 s3, s3, src_scc                                   ; 8183fd03
BB2:
	s_and_not1_b64 s[4:5], s[4:5], exec                         ; 91847e04
	s_cbranch_scc0 BB9                                          ; bfa10016
BB6:
	s_mov_b64 exec, s[4:5]                                      ; befe0104
	s_mov_b32 s4, s0                                            ; be840000
	s_movk_i32 s5, 0x8000                                       ; b0058000
	s_load_b256 s[8:15], s[4:5], 0x20                           ; f40c0202 f8000020
	v_add_lshl_u32 v3, s1, v2, 2                                ; d6470003 020a0401
	s_waitcnt lgkmcnt(0)                                        ; bf89fc07
	buffer_load_b32 v4, v3, s[8:11], 0 offen                    ; e0500000 80420403
	buffer_load_b32 v5, v3, s[12:15], 0 offen                   ; e0500000 80430503
	s_add_u32 s2, s2, -1                                        ; 8002c102
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1) ; bf870499
	s_max_u32 s4, s2, s3                                        ; 8a840302
	s_cmp_eq_i32 s4, 0                                          ; bf008004
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	v_add_f32_e32 v4, v4, v5                                    ; 06080b04
	buffer_store_b32 v4, v3, s[8:11], 0 offen                   ; e0680000 80420403
	v_fmac_f32_e32 v1, v4, v4                                   ; 56020904
	s_cbranch_scc0 BB8                                          ; bfa1ffe1
BB9:
	s_set_inst_prefetch_distance 0x3                            ; bf840003
	s_mov_b64 exec, -1                                          ; befe01c1
	v_lshlrev_b32_e32 v2, 2, v0                                 ; 30040082
	ds_store_b32 v2, v1                                         ; d8340000 00000102
