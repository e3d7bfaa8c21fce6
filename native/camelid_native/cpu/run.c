/* Runs a program: every thread calls every op's kernel, and all meet between two. */

static const char *variant_op_name(uint32_t kind) {
    return kind < sizeof kernels / sizeof *kernels ? kernels[kind].name : NULL;
}

static void variant_execute(const cam_run *run, uint32_t thread) {
    const cam_op *ops = AT(const cam_op, run->program->ops);
    for (uint64_t i = 0; i < run->program->n_ops; i++) {
        if (i) cam_meet(run, thread);
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
