/* Execution of a program: each thread calls each op's kernel, and all threads meet between two ops. */

static const char *variant_op_name(uint32_t kind) {
    return kind < sizeof kernels / sizeof *kernels ? kernels[kind].name : NULL;
}

static void variant_execute(cam_run *run, uint32_t thread, uint64_t first) {
    const cam_op *ops = AT(const cam_op, run->program->ops);
    for (uint64_t i = first; i < run->program->n_ops; i++) {
        if (i > first && ops[i].flags & FLAG_JOINED) continue;
        if (i > first) cam_meet_between(run, i);
        kernels[ops[i].kind].run(&ops[i], run, thread);
    }
}

static uint64_t variant_scratch_bytes(const cam_program *program, uint32_t n_threads) {
    const cam_op *ops = AT(const cam_op, program->ops);
    uint64_t most = 0;
    for (uint64_t i = 0; i < program->n_ops; i++) {
        uint64_t bytes = kernels[ops[i].kind].scratch(&ops[i], program, n_threads);
        if (bytes > most) most = bytes;
    }
    return most;
}
