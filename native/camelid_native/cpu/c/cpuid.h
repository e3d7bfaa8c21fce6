/* Instruction sets of this machine. */
#pragma once

/* True if this processor and its operating system support the named variant. */
int cam_machine_runs(const char *variant);
