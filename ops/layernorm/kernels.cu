// Layer normalisation of the rows of x[rows, columns], with an optional addition in front. The kernels are those of common/norm.cuh,
// common/norm_run.cuh, common/norm_stages.cuh and common/norm_words.cuh.
//
// | kernel           | idea                                                                               | reads of x |
// |------------------|------------------------------------------------------------------------------------|------------|
// | naive            | a thread per row, a pass for each of mean, variance and result                     | 3          |
// | block_passes     | a block per row, 16 bytes an access                                                | 3          |
// | row_in_registers | a group of threads keeps its row in registers; several short rows per block        | 1          |
// | rows_together    | ... and several rows per group, which are all read before the first is looked at   | 1          |
// | row_in_words     | ... of rows that begin anywhere, by words of 4 bytes                               | 1          |
// | rows_in_run      | a thread per row in shared memory, where a block's rows are brought as one run     | 1          |
// | row_in_shared    | a block per row, which is brought to shared memory                                 | 1          |
// | rows_in_stages   | a block takes rows in turn, of which the next are on their way to shared memory    | 1          |
#include "common/norm.cuh"
#include "layernorm/params.h"
