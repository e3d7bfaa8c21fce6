/* Ops that treat every float by itself. */

enum { ADD_X, ADD_R };
enum { ADD_SCALE };

static void op_add(const cam_op *op, const cam_run *run, uint32_t thread) {
    const cam_view *x = &op->views[ADD_X], *r = &op->views[ADD_R];
    cam_range rows = share(n_rows(run, x), run, thread);
    for (uint32_t t = rows.start; t < rows.end; t++)
        for (uint32_t i = 0; i < x->cols; i++) row_of(x, t)[i] += (float)op->attrs[ADD_SCALE] * row_of(r, t)[i];
}
