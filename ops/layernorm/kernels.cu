// Layer normalisation of the rows of x[rows, columns], with an optional addition in front. The kernels are those of common/norm.cuh.
//
// | kernel           | idea                                                                               | reads of x |
// |------------------|------------------------------------------------------------------------------------|------------|
// | naive            | a thread per row, a pass for each of mean, variance and result                     | 3          |
// | block_passes     | a block per row, 16 bytes an access                                                | 3          |
// | row_in_registers | a group of threads keeps its row in registers; several short rows per block        | 1          |
// | rows_in_run      | ... of rows that follow one another, brought and taken as one run of memory        | 1          |
#include "common/norm.cuh"
#include "layernorm/params.h"
