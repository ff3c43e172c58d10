// Gradients of RMS normalisation. The kernels are those of common/norm_backward.cuh and common/norm_backward_beside.cuh.
//
// | kernel            | idea                                                                                   | reads of x and dy |
// |-------------------|----------------------------------------------------------------------------------------|-------------------|
// | naive             | a thread per row for dx, a thread per column for dweight                               | 3                 |
// | block_passes      | a block per row for dx; slabs of rows for partial sums, then their sums                | 3                 |
// | cluster_passes    | the same with a cluster of 8 blocks per row for dx, for rows that are long and few      | 3                 |
// | rows_in_registers | blocks that stay take rows in turn, and keep their partial sums in registers to the end | 1                 |
// | rows_in_teams     | the same with clusters of blocks, for longer rows                                       | 1                 |
// | rows_beside_columns | one launch of few rows: blocks that take rows for dx, beside blocks that take columns | 2                 |
#include "common/norm_backward.cuh"
#include "rmsnorm_backward/params.h"
